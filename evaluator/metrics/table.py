"""The metrics table of a run: predictions enter, one row a dataset, method, metric and definition leaves."""

import polars as pl

from evaluator.errors import MetricError
from evaluator.metrics.baselines import GUESSES, guesses, mean_guesses, tries_by_dataset, with_baselines
from evaluator.metrics.registry import METRICS
from evaluator.metrics.requests import DEFINITIONS, GROUP, MeasuredGroup, measured_groups
from evaluator.metrics.uncertainty import mean_of_intervals, with_intervals
from evaluator.metrics.values import metric_values
from evaluator.schemas import MEAN_OVER_DATASETS, METRICS_KEY, PREDICTIONS
from evaluator.schemas import METRICS as METRICS_SCHEMA


def metrics_table(predictions: pl.LazyFrame | pl.DataFrame) -> pl.DataFrame:
    """Every metric of every dataset and method, and the plain mean over datasets, with 95% intervals.

    Beside each accuracy stands what guessing would have got (metrics/baselines.py).

    Args:
        predictions: schema PREDICTIONS. Rows of definition "paper" give the metrics of that definition, those of
            "released" give "released" and "published"; a definition without predictions has no rows.

    Returns:
        schema METRICS, sorted by METRICS_KEY. A dataset that is absent is left out of the mean, never counted as 0;
        n_queries of the mean says how many queries it is over.

    Raises:
        MetricError: no predictions at all, rows that the definition cannot take, or that do not name their prompt.
    """
    frame = predictions.lazy().select(PREDICTIONS.names()).collect()
    tries = tries_by_dataset(frame)
    rows = [
        row
        for definition in DEFINITIONS
        for group in measured_groups(frame, definition)
        for row in _metric_rows(group, tries[group.key["suite"], group.key["part"], group.key["dataset"]])
    ]
    if not rows:
        found = frame["definition"].unique().sort().to_list()
        raise MetricError(f"There is nothing to measure: of definitions 'paper' and 'released', found {found}.")
    datasets = with_intervals(pl.DataFrame(rows, infer_schema_length=None, schema_overrides=GUESSES))
    parts = [with_baselines(part) for part in (datasets, _mean_over_datasets(datasets))]
    table = pl.concat([part.select(METRICS_SCHEMA.names()).cast(METRICS_SCHEMA) for part in parts])
    return table.sort(METRICS_KEY)


def _metric_rows(group: MeasuredGroup, tries: int) -> list[dict[str, object]]:
    measured = metric_values(group.requests, group.n_labels)
    beside: dict[str, dict[str, object]] = {"accuracy": guesses(group, tries)}
    shared: dict[str, object] = {**group.key, "n_queries": measured.n_queries, "n_requests": measured.n_requests}
    return [
        shared
        | {
            "metric": name,
            "value": measured.values[name],
            "standard_error": measured.standard_errors[name],
            "interval": metric.interval,
        }
        | beside.get(name, dict.fromkeys(GUESSES))
        for name, metric in METRICS.items()
    ]


def _mean_over_datasets(datasets: pl.DataFrame) -> pl.DataFrame:
    apart = [column for column in [*GROUP, "metric", "definition"] if column != "dataset"]
    return (
        datasets.sort("dataset")
        .group_by(apart)
        .agg(
            **mean_of_intervals(),
            **mean_guesses(),
            n_queries=pl.col("n_queries").sum(),
            n_requests=pl.col("n_requests").sum(),
        )
        .with_columns(dataset=pl.lit(MEAN_OVER_DATASETS))
    )
