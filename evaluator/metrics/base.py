"""Define a metric as a function of per-request statistics that add up, and compute its value and standard error.

Because they add up, the same expression gives the value over all requests, over all but those of one query, and over
any other group, so a value and its standard error always follow the same formula.
"""

import functools
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import polars as pl

from evaluator.metrics.calibration_interval import Bins, bins_of
from evaluator.metrics.intervals import jackknife

IntervalForm = Literal["score", "symmetric", "log", "bins", "distance"]
"""Shape of the 95% interval: Wilson's score interval, value -+ t x standard error, or the latter for the logarithm of
the value (intervals.py). Where the value on finitely many requests is biased: that of a sum of gaps in bins
(calibration_interval.py), or of a distance from one of the metric's limits (reduced_bias.py)."""

Limits = tuple[float, float]
"""The lowest and the highest possible value of a metric; infinite where it is unbounded."""

N_REQUESTS = {"n": pl.lit(1.0)}
"""Statistic that counts requests."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric; each of its functions takes the number of labels.

    `statistics` gives expressions over the columns of per_request.per_request_columns, by name; metrics that use the
    same name share the sum. `value` is an expression over the sums and must not change when all sums are doubled.
    """

    statistics: Callable[[int], dict[str, pl.Expr]]
    value: Callable[[int], pl.Expr]
    interval: IntervalForm
    limits: Callable[[int], Limits] = lambda _n_labels: (0.0, 1.0)


def mean_metric(
    name: str, of: pl.Expr | None = None, interval: IntervalForm = "score", limits: Limits = (0.0, 1.0)
) -> Metric:
    """Return the metric that is the mean over requests of an expression; of the column `name` without one."""
    return Metric(
        statistics=lambda _n_labels: N_REQUESTS | {name: pl.col(name) if of is None else of},
        value=lambda _n_labels: pl.col(name) / pl.col("n"),
        interval=interval,
        limits=lambda _n_labels: limits,
    )


def sum_in_order(terms: Iterable[pl.Expr]) -> pl.Expr:
    """Add the terms of each row from the first to the last.

    `polars.sum_horizontal` adds in an order that can change from call to call, and with it the last digit.
    """
    return functools.reduce(operator.add, terms)


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
    over: str = "queries"  # the sampled factors that the interval covers; the template is fixed unless it is named


def statistic_sums(requests: pl.DataFrame, n_labels: int, metrics: Mapping[str, Metric], by: list[str]) -> pl.DataFrame:
    """Sum the statistics of the metrics over the requests of each group; return them with the columns `by`."""
    statistics = {
        name: statistic.cast(pl.Float64)
        for metric in metrics.values()
        for name, statistic in metric.statistics(n_labels).items()
    }
    # Constants have one value a request only as columns; all other statistics are summed without such a column.
    constants = {name: statistic for name, statistic in statistics.items() if not statistic.meta.root_names()}
    sums = {name: (pl.col(name) if name in constants else statistic).sum() for name, statistic in statistics.items()}
    return requests.with_columns(**constants).group_by(by, maintain_order=True).agg(**sums)


def metric_values(requests: pl.DataFrame, n_labels: int, metrics: Mapping[str, Metric]) -> dict[str, Measured]:
    """Return each metric by name, with its standard error and bias by a jackknife that leaves out each query in turn.

    Args:
        requests: query_id and the columns that the metrics' statistics read, such as those of
            per_request.per_request_columns.
    """
    per_query = statistic_sums(requests, n_labels, metrics, ["query_id"])
    totals = per_query.drop("query_id").sum()
    measured = {}
    for name, metric in metrics.items():
        value = metric.value(n_labels)
        # The sums without each query in turn, and the metric's value for each of these.
        left_out = [pl.lit(totals[column]) - pl.col(column) for column in sorted({*value.meta.root_names()})]
        without_one = per_query.select(left_out).select(value).to_series().to_numpy()
        over_all = totals.select(value).item()
        bins = bins_of(requests) if metric.interval == "bins" else None
        spread = jackknife(over_all, without_one)
        measured[name] = Measured(
            over_all,
            spread.standard_error,
            per_query.height - 1,
            metric.interval,
            *metric.limits(n_labels),
            bias=spread.bias,
            bins=bins,
        )
    return measured
