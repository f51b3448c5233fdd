"""What a metric is: a function of per-request statistics that add up.

Because they add up, the same expression gives the value over all requests, over those of one query left out, and over
any other group: a value and its uncertainty can never follow two formulas.
"""

import functools
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import polars as pl

IntervalForm = Literal["score", "symmetric"]
"""Shape of the 95% interval (uncertainty.py): Wilson's score interval, or value -+ t x standard error."""

Limits = tuple[float, float]
"""The lowest and the highest value that a metric can have; infinite where there is none."""


def unit_interval(_n_labels: int) -> Limits:
    return 0.0, 1.0


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric; its functions take the number of labels.

    `statistics` names columns over the per-request columns of requests.py; metrics that share a name share the sum.
    `value` reads the sums of these columns and must not change when all of them are doubled.
    """

    statistics: Callable[[int], dict[str, pl.Expr]]
    value: Callable[[int], pl.Expr]
    interval: IntervalForm
    limits: Callable[[int], Limits] = unit_interval


def sum_in_order(terms: Iterable[pl.Expr]) -> pl.Expr:
    """Add the terms of a row from the first to the last.

    Polars' own `sum_horizontal` lets threads add in any order, so that its last digit changes from call to call.
    """
    return functools.reduce(operator.add, terms)


N_REQUESTS = {"n": pl.lit(1.0)}
"""The statistic that counts requests."""
