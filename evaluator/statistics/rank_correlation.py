"""Spearman's rank correlation of two series of numbers, with a p-value that holds for few points too."""

import math
from functools import cache
from itertools import permutations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr
from scipy.stats import rankdata

MOST_PERMUTED = 8
"""Points up to which the p-value is exact: 8! orders are 40,320."""

DECIMALS = 12
"""Values that are the same to so many decimals tie: a mean may differ in its last digit by the order of its terms."""

LEAST_POINTS = 3
"""Of two points the rank correlation is 1 or -1 whatever they are."""


class RankCorrelation(NamedTuple):
    rho: float | None
    p_value: float | None
    reason: str | None  # why both are None


def rank_correlation(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> RankCorrelation:
    """Spearman's rho of x and y, ties at their average rank, and its two-sided p-value.

    Up to MOST_PERMUTED points the p-value is that of the permutation test over all orders, twice its smaller tail; the
    t approximation, used for more points, would call three points in order a certainty, p = 0, which chance alone
    gives one time in three.

    Args:
        x, y: shape [n], no NaN.

    Source: Spearman 1904; Cho & Inoue 2025 (StaICC), figure 8.
    """
    n = len(x)
    if n < LEAST_POINTS:
        return RankCorrelation(None, None, f"{n} point{'s' * (n != 1)}, and it takes {LEAST_POINTS}")
    own, other = _centred_ranks(x), _centred_ranks(y)
    scale = math.sqrt(int(own @ own) * int(other @ other))
    if scale == 0:
        return RankCorrelation(None, None, "one of them is the same everywhere")
    product = int(own @ other)
    rho = product / scale
    return RankCorrelation(rho, _exact_p(own, other, product) if n <= MOST_PERMUTED else _approximate_p(rho, n), None)


def _centred_ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    # Twice the rank is a whole number, so that equal products compare equal.
    doubled: npt.NDArray[np.int64] = (2 * rankdata(np.round(values, DECIMALS))).astype(np.int64)
    return doubled - (len(values) + 1)


def _exact_p(own: npt.NDArray[np.int64], other: npt.NDArray[np.int64], product: int) -> float:
    products = other[_orders(len(own))] @ own
    return min(1.0, 2 * min(float(np.mean(products >= product)), float(np.mean(products <= product))))


@cache
def _orders(n: int) -> npt.NDArray[np.int8]:
    return np.array(list(permutations(range(n))), dtype=np.int8)


def _approximate_p(rho: float, n: int) -> float:
    if abs(rho) >= 1:
        return 0.0
    return float(2 * stdtr(n - 2, -abs(rho) * math.sqrt((n - 2) / (1 - rho**2))))
