"""Stop a run as soon as its answers decide a question: score queries in random blocks, with a test after each block.

The tests are valid at any stopping time (statistics.betting).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import polars as pl

from evaluator.arrays import Floats
from evaluator.compare.results import is_renamed
from evaluator.config import RunConfig, UntilOptions
from evaluator.errors import ConfigError
from evaluator.methods import REFERENCE_METHOD
from evaluator.methods.base import scored_definitions
from evaluator.record import PromptsRecord, require_every_query
from evaluator.run.folders import RunFolder
from evaluator.schemas import UNTIL, UNTIL_KEY
from evaluator.statistics.betting import Planned, log_capitals, mean_interval
from evaluator.statistics.paired import LEVEL
from evaluator.suites import SUITES, chosen_methods, families_of
from evaluator.suites.base import ScoredRun

N_BLOCKS, MIN_BLOCK = 20, 16
"""Largest number of blocks of a dataset's queries, and the smallest size of a block (the last may be smaller)."""

SEED = 42  # seed of the query order; fixed, so that no order can be chosen by its decision

STOPPED = "number of queries, where a sequential test stopped"
"""Text for METRICS.ci_given: intervals over queries take this number as fixed."""

_QUERY = ["dataset", "query_id"]


def rounds_of(config: RunConfig) -> Callable[[ScoredRun], Iterator[pl.DataFrame]] | None:
    """Return the function that yields prompt_ids round by round (suites.base.Family.rounds); None: one round of all."""
    return until_rounds if config.until.goal else families_of(config.suites)[0].rounds


def check_until(config: RunConfig) -> None:
    """Raise ConfigError for a run that cannot stop early, StoreError for a base that is not measured on all queries."""
    until = config.until
    if until.goal is None:
        return
    suite = SUITES[config.suites[0]]
    kinds = {part.kind for name, part in suite.parts.items() if name in (config.parts or suite.parts)}
    if len(config.suites) > 1 or suite.family.rounds or "classification" not in kinds:
        asked = ", ".join((*config.suites, *(config.parts or ())))
        raise ConfigError(f"--until takes one suite of classification, such as classify; got {asked}.")
    if config.methods != (REFERENCE_METHOD,):
        raise ConfigError(
            f"--until decides by {REFERENCE_METHOD}, whose answers do not change as others arrive: leave out --methods."
        )
    if until.against:
        require_every_query(RunFolder(until.against).measured, str(until.against))


def check_base(config: RunConfig, prompts: PromptsRecord) -> None:
    """Raise ConfigError if the base run answered other queries than this run will."""
    base = config.until.against
    if base is None:
        return
    known = RunFolder(base).measured.prompts.query_fingerprints
    for name, digest in prompts.query_fingerprints.items():
        if known.get(name) != digest:
            raise ConfigError(f"{base} did not answer the queries of {name}. Give both the same --data and --queries.")


def until_rounds(run: ScoredRun) -> Iterator[pl.DataFrame]:
    """Yield the prompt_ids of each block of queries, without datasets that earlier blocks have decided.

    Requests without a query belong to the first block. Raises ConfigError if no query has a gold label.
    """
    plan, requests = _plan(run), run.store.requests()
    values, decided = _values(run, plan), set[str]()
    if not values:
        raise ConfigError("--until decides by true labels, and no query has one. Name their column.")
    for block in range(plan.select(pl.max("block")).item() + 1):
        due = plan.filter(pl.col("block") == block, ~pl.col("dataset").is_in(decided))
        if due.is_empty():
            return
        rows = requests.join(due.lazy(), on=_QUERY, how="semi")
        others = requests.filter(pl.col("query_id").is_null())
        yield pl.concat([rows, others] if block == 0 else [rows]).select("prompt_id").unique().collect()
        for dataset in due["dataset"].unique(maintain_order=True):
            if dataset in values and _decision(run, values[dataset], block) != "undecided":
                decided.add(dataset)


