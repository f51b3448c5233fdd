"""Debias distances from a limit, such as a divergence from 0, and give them intervals that hold near the limit too.

At the limit such a value has no slope: it is a quadratic form of sampling errors, which move it in one direction only.
There neither the value is unbiased nor its standard error tells how far it may be from the true one.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import chndtrinc, stdtrit

from evaluator.arrays import Floats

UPPER = 0.975
FAR = 12.0
"""A value of so many biases is far from its limit: the jackknife's interval is enough there."""


class Distances(NamedTuple):
    """Estimates of true distances, [n]; `standard_error` is that of `debiased`, also where the true distance is 0."""

    debiased: Floats  # unbiased up to 1/Q^2, and therefore below 0 in about half of the samples where the distance is 0
    standard_error: Floats
    ci_low: Floats  # 0 or more
    ci_high: Floats


def freedom(errors: Floats, scale: Floats) -> float:
    """Return how many equal squares the quadratic form sum of mean error^2 / scale is worth (Satterthwaite 1946).

    Args:
        errors: [queries, labels], whose means are 0 where there is no distance.
        scale: [labels]
    """
    if len(errors) < 2:
        return 1.0
    # A label of no probability and no queries is in neither.
    present = scale > 0
    scaled = np.cov(errors[:, present], rowvar=False) / np.sqrt(np.outer(scale[present], scale[present]))
    scaled = np.atleast_2d(scaled)
    squares = float((scaled**2).sum())
    return float(np.trace(scaled)) ** 2 / squares if squares > 0 else 1.0


def distances(value: Floats, bias: Floats, standard_error: Floats, degrees: Floats, bias_freedom: Floats) -> Distances:
    """Return debiased distances and 95% intervals, the union of two:

    - debiased -+ t x jackknife standard error, right far from the limit, and alone above FAR;
    - that of a noncentral chi-squared variable of `bias_freedom` degrees of freedom, scaled so that it exceeds its
      noncentrality by `bias` on average, right at the limit, where the value is such a quadratic form.

    Args:
        value: distances on n requests, 0 or more.
        bias, standard_error, degrees: of the value, by a jackknife over queries.
        bias_freedom: as from `freedom`.
    """
    debiased = value - bias
    scale = np.maximum(bias, 1e-300) / bias_freedom
    reach = stdtrit(np.maximum(degrees, 1), UPPER) * standard_error
    is_near = (bias > 0) & (value < FAR * bias)
    quantile = np.where(is_near, value / scale, 1.0)
    low, high = (scale * chndtrinc(quantile, bias_freedom, p) for p in (UPPER, 1 - UPPER))
    return Distances(
        debiased,
        np.maximum(standard_error, np.where(bias > 0, scale * np.sqrt(2 * bias_freedom), 0.0)),
        np.maximum(np.where(is_near, np.minimum(low, debiased - reach), debiased - reach), 0.0),
        np.maximum(np.where(is_near, np.maximum(high, debiased + reach), debiased + reach), 0.0),
    )
