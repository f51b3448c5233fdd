"""Least squares with intervals: independent points or clusters of points, and the prediction of a further point."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr, stdtrit

from evaluator.arrays import Floats

CONFIDENCE = 0.95
"""Level of all intervals."""


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
    correction = g / (g - 1) * (n - 1) / (n - k)
    covariance = correction * unscaled @ (scores.T @ scores) @ unscaled
    return Fit(coefficients, covariance, g - 1, unscaled, variance, n)
