"""Define a metric as a function of per-request statistics that add up.

Because they add up, the same expression gives the value over all requests, over all but those of one query, and over
any other group, so a value and its standard error always follow the same formula.
"""

import functools
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import polars as pl

IntervalForm = Literal["score", "symmetric", "log", "bins", "distance"]
"""Shape of the 95% interval: Wilson's score interval, value -+ t x standard error, or the latter for the logarithm of
the value (intervals.py). Where the value on finitely many requests is biased: that of a sum of gaps in bins
(calibration_interval.py), or of a distance from one of the metric's limits (distance_interval.py)."""

Limits = tuple[float, float]
"""The lowest and the highest possible value of a metric; infinite where it is unbounded."""


def unit_interval(_n_labels: int) -> Limits:
    """Return the limits of a metric that lies between 0 and 1."""
    return 0.0, 1.0


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric; each of its functions takes the number of labels.

    `statistics` gives expressions over the columns of per_request.per_request_columns, by name; metrics that use the
    same name share the sum. `value` is an expression over the sums and must not change when all sums are doubled.
    """

    statistics: Callable[[int], dict[str, pl.Expr]]
    value: Callable[[int], pl.Expr]
    interval: IntervalForm
    limits: Callable[[int], Limits] = unit_interval


def sum_in_order(terms: Iterable[pl.Expr]) -> pl.Expr:
    """Add the terms of each row from the first to the last.

    `polars.sum_horizontal` adds in an order that can change from call to call, and with it the last digit.
    """
    return functools.reduce(operator.add, terms)


N_REQUESTS = {"n": pl.lit(1.0)}
"""Statistic that counts requests."""
