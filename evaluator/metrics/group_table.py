"""Measure each noise rate, template and demonstration set of the parts that vary them."""

from collections.abc import Iterable, Iterator

import polars as pl

from evaluator.metrics.diagnostic import Diagnostic
from evaluator.metrics.per_request import (
    DIAGNOSED_COLUMNS,
    PredictionGroup,
    by_group,
    prediction_groups,
    repeated_requests,
)
from evaluator.metrics.registry import METRICS
from evaluator.metrics.values import statistic_sums
from evaluator.schemas import GROUP_METRICS, GROUP_METRICS_KEY, MEAN_OVER_DATASETS

VARIED = ("noise_rate", "template", "demonstration_set")
"""Columns that a part can vary."""


def group_metrics_table(predictions: pl.LazyFrame | pl.DataFrame, diagnostics: Iterable[Diagnostic]) -> pl.DataFrame:
    """Measure METRICS at each noise rate, with each template, after each demonstration set, and average over datasets.

    Args:
        predictions: schema PREDICTIONS; parts that vary nothing give no rows.
        diagnostics: name the column that each part varies.

    Returns:
        schema GROUP_METRICS, sorted by GROUP_METRICS_KEY; definitions "paper" and "released". Values by noise rate
        and by template are over all demonstration sets. Demonstration sets are drawn for each query: sets with the same
        number contain different demonstrations.

    Raises:
        MetricError: rows that the definition does not accept.
    """
    varied = {diagnostic.part: diagnostic.varies for diagnostic in diagnostics if diagnostic.varies}
    tables = [
        table
        for rows in by_group(predictions, DIAGNOSED_COLUMNS, varied)
        for definition in ("paper", "released")
        for group in prediction_groups(rows, definition)
        for table in _group_rows(group, varied[group.key["part"]])
    ]
    datasets = pl.concat([pl.DataFrame(schema=GROUP_METRICS), *tables])
    key_of_mean = [column for column in GROUP_METRICS_KEY if column != "dataset"]
    means = (
        datasets.sort("dataset")
        .group_by(key_of_mean)
        .agg(pl.col("value").mean(), pl.col("n_requests").sum(), dataset=pl.lit(MEAN_OVER_DATASETS))
    )
    return pl.concat([datasets, means.select(GROUP_METRICS.names())]).sort(GROUP_METRICS_KEY)


def _group_rows(group: PredictionGroup, varied: str) -> Iterator[pl.DataFrame]:
    """Yield a frame of GROUP_METRICS for each metric."""
    sums = statistic_sums(repeated_requests(group), group.n_labels, METRICS, [varied])
    shared = {column: pl.lit(value) for column, value in group.key.items()}
    groups = {column: pl.lit(None) for column in VARIED} | {varied: pl.col(varied)}
    for name, metric in METRICS.items():
        measured = {"metric": pl.lit(name), "value": metric.value(group.n_labels), "n_requests": pl.col("n")}
        yield sums.select(**shared, **groups, **measured).select(GROUP_METRICS.names()).cast(GROUP_METRICS)
