"""Correlations of two series of numbers: p-values, and Spearman's rank correlation, exact also for few points.

Least squares with intervals: independent points or clusters of points, and the prediction of a further point.
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
"""Number of points up to which the p-value is exact: 8! orders are 40,320."""

DECIMALS = 12
"""Values that are equal to this many decimals tie: the last digit of a mean depends on the order of its terms."""

CONFIDENCE = 0.95
"""Level of all intervals."""

MIN_POINTS = 3
"""Fewest points with a correlation: with two points it is always 1 or -1."""


def correlation_p(r: npt.ArrayLike, n: npt.ArrayLike) -> Floats:
    """Return the two-sided probability of a correlation at least this far from 0 between n independent normal pairs.

    Broadcasts; NaN for NaN and for fewer than three pairs. For rank correlations it is an approximation, as in SciPy.

    Args:
        r: Pearson's correlation, or Spearman's.
        n: numbers of pairs.
    """
    correlation, size = np.asarray(r, dtype=np.float64), np.asarray(n, dtype=np.float64)
    half_df = np.where(size > 2, (size - 2) / 2, np.nan)
    # With t = r sqrt(df / (1 - r^2)), 1 - r^2 = df / (df + t^2), and Student's tails are a beta function of that.
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
    """Spearman's rho and its p-value, or why there is none."""

    rho: float | None
    p_value: float | None
    reason: str | None  # why both are None


def rank_correlation(x: Floats, y: Floats) -> RankCorrelation:
    """Compute Spearman's rho of x and y, ties at their average rank, and its two-sided p-value.

    Up to MAX_PERMUTED points the p-value is that of the permutation test over all orders, twice its smaller tail. With
    more points it is the t approximation, which would give p = 0 for three points in ascending or descending order,
    two of the six possible orders.

    Args:
        x, y: shape [n], no NaN.

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
    products = y_ranks[_orders(n)] @ x_ranks  # one for each order of y
    p_value = min(1.0, 2 * min(float(np.mean(products >= product)), float(np.mean(products <= product))))
    return RankCorrelation(rho, p_value, None)


def _centred_ranks(values: Floats) -> Ints:
    # Twice the rank is an integer, so that equal products compare equal; equal values share the mean of their ranks.
    _, places, counts = np.unique(np.round(values, DECIMALS), return_inverse=True, return_counts=True)
    doubled: Ints = (2 * np.cumsum(counts) - counts + 1)[places]
    return doubled - (len(values) + 1)


@cache
def _orders(n: int) -> npt.NDArray[np.int8]:
    return np.array(list(permutations(range(n))), dtype=np.int8)


class Estimated(NamedTuple):
    """A number with its 95% interval and the two-sided p-value of a true value of 0."""

    value: float
    low: float
    high: float
    p_value: float


class Fit(NamedTuple):
    """A least-squares fit with k coefficients."""

    coefficients: Floats  # [k]
    covariance: Floats  # [k, k], of the coefficients
    degrees_of_freedom: int  # of Student's t
    unscaled: Floats  # [k, k], the inverse of X'X
    residual_variance: float
    n: int

    def estimate(self, place: int = 1) -> Estimated:
        """Return a coefficient; by default the slope of a line."""
        value, error = float(self.coefficients[place]), float(np.sqrt(self.covariance[place, place]))
        reach = float(stdtrit(self.degrees_of_freedom, (1 + CONFIDENCE) / 2)) * error
        p_value = 2 * float(stdtr(self.degrees_of_freedom, -abs(value) / error)) if error else float(value == 0)
        return Estimated(value, value - reach, value + reach, p_value)

    def predict(self, row: Floats) -> tuple[float, float, float]:
        """Return the fitted value of a further point, and the 95% interval in which that point is expected.

        Args:
            row: [k], the point's row of X. The point is independent of the others, with the same variance.
        """
        value = float(row @ self.coefficients)
        freedom = self.n - len(self.coefficients)
        error = np.sqrt(self.residual_variance * (1 + row @ self.unscaled @ row))
        reach = float(stdtrit(freedom, (1 + CONFIDENCE) / 2) * error)
        return value, value - reach, value + reach


def least_squares(x: Sequence[Floats], y: Floats, clusters: Sequence[str] | None = None) -> Fit:
    """Fit y to a constant and the columns of x; all points have equal weight.

    Args:
        x: columns, each of shape [n].
        y: shape [n].
        clusters: of each point. Points of different clusters are independent of each other; without clusters, all
            points are, with the same variance.

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
