"""Fit the cost model to measured runs, and predict the held-out runs."""

import json

import numpy as np
import polars as pl

from benchmarks.end_to_end.replicas import HERE, ON_RAY, WITHOUT_MODEL
from benchmarks.harness import RESULTS, read_rows
from benchmarks.simulate.cost_model import Costs, Estimate, ShardCost, estimate, fitted


def checked_table() -> str:
    """Return a Markdown table of measured and predicted numbers at the last commit; times are medians of repeats."""
    rows = read_rows(RESULTS / "simulate.csv")
    rows = rows.filter(pl.col("commit") == pl.col("commit").last())
    times = [pl.col(name).median().over("case") for name in ("whole_s", "before_s", "load_s", "score_s")]
    n_times = int(rows.group_by("case").len()["len"].to_numpy().min())
    rows = rows.with_columns(times).unique("case", keep="last", maintain_order=True)
    costs = {cores: fit(rows.filter(~pl.col("held_out"), cores=cores)) for cores in rows["cores"].unique()}
    lines = [
        "| run | | tokens computed | predicted | scoring, s | predicted | command, s | predicted |",
        "|---" * 8 + "|",
    ]
    worst = 0.0
    for row in rows.to_dicts():
        found = prediction(row, costs[row["cores"]])
        pairs = [
            (row["computed_tokens"], found.computed_tokens),
            (row["score_s"], found.score_s),
            (row["whole_s"], found.whole_s),
        ]
        cells = " | ".join(f"{real:,.4g} | {made:,.4g} ({made / real - 1:+.0%})" for real, made in pairs)
        lines.append(f"| {row['case']} | {'held out' if row['held_out'] else 'fitted'} | {cells} |")
        if row["held_out"]:
            worst = max(worst, *(abs(made / real - 1) for real, made in pairs))
    of_cores = (
        f"{cores} cores: {one.token_s * 1e6:.1f} µs a token, {one.request_s * 1e3:.2f} ms a request, "
        f"{one.shard_s:.2f} s a shard, {one.load_s:.1f} s to load, {one.command_s:.1f} s for the rest"
        for cores, one in sorted(costs.items())
    )
    measured = f"Commit {rows['commit'][-1]}; {rows['device'][-1]}; each run {n_times} times."
    head = f"{measured} Largest error of what was held out: {worst:.0%}."
    return "\n".join([*lines, "", head, "Fitted: " + "; ".join(of_cores) + ".", ""])


def fit(rows: pl.DataFrame) -> Costs:
    """Fit the costs of one replica to measured runs (rows of results/simulate.csv)."""
    shards = [_shards(row) for row in rows.to_dicts()]
    work = [[sum(s.computed_tokens for s in run), sum(s.requests for s in run), len(run)] for run in shards]
    token_s, request_s, shard_s = fitted(np.array(work, float), rows["score_s"].to_numpy()).tolist()
    before = rows["whole_s"] - rows["score_s"] - rows["load_s"]
    rest = np.column_stack([np.ones(rows.height), rows["prompts"].to_numpy()])
    command_s, prompt_s = fitted(rest, before.to_numpy()).tolist()
    return Costs(
        token_s=token_s,
        request_s=request_s,
        shard_s=shard_s,
        load_s=float(np.median(rows["load_s"])),
        prompt_s=prompt_s,
        command_s=command_s,
        replicas_s=ray_seconds(),
    )


def ray_seconds() -> float:
    """Return the seconds that Ray adds to a command on two cores, by the last measurement in results/replicas.csv."""
    rows = read_rows(RESULTS / "replicas.csv").filter(pl.col("case") == WITHOUT_MODEL)
    seconds = dict(rows.tail(2).select("contestant", "median_s").iter_rows())
    return float(seconds[ON_RAY] - seconds[HERE])


def prediction(row: dict[str, object], costs: Costs) -> Estimate:
    return estimate(_shards(row), costs, int(str(row["replicas"])), int(str(row["prompts"])))


def _shards(row: dict[str, object]) -> list[ShardCost]:
    return [ShardCost(*shard) for shard in json.loads(str(row["shards"]))]