def _plan(run: ScoredRun) -> pl.DataFrame:
    """Return dataset, query_id, gold and block of every query, in random order within each dataset."""
    queries = run.store.requests().filter(pl.col("query_id").is_not_null(), part=_part(run))
    known = queries.group_by(_QUERY).agg(pl.col("gold").first()).sort(_QUERY).collect()
    ordered = []
    for (dataset,), rows in known.group_by("dataset", maintain_order=True):
        # The order depends on the dataset's name and size alone, not on the run's other datasets.
        n, number = rows.height, int.from_bytes(str(dataset).encode()[:8], "big")
        block = pl.Series("block", np.arange(n) // block_size(n))
        ordered.append(rows[np.random.default_rng([SEED, number]).permutation(n)].with_columns(block))
    return pl.concat(ordered)


def block_size(n_queries: int) -> int:
    """Return the number of queries in a block."""
    return max(MIN_BLOCK, math.ceil(n_queries / N_BLOCKS))


def _part(run: ScoredRun) -> str:
    """Return the part whose answers decide: the first classification part with requests."""
    present = run.store.requests().select(pl.col("part").unique()).collect()["part"].to_list()
    return next(name for name, part in run.scored.parts.items() if part.kind == "classification" and name in present)


def _values(run: ScoredRun, plan: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return dataset -> its queries with a gold label, in the order of the plan, with their results.

    `correct` and `probability` (the largest label probability) are means over the requests of a query, null if it is
    not scored. With a base run, `known` is `correct` in the base run. Raises ConfigError if the base has no answer to a
    query, or another gold label.
    """
    from evaluator.run.folder import scan_table  # here, because it imports the measure stage, which imports this

    part, until = _part(run), run.config.until
    definition = scored_definitions(run.config.definitions)[0]
    method = chosen_methods(run.config)[REFERENCE_METHOD]
    answers = method.label_probs(run.scored.answering(part), definition)
    answers = answers.with_columns(pred=pl.col("label_probs").list.arg_max())
    known = plan.filter(pl.col("gold").is_not_null())
    is_right = (pl.col("pred") == pl.col("gold")).mean()
    means = {"correct": is_right, "probability": pl.col("label_probs").list.max().mean()}
    rows = known.join(answers.group_by(_QUERY).agg(**means).collect(), on=_QUERY, how="left", maintain_order="left")
    if until.against:
        record, suite = RunFolder(until.against).measured, run.config.suites[0]
        key = {"suite": suite, "part": part, "method": REFERENCE_METHOD, "definition": definition}
        predictions = scan_table(until.against, "predictions", record.tables)
        present = predictions.select(pl.col("part").unique()).collect()["part"].to_list()
        if part not in present:  # the base asked in another form: take its first part, the unchanged question
            key["part"] = next((name for name in record.prompts.parts.get(suite, {}) if name in present), part)
        base = predictions.filter(**key).group_by(_QUERY).agg(known=is_right, gold_b=pl.col("gold").first()).collect()
        rows = rows.join(base, on=_QUERY, how="left", maintain_order="left")
        if missing := rows["known"].null_count():
            raise ConfigError(
                f"{until.against} has no answers to {missing:,} of {rows.height:,} queries under "
                f"{', '.join(key.values())}. Run it with the same suite, --data and --queries."
            )
        if not rows.select(is_renamed("dataset").all()).item():
            raise ConfigError(f"{until.against} has other true labels of the same queries. Run it on the same --data.")
    return {str(name): of for (name,), of in rows.group_by("dataset", maintain_order=True)}


def _evidence(until: UntilOptions, rows: pl.DataFrame) -> Mapping[str, float]:
    """Return decision -> largest log capital so far of the bet whose gain supports the decision.

    Args:
        until: goal and options of the run.
        rows: queries of the dataset in their order; `correct` is null if a query is not scored.
    """
    values, planned = _test(until, rows)
    if until.target is not None:
        certified, refuted = _largest_capitals(values, until.target, planned)
        return {"certified": certified, "refuted": refuted}
    base, margin = rows["known"].to_numpy().mean(), until.margin or 0.0
    better, not_better = _largest_capitals(values, base + margin, planned)
    not_worse, worse = _largest_capitals(values, base - margin, planned)
    decisions = {"better": better, "worse": worse}
    return decisions | ({"equivalent": min(not_worse, not_better)} if margin else {})


def _largest_capitals(values: Floats, mean: float, planned: Planned) -> tuple[float, float]:
    """Return the largest log capital so far of a bettor on a mean above `mean`, and of one on a mean below it."""
    above, below = log_capitals(values, mean, planned)
    return float(above.max(initial=0)), float(below.max(initial=0))


def _test(until: UntilOptions, rows: pl.DataFrame) -> tuple[Floats, Planned]:
    """Return the values whose mean is tested (0 to 1, in the order of queries), and the plan of the test."""
    seen = rows.filter(pl.col("correct").is_not_null())
    if until.threshold is not None:
        used = seen.filter(pl.col("probability") >= until.threshold)
        return used["correct"].to_numpy(), Planned(rows.height, is_sample=True)
    return seen["correct"].to_numpy(), Planned(rows.height, known=rows["known"].to_numpy())


def _decision(run: ScoredRun, rows: pl.DataFrame, block: int) -> str:
    """Return the decision on a dataset after a block.

    After the last block a run is compared with its base as any other run is, so that this returns "undecided".

    All decisions of a run are right together with probability 1 - LEVEL: each of the two directions of a dataset is
    tested at LEVEL / (2 n_datasets), which is a capital of at least 2 n_datasets / LEVEL.
    """
    if run.config.until.target is None and block == rows["block"].max():
        return "undecided"
    n_datasets = run.store.requests().select(pl.col("dataset").n_unique()).collect().item()
    evidence = _evidence(run.config.until, _scored_up_to(rows, block))
    decision = max(evidence, key=lambda name: evidence[name])
    return decision if evidence[decision] >= math.log(2 * n_datasets / LEVEL) else "undecided"


def _scored_up_to(rows: pl.DataFrame, block: int) -> pl.DataFrame:
    """Return the queries with `correct` null in the blocks after `block`."""
    return rows.with_columns(pl.when(pl.col("block") <= block).then("correct"))


def until_table(run: ScoredRun) -> pl.DataFrame:
    """Return the decision on each dataset, and after how many queries it was made: schemas.UNTIL."""
    until, found = run.config.until, list[dict[str, Any]]()
    values = _values(run, _plan(run))
    for dataset, rows in values.items():
        for block in range(rows.select(pl.max("block")).item() + 1):
            decision = _decision(run, rows, block)
            if decision != "undecided":
                break
        scored = _scored_up_to(rows, block)
        n_scored = scored.height - scored["correct"].null_count()
        counts = {"n_scored": n_scored, "n_queries": rows.height, "saving": 1 - n_scored / rows.height}
        found.append({"dataset": dataset, "decision": decision} | counts | _estimate(until, scored, len(values)))
    return pl.DataFrame(found, schema=UNTIL).sort(UNTIL_KEY)


def _estimate(until: UntilOptions, rows: pl.DataFrame, n_datasets: int) -> dict[str, Any]:
    """Return value, low, high and p_new of schemas.UNTIL: the estimate, its interval, and a p-value for new queries."""
    values, planned = _test(until, rows)
    low, high = mean_interval(values, planned, LEVEL / n_datasets)
    if planned.known is None:
        return {"value": float(values.mean()) if len(values) else None, "low": low, "high": high, "p_new": None}
    known = rows.filter(pl.col("correct").is_not_null())["known"].to_numpy()
    # Differences mapped from [-1, 1] to [0, 1], where 0.5 is no difference; the p-value is two-sided.
    pairs = (1 + values - known) / 2
    capitals = _largest_capitals(pairs, 0.5, Planned(rows.height, is_sample=True))
    p_new = min(1.0, 2 * math.exp(-max(capitals)))
    equal = rows["known"].to_numpy().mean()
    return {"value": float((values - known).mean()), "low": low - equal, "high": high - equal, "p_new": p_new}


def decisions(table: pl.DataFrame, until: UntilOptions) -> Iterator[str]:
    """Yield a sentence for each dataset: the decision, when it was made, and the share of queries saved."""
    base = until.against.name if until.against else ""
    words = {
        "better": f"better than {base}",
        "worse": f"worse than {base}",
        "equivalent": f"equivalent to {base} within {until.margin}",
        "certified": f"accuracy of answers from {until.threshold} on is at least {until.target}",
        "refuted": f"accuracy of answers from {until.threshold} on is below {until.target}",
        "undecided": "undecided",
    }
    if until.margin:
        words |= {name: f"{words[name]} by more than {until.margin}" for name in ("better", "worse")}
    for row in table.iter_rows(named=True):
        when = f"{row['n_scored']:,} of {row['n_queries']:,} queries ({row['saving']:.0%} saved)"
        ends = f"{row['low']:z.3f} to {row['high']:z.3f} with 95% at any stopping time"
        about = f"difference of accuracy on all {row['n_queries']:,} queries" if base else "accuracy on new answers"
        new = f"; for new queries p = {row['p_new']:.2g}" if row["p_new"] is not None else ""
        yield f"{row['dataset']}: {words[row['decision']]}, after {when}: {about} {ends}{new}."
