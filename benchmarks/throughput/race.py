"""Race this project against other tools over whole workloads, with random Llamas of several sizes or real models.

    python -m benchmarks.throughput.race [--workload NAME] [--shape 28M] [--dtype float32] [--queries N] [--runs N]

In every round the contestants run one after the other, each in a new process that loads, scores twice and ends. Two
times are measured: the second scoring, after warm-up, and the time from the start of the process to the first scores.
For this project, the latter is the time of the whole command: prompts, tokens, loading, scores, metrics and the page.
Outputs are compared after the first round; if they differ, no time is reported. Slow tools score only blocks of
adjacent prompts, so rates are compared and not times.
"""

import argparse
import tempfile
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.harness import Target, append_rows, print_targets
from benchmarks.throughput.contestants import CONTESTANTS, Contestant
from benchmarks.throughput.processes import Turn, turn
from benchmarks.throughput.workloads import (
    REAL_MODELS,
    SHAPES,
    WORKLOADS,
    Job,
    Prepared,
    Scores,
    evaluator,
    prepare,
    requests,
)

OURS = "evaluator"
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.25}
"""Dtype -> allowed difference between two tools, in nats and relative to the log-likelihood; tools round differently in
bfloat16."""

N_BLOCKS = 8  # blocks of adjacent rows, evenly spread over the workload, for tools that score a part of it

AT_LEAST = {"one dataset": 1.0, "all StaICC parts": 1.1, "PVI": 1.35, "prompt search": 3.0}
"""Workload -> target for prompts per second of scoring, as a multiple of plain vLLM."""
TOOLKIT_AT_LEAST = 8.5  # target for requests per second, as a multiple of the toolkit, for all methods in bfloat16


class Result(NamedTuple):
    """The turns of one contestant over a workload."""

    items: int  # number of prompts that the contestant scores
    turns: list[Turn]

    @property
    def rate(self) -> float:
        """Return the prompts per second of the median second scoring."""
        return self.items / float(np.median([one.score_s for one in self.turns]))


def main() -> None:
    arguments = _arguments()
    for shape in arguments.shape:
        for name in arguments.workload:
            with tempfile.TemporaryDirectory() as folder:
                prepared = prepare(name, shape, Path(folder), queries=arguments.queries)
                for dtype in arguments.dtype:
                    results = race(prepared, dtype, arguments, Path(folder))
                    report(prepared, f"{name}, {shape}, {dtype}", results, append=not arguments.trial)
                    print_targets(*targets(prepared, dtype, results))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput.race")
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=[*WORKLOADS])
    parser.add_argument(
        "--shape", nargs="+", choices=[*SHAPES, *REAL_MODELS], default=["28M"], help="of the model; 1B and 8B for a GPU"
    )
    parser.add_argument("--dtype", nargs="+", choices=TOLERANCE, default=[*TOLERANCE])
    parser.add_argument("--contestant", nargs="+", choices=CONTESTANTS, default=[*CONTESTANTS])
    parser.add_argument("--queries", type=int, help="of each dataset")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--slow-runs", type=int, help="of tools that score a part of the prompts; as many if left out")
    parser.add_argument("--trial", action="store_true", help="append no rows to results/throughput.csv")
    return parser.parse_args()


def race(prepared: Prepared, dtype: str, options: argparse.Namespace, folder: Path) -> dict[str, Result]:
    """Let the contestants that support a workload take turns. Raises SystemExit if their outputs differ."""
    names, runs = options.contestant, options.runs
    slow_runs = runs if options.slow_runs is None else options.slow_runs
    frame = requests(prepared.job)
    wants_states = "state" in frame["ask"]
    able = [name for name in names if CONTESTANTS[name].has_states or not wants_states]
    jobs = {name: part(prepared.job._replace(dtype=dtype), CONTESTANTS[name]) for name in able}
    results = {name: Result(len(jobs[name].rows), []) for name in able}
    folders = (folder / f"run-{dtype}-{number}" for number in count())
    for number in range(runs):
        for name in able:
            if number >= slow_runs and CONTESTANTS[name].max_rows is not None:
                continue
            one = turn(name, jobs[name])
            if name == OURS:
                one = one._replace(whole_s=command(prepared, dtype, next(folders)))
            print(f"  {name}: {results[name].items / one.score_s:.1f} prompts/s, whole {one.whole_s:.1f} s", flush=True)
            results[name].turns.append(one)
        if number == 0:
            require_equal(prepared.job, jobs, {name: result.turns[0].scores for name, result in results.items()}, dtype)
    return results


def part(job: Job, contestant: Contestant) -> Job:
    """Return the job of a contestant: all rows, or N_BLOCKS evenly spread blocks of adjacent rows."""
    n_rows = len(job.rows)
    if contestant.max_rows is None or n_rows <= contestant.max_rows:
        return job
    size = contestant.max_rows // N_BLOCKS
    starts = np.linspace(0, n_rows - size, N_BLOCKS).astype(int).tolist()
    return job._replace(rows=sorted({row for start in starts for row in range(start, start + size)}))


