"""Test a mean by betting: the evidence may be looked at after every value, and the level holds whenever one stops."""

from typing import NamedTuple

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


ALTERNATIVES = ((2.8, 0.7), (1.4, 0.1), (5.6, 0.1), (11.2, 0.1))
"""Effects that are bet on, in standard errors of the mean over all planned values, with their shares of the capital.
An exact test of all values at 5% detects the first of them with a probability of 80%."""

PRIOR_VALUES = 4
"""Values that count as seen before the first, half of them 1, when bets are sized."""

STEPS = 40  # of bisection


class Planned(NamedTuple):
    """Values that arrive in random order, until the evidence suffices or all of them are seen."""

    n: int  # values if none stops
    is_sample: bool = False  # the mean is that of all values there could be, not of the n
    known: ArrayLike | None = None  # [..., n], between 0 and 1, a value that goes with each and is known beforehand

    def opposite(self) -> "Planned":
        """Return the plan for 1 minus each value."""
        return self._replace(known=None if self.known is None else 1 - np.asarray(self.known, dtype=np.float64))


def log_capital(values: ArrayLike, mean: float | Floats, planned: Planned) -> Floats:
    """Return the log capital after each value of a bettor who wins where the mean is above `mean`.

    Where the mean is at most `mean`, the capital is a non-negative supermartingale that starts at 1, so that it ever
    reaches 1/alpha with a probability of at most alpha. If n values are drawn without replacement, the mean of those
    that are left follows from `mean` and what was seen, and the capital is infinite once their sum would be negative.

    The gain is of the part of a value that its known partner does not predict: both less their means over what is
    left, the partner's times the slope so far. Bets are those of Gaussian values with the alternative
    ALTERNATIVES; without replacement they grow as 1 / (share that is left).

    Args:
        values: [..., t], each between 0 and 1, in the order in which they were drawn; t is up to n.
        mean: between 0 and 1; [...] or one for all.
        planned: of the values.

    Source: Waudby-Smith & Ramdas 2024, "Estimating means of bounded random variables by betting", Journal of the Royal
    Statistical Society B 86, section 5 (without replacement) and a mean over fixed bets; the partner is a predictable
    control variate, which leaves the gain's mean as it is.
    """
    x = np.asarray(values, dtype=np.float64)
    seen, level = np.arange(x.shape[-1]), np.asarray(mean, dtype=np.float64)[..., None]
    left = planned.n - seen
    null = level if planned.is_sample else (planned.n * level - _before(x)) / left
    surprise, reach = x - np.clip(null, None, 1), np.ones_like(x)  # reach: the most that a unit bet can lose
    average = _average(x)
    variance = _average(x * x) - average**2
    if planned.known is not None:
        every = np.asarray(planned.known, dtype=np.float64)
        y = every[..., : x.shape[-1]]
        rest = (every.sum(axis=-1, keepdims=True) - _before(y)) / left
        spread = _average(y * y) - _average(y) ** 2
        slope = np.clip((_average(x * y, 0.375) - average * _average(y)) / spread, 0, 1)
        surprise, reach = surprise - slope * (y - rest), 1 + slope * (1 - rest)
        variance = variance - slope * (2 * (_average(x * y, 0.375) - average * _average(y)) - slope * spread)
    size = np.sqrt(planned.n / np.maximum(variance, 1 / planned.n)) / (planned.n if planned.is_sample else left)
    logs = [
        np.cumsum(np.log1p(np.minimum(effect * size, 0.9 / reach) * surprise), axis=-1) + np.log(share)
        for effect, share in ALTERNATIVES
    ]
    capital = np.logaddexp.reduce(logs, axis=0)
    if planned.is_sample:
        return np.asarray(capital)
    return np.where(planned.n * level - np.cumsum(x, axis=-1) < -1e-9, np.inf, capital)


def _before(x: Floats) -> Floats:
    """Return the sum of the values before each."""
    return np.asarray(np.cumsum(x, axis=-1) - x)


def _average(x: Floats, prior: float = 0.5) -> Floats:
    """Return the mean of the values before each, PRIOR_VALUES of `prior` among them."""
    return np.asarray((_before(x) + PRIOR_VALUES * prior) / (np.arange(x.shape[-1]) + PRIOR_VALUES))


def log_capitals(values: ArrayLike, mean: float | Floats, planned: Planned) -> tuple[Floats, Floats]:
    """Return the largest log capital so far of a bettor on a higher mean, and of a bettor on a lower one."""
    x = np.asarray(values, dtype=np.float64)
    up, down = log_capital(x, mean, planned), log_capital(1 - x, 1 - np.asarray(mean), planned.opposite())
    return np.maximum.accumulate(up, axis=-1), np.maximum.accumulate(down, axis=-1)


def mean_interval(values: ArrayLike, planned: Planned, alpha: float) -> tuple[float, float]:
    """Return the means that no bettor has refuted: an interval that holds the mean with 1 - alpha, whenever one stops.

    Args:
        values: [t], as of log_capital.
        planned: of the values.
        alpha: half of it for each end.
    """
    needed, x = np.log(2 / alpha), np.asarray(values, dtype=np.float64)

    def end(x: Floats, planned: Planned) -> float:
        low, high = 0.0, 1.0  # the capital falls with the mean
        for _ in range(STEPS):
            middle = (low + high) / 2
            is_refuted = (log_capital(x, middle, planned) >= needed).any()
            low, high = (middle, high) if is_refuted else (low, middle)
        return low

    return end(x, planned), 1 - end(1 - x, planned.opposite())
