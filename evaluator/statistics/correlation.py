"""Compute correlations of two series of numbers, and least-squares fits with intervals.

The p-value of Spearman's rank correlation is exact for few points. Points of a fit are independent or clustered.
"""

import math
from collections.abc import Sequence
from functools import cache
from itertools import permutations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import betainc, ndtri, stdtr, stdtrit

from evaluator.arrays import Floats, Ints

MAX_PERMUTED = 8
"""Largest number of points with an exact p-value: 8 points have 40,320 orders."""

DECIMALS = 12
"""Values that are equal to this many decimals are ties: the last digit of a mean depends on the order of its terms."""

CONFIDENCE = 0.95
"""Confidence level of all intervals."""

MIN_POINTS = 3
"""Smallest number of points with a correlation: with two points it is always 1 or -1."""


def correlation_p(r: npt.ArrayLike, n: npt.ArrayLike) -> Floats:
    """Return the two-sided p-value of a correlation of n independent normal pairs, if the true correlation is 0.

    Broadcasts; NaN for NaN and for fewer than three pairs. For rank correlations it is an approximation, as in SciPy.

    Args:
        r: Pearson's or Spearman's correlation.
        n: numbers of pairs.
    """
    correlation, size = np.asarray(r, dtype=np.float64), np.asarray(n, dtype=np.float64)
    half_df = np.where(size > 2, (size - 2) / 2, np.nan)
    # With t = r sqrt(df / (1 - r^2)), 1 - r^2 = df / (df + t^2), and both tails of Student's t together are the
    # regularised incomplete beta function of 1 - r^2.
    return np.asarray(betainc(half_df, 0.5, np.clip((1 - correlation) * (1 + correlation), 0, 1)), dtype=np.float64)


def correlation_interval(r: float, n: int) -> tuple[float, float]:
    """Return the 95% interval of a correlation of n independent pairs, by Fisher's transformation as SciPy's pearsonr.

    For rank correlations it is an approximation. NaN for fewer than four pairs, and r itself where it is 1 or -1.
    """
    if n <= MIN_POINTS:
        return math.nan, math.nan
    if abs(r) >= 1:
        return r, r
    reach = float(ndtri((1 + CONFIDENCE) / 2)) / math.sqrt(n - 3)
    return math.tanh(math.atanh(r) - reach), math.tanh(math.atanh(r) + reach)


class RankCorrelation(NamedTuple):
    """Spearman's rho and its p-value, or the reason why they are undefined."""

    rho: float | None
    p_value: float | None
    reason: str | None  # reason why both are None


def rank_correlation(x: Floats, y: Floats) -> RankCorrelation:
    """Compute Spearman's rho of x and y, [n] without NaN, ties at their average rank, and its two-sided p-value.

    Up to MAX_PERMUTED points the p-value is twice the smaller tail of the permutation test over all orders. With more
    points it is the t approximation; for three points in ascending or descending order, two of the six possible orders,
    that would give p = 0.

    Source: Spearman 1904; Cho & Inoue 2025 (StaICC), figure 8.
    """
    n = len(x)
    if n < MIN_POINTS:
        return RankCorrelation(None, None, f"{n} point{'s' * (n != 1)}, and it takes {MIN_POINTS}")
    x_ranks, y_ranks = _centred_ranks(x), _centred_ranks(y)
    scale = math.sqrt(int(x_ranks @ x_ranks) * int(y_ranks @ y_ranks))
    if scale == 0:
        return RankCorrelation(None, None, "one of them is the same everywhere")
    product = int(x_ranks @ y_ranks)
    rho = product / scale
    if n > MAX_PERMUTED:
        return RankCorrelation(rho, float(correlation_p(rho, n)), None)
    products = y_ranks[_orders(n)] @ x_ranks  # one product for each order of y
    p_value = min(1.0, 2 * min(float(np.mean(products >= product)), float(np.mean(products <= product))))
    return RankCorrelation(rho, p_value, None)


def _centred_ranks(values: Floats) -> Ints:
    # Ties share the mean of their ranks. Twice this rank is an integer, so that equal products compare equal.
    _, places, counts = np.unique(np.round(values, DECIMALS), return_inverse=True, return_counts=True)
    doubled: Ints = (2 * np.cumsum(counts) - counts + 1)[places]
    return doubled - (len(values) + 1)


@cache
def _orders(n: int) -> npt.NDArray[np.int8]:
    return np.array(list(permutations(range(n))), dtype=np.int8)


class Estimated(NamedTuple):
    """An estimate with its 95% interval and the two-sided p-value of the hypothesis that the true value is 0."""

    value: float
    low: float
    high: float
    p_value: float


class Fit(NamedTuple):
    """A least-squares fit with k coefficients."""

    coefficients: Floats  # [k]
    covariance: Floats  # [k, k], covariance of the coefficients
    degrees_of_freedom: int  # degrees of freedom of Student's t
    unscaled: Floats  # [k, k], inverse of X'X
    residual_variance: float
    n: int  # number of points

    def estimate(self, place: int = 1) -> Estimated:
        """Return the coefficient at index `place`; by default the slope of a line."""
        value, error = float(self.coefficients[place]), float(np.sqrt(self.covariance[place, place]))
        reach = float(stdtrit(self.degrees_of_freedom, (1 + CONFIDENCE) / 2)) * error
        p_value = 2 * float(stdtr(self.degrees_of_freedom, -abs(value) / error)) if error else float(value == 0)
        return Estimated(value, value - reach, value + reach, p_value)

    def predict(self, row: Floats) -> tuple[float, float, float]:
        """Return the fitted value of a new point, and its 95% prediction interval: value, low, high.

        Args:
            row: [k], the new point's row of X. The point is independent of the others, with the same variance.
        """
        value = float(row @ self.coefficients)
        freedom = self.n - len(self.coefficients)
        error = np.sqrt(self.residual_variance * (1 + row @ self.unscaled @ row))
        reach = float(stdtrit(freedom, (1 + CONFIDENCE) / 2) * error)
        return value, value - reach, value + reach


def least_squares(x: Sequence[Floats], y: Floats, clusters: Sequence[str] | None = None) -> Fit:
    """Fit y to a constant and the columns of x by least squares; all points have equal weight.

    Args:
        x: columns, each of shape [n].
        y: shape [n].
        clusters: [n], cluster of each point. Points of different clusters are independent. Without clusters, all points
            are independent and have the same residual variance.

    With G clusters, the covariance is the sandwich of Liang & Zeger 1986 times G / (G - 1) * (n - 1) / (n - k), and t
    has G - 1 degrees of freedom, as in Stata and statsmodels (Cameron & Miller 2015, "A Practitioner's Guide to
    Cluster-Robust Inference", Journal of Human Resources 50, equations 11 and 12).
    """
    design = np.column_stack([np.ones(len(y)), *x])
    n, k = design.shape
    unscaled = np.linalg.inv(design.T @ design)
    coefficients: Floats = np.linalg.lstsq(design, y, rcond=None)[0].astype(np.float64)
    residuals = y - design @ coefficients
    variance = float(residuals @ residuals) / (n - k)
    if clusters is None:
        return Fit(coefficients, variance * unscaled, n - k, unscaled, variance, n)
    names, place = np.unique(np.array(clusters), return_inverse=True)
    scores = np.zeros((len(names), k))
    np.add.at(scores, place, design * residuals[:, None])
    g = len(names)
    covariance = (g / (g - 1) * (n - 1) / (n - k)) * unscaled @ (scores.T @ scores) @ unscaled
    return Fit(coefficients, covariance, g - 1, unscaled, variance, n)
