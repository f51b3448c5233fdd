"""Bounds for a proportion from a count, exact at every sample size."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from evaluator.arrays import Floats


class Limits(NamedTuple):
    """The two ends of an interval, of the shape of the arguments."""

    low: Floats
    high: Floats


def lower_confidence_bound(successes: npt.ArrayLike, n: npt.ArrayLike, error: npt.ArrayLike) -> Floats:
    """Return the exact one-sided lower bound of a proportion; broadcasts.

    The true proportion is below it with probability `error` at most. It is 0 without successes.

    Args:
        successes: whole numbers from 0 to n.
        n: numbers of independent trials.
        error: between 0 and 1.

    Source: Clopper & Pearson 1934, "The use of confidence or fiducial limits illustrated in the case of the binomial".
    """
    count, size, level = (np.asarray(values, dtype=np.float64) for values in (successes, n, error))
    return np.where(count > 0, betaincinv(np.maximum(count, 1), size - count + 1, level), 0.0)


def jeffreys_interval(successes: npt.ArrayLike, n: npt.ArrayLike, level: float = 0.95) -> Limits:
    """Return the equal-tailed Bayesian credible interval of a proportion under Jeffreys' prior; broadcasts.

    The prior is Beta(1/2, 1/2), so the posterior is Beta(successes + 1/2, n - successes + 1/2). The lower limit is 0
    without successes and the upper one 1 without failures. It needs no normal approximation, so small n are served.

    Args:
        successes: from 0 to n; fractions are allowed, for queries that were answered correctly in part.
        n: numbers of independent trials, 1 or more.
        level: posterior probability inside the interval.

    Source: Brown, Cai & DasGupta 2001, "Interval estimation for a binomial proportion", Statistical Science 16.
    """
    count, size = np.asarray(successes, dtype=np.float64), np.asarray(n, dtype=np.float64)
    shapes = count + 0.5, size - count + 0.5
    low, high = (betaincinv(*shapes, tail) for tail in ((1 - level) / 2, (1 + level) / 2))
    return Limits(np.where(count > 0, low, 0.0), np.where(count < size, high, 1.0))
