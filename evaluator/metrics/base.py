"""What a metric is: a function of per-request statistics that add up.

Because they add up, the same expression gives the value over all requests, over those of one query left out, and over
any other group: a value and its uncertainty can never follow two formulas.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import polars as pl

IntervalForm = Literal["score", "symmetric"]
"""Shape of the 95% interval (uncertainty.py): Wilson's score interval, or value -+ t x standard error."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric in [0, 1]; both functions take the number of labels.

    `statistics` names columns over the per-request columns of requests.py; metrics that share a name share the sum.
    `value` reads the sums of these columns and must not change when all of them are doubled.
    """

    statistics: Callable[[int], dict[str, pl.Expr]]
    value: Callable[[int], pl.Expr]
    interval: IntervalForm


N_REQUESTS = {"n": pl.lit(1.0)}
"""The statistic that counts requests."""
