"""The one path from per-request columns to the values of all metrics and their standard errors."""

from typing import NamedTuple

import polars as pl

from evaluator.metrics.registry import METRICS
from evaluator.metrics.uncertainty import jackknife_standard_errors


class MetricValues(NamedTuple):
    """Every metric of METRICS by name."""

    values: dict[str, float]
    standard_errors: dict[str, float | None]  # None where there is only one query
    n_queries: int
    n_requests: int


def metric_values(requests: pl.DataFrame, n_labels: int) -> MetricValues:
    """Values and standard errors of every metric, from the columns of requests.per_request_columns."""
    statistics = {
        name: statistic.cast(pl.Float64)
        for metric in METRICS.values()
        for name, statistic in metric.statistics(n_labels).items()
    }
    per_query = (
        requests.select("query_id", **statistics)
        .group_by("query_id", maintain_order=True)
        .agg(pl.all().sum())
        .drop("query_id")
    )
    values = {name: metric.value(n_labels) for name, metric in METRICS.items()}
    return MetricValues(
        values=per_query.sum().select(**values).row(0, named=True),
        standard_errors=jackknife_standard_errors(per_query, values),
        n_queries=per_query.height,
        n_requests=requests.height,
    )