def command(prepared: Prepared, dtype: str, out: Path) -> float:
    """Run the whole command; return the seconds from its start to the written page."""
    start = time.perf_counter()
    evaluator("run", *prepared.words, "--dtype", dtype, "--out", str(out))
    return time.perf_counter() - start


def require_equal(all_rows: Job, jobs: Mapping[str, Job], scores: Mapping[str, Scores], dtype: str) -> None:
    """Raise SystemExit if the scores of a contestant differ from the first contestant's, which scored all rows.

    Args:
        all_rows: the job with all rows.
        jobs, scores: job and scores by name of contestant.
        dtype: key of TOLERANCE.
    """
    frame = requests(all_rows)
    first, *others = scores
    reference = _by_row(all_rows, scores[first])
    for name in others:
        found = _by_row(jobs[name], scores[name])
        for row, theirs in found.items():
            ours, several = reference[row], frame["continuations"][row].list.len().max() != 1
            if CONTESTANTS[name].last_token_only:
                if several:  # the tool scores only the last token, so labels of several tokens are not comparable
                    continue
                theirs, ours = np.log(theirs), ours - np.logaddexp.reduce(ours)
            try:
                np.testing.assert_allclose(theirs, ours, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
            except AssertionError as difference:
                raise SystemExit(
                    f"{name} differs from {first} at row {row}, so nothing is reported.\n{difference}"
                ) from None


def _by_row(job: Job, scores: Scores) -> dict[int, Scores]:
    """Return row -> its scores, for rows with continuations."""
    frame = requests(job)
    sizes = frame["continuations"].list.len().to_list()
    parts = np.split(scores, np.cumsum(sizes)[:-1])
    return {row: part for row, part, size in zip(job.rows, parts, sizes, strict=True) if size}


def report(prepared: Prepared, case: str, results: Mapping[str, Result], *, append: bool) -> None:
    """Print the rates, and append one row per contestant to results/throughput.csv."""
    rows = [_row(prepared, name, result, results) for name, result in results.items()]
    if append:
        append_rows("throughput", case, ["torch", "transformers", "lm-eval", "StaICC"], rows)
    print(f"\n{case}: {len(prepared.job.rows):,} distinct prompts for {prepared.n_requests:,} requests")
    for row in rows:
        print(f"{row['contestant']:32}{row['prompts_per_s']:>10} prompts/s{row['median_s']:>10} s of scoring "
              f"({row['q1_s']}-{row['q3_s']}), {row['whole_s']} s whole, {row['peak_mib']:,} MiB, "
              f"x{row['evaluator_times']}")  # fmt: skip


def _row(prepared: Prepared, name: str, result: Result, results: Mapping[str, Result]) -> dict[str, object]:
    seconds = [one.score_s for one in result.turns]
    q1, median, q3 = np.quantile(seconds, [0.25, 0.5, 0.75]).round(3).tolist()
    whole = np.quantile([one.whole_s for one in result.turns], [0.25, 0.5, 0.75]).round(2).tolist()
    return {
        "contestant": name,
        "requests": prepared.n_requests,
        "all_prompts": len(prepared.job.rows),
        "items": result.items,
        "unit": "prompts",
        "runs": len(seconds),
        "median_s": median,
        "q1_s": q1,
        "q3_s": q3,
        "min_s": round(min(seconds), 3),
        "max_s": round(max(seconds), 3),
        "prompts_per_s": round(result.rate, 2),
        "whole_s": whole[1],
        "whole_q1_s": whole[0],
        "whole_q3_s": whole[2],
        "peak_mib": round(max(one.peak_mib for one in result.turns)),
        "evaluator_times": round(results[OURS].rate / result.rate, 3) if OURS in results else None,
    }


def targets(prepared: Prepared, dtype: str, results: Mapping[str, Result]) -> list[Target]:
    """Return the targets for which the results have both contestants."""
    ours = results.get(OURS)
    found = []
    if ours and (plain := results.get("plain vLLM")) and prepared.name in AT_LEAST:
        what = f"{prepared.name}, {dtype}, times plain vLLM"
        found.append(Target(what=what, value=ours.rate / plain.rate, at_least=AT_LEAST[prepared.name]))
    if ours and (toolkit := results.get("StaICC toolkit")) and prepared.name == "all StaICC parts and methods":
        requests_per_prompt = prepared.n_requests / len(prepared.job.rows)
        what = f"{prepared.name}, {dtype}, times the toolkit, which scores every request"
        value = ours.rate / toolkit.rate * requests_per_prompt
        found.append(Target(what=what, value=value, at_least=TOOLKIT_AT_LEAST if dtype == "bfloat16" else 4.0))
    return found


if __name__ == "__main__":
    main()
