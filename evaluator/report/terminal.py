"""Summarise the metrics of a run in a few lines for a terminal."""

from collections.abc import Iterator

import polars as pl

from evaluator.methods import REFERENCE_METHOD
from evaluator.metrics.guessing import VERDICTS
from evaluator.random_baselines.significance import TAIL_TO_TELL
from evaluator.record import ScoresRecord
from evaluator.report.facts import arithmetic_rate
from evaluator.report.table import plural
from evaluator.schemas import DEFINITIONS, MEAN_OVER_DATASETS


def verdict_lines(metrics: pl.DataFrame) -> list[str]:
    """Return for each suite and part a line about vanilla, and a table of the other methods.

    The line has the mean accuracy, the baselines, and the number of datasets with each verdict, which is by the tests
    against uniform guessing and the majority label, after correction for all tests of the run; the table has the mean
    accuracy of each method and its difference to vanilla. Without vanilla, each method has such a line.
    Takes schemas.METRICS, of which the first measured definition of schemas.DEFINITIONS is shown; without verdicts
    there are no lines.
    """
    judged = first_definition(metrics.filter(pl.col("metric") == "accuracy", pl.col("verdict").is_not_null()))
    parts = judged.group_by("suite", "part", maintain_order=True)
    return [line for key, rows in parts for line in _part_lines(key, rows)]


def throughput_line(scores: ScoresRecord) -> str | None:
    """Describe the speed at which a run's own prompts were scored; None if earlier runs had scored all."""
    rates = scores.throughput
    if not rates.elapsed_s or not scores.prompt_tokens:
        return None
    if scores.cached_tokens is None:
        return f"Scored at {rates.requests_per_s:,.1f} prompts/s"
    replicas = rates.replica_computed_tokens_per_s
    together = f", {rate}" if (rate := arithmetic_rate(rates)) else ""
    if len(replicas) > 1:
        together += f"; {len(replicas)} replicas, the slowest at {min(replicas):,.0f} tokens computed/s"
    return (
        f"Scored at {rates.requests_per_s:,.1f} prompts/s, {rates.computed_tokens_per_s:,.0f} tokens computed/s, "
        f"{scores.cached_tokens / scores.prompt_tokens:.0%} of tokens cached{together}"
    )


def first_definition(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows under the first of schemas.DEFINITIONS that was measured."""
    measured = next((name for name in DEFINITIONS if name in set(rows["definition"])), None)
    return rows.filter(definition=measured) if measured else rows


def _part_lines(key: tuple[object, ...], rows: pl.DataFrame) -> Iterator[str]:
    methods = rows["method"].unique(maintain_order=True).to_list()
    has_vanilla = REFERENCE_METHOD in methods
    for method in [REFERENCE_METHOD] if has_vanilla else methods:
        yield _line((*key, method), rows.filter(method=method))
    if has_vanilla:
        yield from _other_methods(rows.filter(dataset=MEAN_OVER_DATASETS))


def _other_methods(means: pl.DataFrame) -> Iterator[str]:
    accuracies = dict(means.select("method", "value").iter_rows())
    vanilla = accuracies.pop(REFERENCE_METHOD, None)
    if vanilla is None or not accuracies:
        return
    width = max(len(name) for name in ("method", *accuracies))
    yield f"  {'method':{width}}  mean accuracy  minus vanilla"
    for method, value in accuracies.items():
        yield f"  {method:{width}}  {value:13.3f}  {value - vanilla:+13.3f}"


def _line(key: tuple[object, ...], rows: pl.DataFrame) -> str:
    suite, part, method = key
    datasets = rows.filter(pl.col("dataset") != MEAN_OVER_DATASETS)
    counts = ", ".join(f"{verdict} on {datasets.filter(verdict=verdict).height}" for verdict in VERDICTS)
    means = [
        f"mean accuracy {value:.3f}, chance {chance:.3f}, majority label {majority:.3f}; "
        for value, chance, majority in rows.filter(dataset=MEAN_OVER_DATASETS)
        .select("value", "chance", "majority")
        .iter_rows()
    ]
    n_tests = datasets["n_tests"].item(0)
    corrected = f"{TAIL_TO_TELL:.0%} level, Holm's correction for {plural(n_tests, 'test')}"
    return f"{suite} / {part}, {method}: {''.join(means)}{counts} of {plural(datasets.height, 'dataset')} ({corrected})"
