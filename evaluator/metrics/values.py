"""Compute metrics and their standard errors from per-request columns."""

from collections.abc import Mapping
from typing import NamedTuple

import polars as pl

from evaluator.metrics.base import IntervalForm, Metric
from evaluator.metrics.calibration_interval import Bins, bins_of
from evaluator.metrics.intervals import jackknife


class Measured(NamedTuple):
    """Value of a metric for one group of requests, with everything that its interval depends on."""

    value: float
    standard_error: float | None  # None with a single query
    degrees_of_freedom: float  # of the standard error
    interval: IntervalForm
    lowest: float  # limits of the metric
    highest: float
    bias: float | None = None  # of the value, by the jackknife
    bias_freedom: float | None = None  # of "distance" intervals: degrees of freedom of the distance where it is truly 0
    bins: Bins | None = None  # of "bins" intervals
    over: str = "queries"  # what the interval counts as drawn at random; else also the template is taken as it is


def statistic_sums(requests: pl.DataFrame, n_labels: int, metrics: Mapping[str, Metric], by: list[str]) -> pl.DataFrame:
    """Sum the statistics of the metrics over the requests of each group; return them with the columns `by`."""
    statistics = {
        name: statistic.cast(pl.Float64)
        for metric in metrics.values()
        for name, statistic in metric.statistics(n_labels).items()
    }
    # Constants have one value a request only as columns; of all else, no column of all requests is kept.
    constants = {name: statistic for name, statistic in statistics.items() if not statistic.meta.root_names()}
    sums = {name: (pl.col(name) if name in constants else statistic).sum() for name, statistic in statistics.items()}
    return requests.with_columns(**constants).group_by(by, maintain_order=True).agg(**sums)


def metric_values(requests: pl.DataFrame, n_labels: int, metrics: Mapping[str, Metric]) -> dict[str, Measured]:
    """Return each metric by name, with its standard error by a jackknife over queries.

    Args:
        requests: query_id and the columns that the metrics' statistics read, such as those of
            per_request.per_request_columns.
    """
    per_query = statistic_sums(requests, n_labels, metrics, ["query_id"]).drop("query_id")
    values = {name: metric.value(n_labels) for name, metric in metrics.items()}
    jackknifed = jackknife(per_query, values)
    return {
        name: Measured(
            jackknifed[name].value,
            jackknifed[name].standard_error,
            jackknifed[name].n_queries - 1,
            metric.interval,
            *metric.limits(n_labels),
            bias=jackknifed[name].bias,
            bins=bins_of(requests) if metric.interval == "bins" else None,
        )
        for name, metric in metrics.items()
    }
