"""Test a mean by betting: the evidence may be looked at after every value, and the level holds whenever one stops."""

import numpy as np
from numpy.typing import ArrayLike

from evaluator.arrays import Floats

FRACTIONS = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8])
"""Bets, as shares of the largest that cannot lose more than the capital."""

FIRST_START = 64
"""Values before the second start; further ones are after twice as many each."""


def e_process(values: ArrayLike, mean: float) -> Floats:
    """Return the capital after each value of a bettor who wins where values are above `mean` on average.

    Where the mean of each value, given those before it, is at most `mean`, the capital is a non-negative
    supermartingale that starts at 1: the probability that it ever reaches 1/alpha is at most alpha (Ville's
    inequality). So a capital of 1/alpha rejects at any stopping time. A part of the capital waits and is bet later, so
    that a change after a long time without one is found as well: the s-th start (from 1) has the share 1 / (s (s + 1)).

    Args:
        values: [n], each between 0 and 1, in the order in which they came.
        mean: between 0 and 1, both excluded.

    Source: Waudby-Smith & Ramdas 2024, "Estimating means of bounded random variables by betting", Journal of the Royal
    Statistical Society B 86: the capital process and diversified betting, a mean over fixed bets.
    """
    observed = np.asarray(values, dtype=np.float64)
    # A bet of FRACTIONS / mean leaves at least 1 - FRACTIONS of the capital, at a value of 0.
    growth = np.log1p(FRACTIONS[:, None] / mean * (observed - mean))
    logs = np.concatenate([np.zeros((len(FRACTIONS), 1)), np.cumsum(growth, axis=1)], axis=1)  # [bets, n + 1]
    total, waiting, start, number = np.zeros(len(observed)), 1.0, 0, 1
    with np.errstate(over="ignore"):
        while start < len(observed):
            share = 1 / (number * (number + 1))
            total[:start] += share  # still waits
            total[start:] += share * np.exp(logs[:, start + 1 :] - logs[:, start, None]).mean(axis=0)
            waiting, start, number = waiting - share, FIRST_START * 2 ** (number - 1), number + 1
    return np.asarray(total + waiting)


def two_sided_e_process(signs: ArrayLike) -> Floats:
    """Return the capital after each sign of a bettor on either direction of paired changes, half of it on each.

    Where both sides of a pair are exchangeable, a change is as likely up as down, and the capital is a martingale.

    Args:
        signs: [n], -1 or 1; pairs without a change are left out, as in McNemar's test.

    Source: as for e_process; the hedged capital process, for a mean of 1/2.
    """
    ups = (np.asarray(signs, dtype=np.float64) + 1) / 2
    return (e_process(ups, 0.5) + e_process(1 - ups, 0.5)) / 2
