"""Measure the diagnostics of a run, and each noise rate, template and demonstration set of the parts that vary them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import polars as pl

from evaluator.metrics.diagnostic import Diagnostic
from evaluator.metrics.per_request import DIAGNOSED_COLUMNS, PredictionGroup, by_group, prediction_groups
from evaluator.metrics.registry import METRICS
from evaluator.metrics.values import Measured, statistic_sums
from evaluator.schemas import GROUP_METRICS, GROUP_METRICS_KEY, MEAN_OVER_DATASETS

VARIED = ("noise_rate", "template", "demonstration_set")
"""Columns that a part can vary."""


class DiagnosedGroup(NamedTuple):
    """What a diagnostic measures of one part and dataset by one method, under one definition."""

    key: Mapping[str, str]  # per_request.GROUP and "definition"
    sizes: Mapping[str, int]  # n_queries and n_requests
    measured: Mapping[str, Measured]


class Diagnosed(NamedTuple):
    """What diagnostics measure of a run."""

    groups: list[DiagnosedGroup]
    group_metrics: pl.DataFrame
    """GROUP_METRICS, sorted by GROUP_METRICS_KEY: METRICS at each noise rate, with each template, after each
    demonstration set, and their means over datasets. Values by noise rate and by template are over all demonstration
    sets, which are drawn for each query: sets with the same number contain different demonstrations."""


def diagnosed(predictions: pl.LazyFrame | pl.DataFrame, diagnostics: Iterable[Diagnostic]) -> Diagnosed:
    """Measure diagnostics under "paper" and "released", never under "published".

    Args:
        predictions: schema PREDICTIONS; a scan of files is read once, group by group.
        diagnostics: each names the part that it measures, and the column that the part varies.

    Raises MetricError for rows that a definition does not accept.
    """
    measures = list(diagnostics)
    varied = {diagnostic.part: diagnostic.varies for diagnostic in measures if diagnostic.varies}
    groups: list[DiagnosedGroup] = []
    tables = [GROUP_METRICS.to_frame()]
    for rows in by_group(predictions, DIAGNOSED_COLUMNS, {diagnostic.part for diagnostic in measures}):
        part, sizes = rows.key["part"], rows.sizes
        for definition in ("paper", "released"):
            for group in prediction_groups(rows, definition):
                measured = (diagnostic.measure(group) for diagnostic in measures if diagnostic.part == part)
                groups += [DiagnosedGroup(group.key, sizes, values) for values in measured]
                tables += _group_rows(group, varied[part]) if part in varied else ()
    datasets = pl.concat(tables)
    key_of_mean = [column for column in GROUP_METRICS_KEY if column != "dataset"]
    means = (
        datasets.sort("dataset")
        .group_by(key_of_mean)
        .agg(pl.col("value").mean(), pl.col("n_requests").sum(), dataset=pl.lit(MEAN_OVER_DATASETS))
    )
    return Diagnosed(groups, pl.concat([datasets, means.select(GROUP_METRICS.names())]).sort(GROUP_METRICS_KEY))


def _group_rows(group: PredictionGroup, varied: str) -> Iterator[pl.DataFrame]:
    """Yield a frame of GROUP_METRICS for each metric."""
    sums = statistic_sums(group.repeated_requests, group.n_labels, METRICS, [varied])
    shared = {column: pl.lit(value) for column, value in group.key.items()}
    groups = {column: pl.lit(None) for column in VARIED} | {varied: pl.col(varied)}
    for name, metric in METRICS.items():
        measured = {"metric": pl.lit(name), "value": metric.value(group.n_labels), "n_requests": pl.col("n")}
        yield sums.select(**shared, **groups, **measured).select(GROUP_METRICS.names()).cast(GROUP_METRICS)
