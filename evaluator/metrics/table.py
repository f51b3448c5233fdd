"""Build the metrics table of a run from its predictions: a row for each dataset, method, metric and definition."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import polars as pl

from evaluator.errors import MetricError
from evaluator.metrics.diagnostic import Diagnostic
from evaluator.metrics.guessing import GUESSES, guesses, mean_guesses, tries_by_dataset, with_baselines
from evaluator.metrics.intervals import mean_of_intervals, with_intervals
from evaluator.metrics.per_request import (
    DEFINITIONS,
    GROUP,
    measured_groups,
    prediction_groups,
)
from evaluator.metrics.registry import METRICS
from evaluator.metrics.values import Measured, metric_values
from evaluator.schemas import MEAN_OVER_DATASETS, METRICS_KEY, PREDICTIONS
from evaluator.schemas import METRICS as METRICS_SCHEMA

MEASURED = {name: pl.Float64() for name in ("value", "standard_error", "degrees_of_freedom", "lowest", "highest")}


def metrics_table(
    classified: pl.LazyFrame | pl.DataFrame,
    predictions: pl.LazyFrame | pl.DataFrame | None = None,
    diagnostics: Iterable[Diagnostic] = (),
) -> pl.DataFrame:
    """Measure every metric of every dataset and method, and the plain mean over datasets, with 95% intervals.

    Rows of accuracy also have the baselines of guessing (guessing.py).

    Args:
        classified: schema PREDICTIONS, of classification parts. Predictions of definition "paper" are measured under
            "paper", those of "released" under "released" and "published"; a definition without predictions has no rows.
        predictions: schema PREDICTIONS, of all parts that diagnostics measure.
        diagnostics: what to measure of them; not under "published".

    Returns:
        schema METRICS, sorted by METRICS_KEY. A dataset that is absent is left out of the mean, never counted as 0;
        n_queries of the mean says how many queries it is over.

    Raises:
        MetricError: no predictions at all, rows that the definition does not accept, or rows without prompt_id.
    """
    frame = classified.lazy().select(PREDICTIONS.names()).collect()
    rows = [*_classification_rows(frame)]
    if predictions is not None:
        rows += _diagnostic_rows(predictions.lazy().select(PREDICTIONS.names()).collect(), list(diagnostics))
    if not rows:
        present = frame["definition"].unique().sort().to_list()
        raise MetricError(
            f"There is nothing to measure: predictions are needed under 'paper' or 'released', got {present}."
        )
    datasets = with_intervals(pl.DataFrame(rows, infer_schema_length=None, schema_overrides={**MEASURED, **GUESSES}))
    parts = [with_baselines(part) for part in (datasets, _mean_over_datasets(datasets))]
    table = pl.concat([part.select(METRICS_SCHEMA.names()).cast(METRICS_SCHEMA) for part in parts])
    return table.sort(METRICS_KEY)


def _classification_rows(frame: pl.DataFrame) -> Iterator[dict[str, object]]:
    tries = tries_by_dataset(frame)
    for definition in DEFINITIONS:
        for group in measured_groups(frame, definition):
            tries_of_group = tries[group.key["suite"], group.key["part"], group.key["dataset"]]
            measured = metric_values(group.requests, group.n_labels, METRICS)
            yield from _rows(group.key, group.requests["query_id"], measured, guesses(group, tries_of_group))


def _diagnostic_rows(frame: pl.DataFrame, diagnostics: Sequence[Diagnostic]) -> Iterator[dict[str, object]]:
    for definition in ("paper", "released"):
        diagnosed = frame.filter(pl.col("part").is_in([diagnostic.part for diagnostic in diagnostics]))
        for group in prediction_groups(diagnosed, definition):
            for diagnostic in diagnostics:
                if diagnostic.part == group.key["part"]:
                    yield from _rows(group.key, group.rows["query_id"], diagnostic.measure(group), None)


def _rows(
    key: Mapping[str, str], queries: pl.Series, measured: Mapping[str, Measured], guessed: Mapping[str, object] | None
) -> Iterator[dict[str, object]]:
    """Yield a row for each metric, before its interval; `queries`: the query of each request."""
    sizes = {"n_queries": queries.n_unique(), "n_requests": len(queries)}
    for name, values in measured.items():
        baseline = guessed if guessed and name == "accuracy" else dict.fromkeys(GUESSES)
        yield {**key, **sizes, "metric": name, **values._asdict(), **baseline}


def _mean_over_datasets(datasets: pl.DataFrame) -> pl.DataFrame:
    key_of_mean = [column for column in [*GROUP, "metric", "definition"] if column != "dataset"]
    return (
        datasets.sort("dataset")
        .group_by(key_of_mean)
        .agg(
            **mean_of_intervals(),
            **mean_guesses(),
            n_queries=pl.col("n_queries").sum(),
            n_requests=pl.col("n_requests").sum(),
        )
        .with_columns(dataset=pl.lit(MEAN_OVER_DATASETS))
    )
