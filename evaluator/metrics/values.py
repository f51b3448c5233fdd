"""Compute metrics and their standard errors from per-request columns."""

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from evaluator.metrics.base import IntervalForm, Metric
from evaluator.metrics.intervals import jackknife_standard_errors


class Measured(NamedTuple):
    """Value of a metric for one group of requests, with all that its interval depends on."""

    value: float
    standard_error: float | None  # None with a single query
    degrees_of_freedom: float  # of the standard error
    interval: IntervalForm
    lowest: float  # limits of the metric
    highest: float


def statistic_sums(requests: pl.DataFrame, n_labels: int, metrics: Mapping[str, Metric], by: list[str]) -> pl.DataFrame:
    """Sum the statistics of the metrics over the requests of each group; return them with the columns `by`."""
    statistics = {
        name: statistic.cast(pl.Float64)
        for metric in metrics.values()
        for name, statistic in metric.statistics(n_labels).items()
    }
    return requests.select(*by, **statistics).group_by(by, maintain_order=True).agg(pl.all().sum())


def metric_values(requests: pl.DataFrame, n_labels: int, metrics: Mapping[str, Metric]) -> dict[str, Measured]:
    """Return each metric by name, with its standard error by a jackknife over queries.

    Args:
        requests: query_id and the columns that the metrics' statistics read, such as those of
            per_request.per_request_columns.
    """
    per_query = statistic_sums(requests, n_labels, metrics, ["query_id"]).drop("query_id")
    values = {name: metric.value(n_labels) for name, metric in metrics.items()}
    standard_errors = jackknife_standard_errors(per_query, values)
    over_all = per_query.sum().select(**values).row(0, named=True)
    return {
        name: Measured(
            over_all[name], standard_errors[name], per_query.height - 1, metric.interval, *metric.limits(n_labels)
        )
        for name, metric in metrics.items()
    }
