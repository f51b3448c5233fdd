"""Test a mean by betting: the evidence may be inspected after every value, and the level holds at any stopping time.

A bettor bets on the next value against a hypothesis about the mean, in such a way that the expected capital does not
grow under the hypothesis. A large capital is therefore evidence against the hypothesis.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from evaluator.arrays import Floats

FRACTIONS = np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8])
"""Bets, as shares of the largest bet that cannot lose more than the capital."""

FIRST_START = 64
"""Number of values before the second start; the number doubles for every further start."""


def e_process(values: ArrayLike, mean: float) -> Floats:
    """Return the capital after each value of a bettor on a mean above `mean`, [n].

    Where the mean of each value, given the earlier values, is at most `mean`, the capital is a non-negative
    supermartingale that starts at 1: the probability that it ever reaches 1/alpha is at most alpha (Ville's
    inequality). A capital of 1/alpha therefore rejects this hypothesis at any stopping time. Parts of the capital are
    bet from later starts only, so that a late change is detected as well: the s-th start (from 1) has the share
    1 / (s (s + 1)).

    Args:
        values: [n], each between 0 and 1, in their order in time.
        mean: between 0 and 1, both excluded.

    Source: Waudby-Smith & Ramdas 2024, "Estimating means of bounded random variables by betting", Journal of the Royal
    Statistical Society B 86: the capital process and diversified betting, a mean over fixed bets.
    """
    observed = np.asarray(values, dtype=np.float64)
    # A bet of FRACTIONS / mean leaves at least 1 - FRACTIONS of the capital, at a value of 0.
    growth = np.log1p(FRACTIONS[:, None] / mean * (observed - mean))
    logs = np.concatenate([np.zeros((len(FRACTIONS), 1)), np.cumsum(growth, axis=1)], axis=1)  # [bets, n + 1]
    capital, start, number = np.ones(len(observed)), 0, 1
    with np.errstate(over="ignore"):
        while start < len(observed):
            # Of the share that is bet from here on, the gain; the rest is kept.
            gain = np.exp(logs[:, start + 1 :] - logs[:, start, None]).mean(axis=0) - 1
            capital[start:] += gain / (number * (number + 1))
            start, number = FIRST_START * 2 ** (number - 1), number + 1
    return capital


def two_sided_e_process(signs: ArrayLike) -> Floats:
    """Return the capital after each sign of a bettor who puts half of the capital on each direction of change, [n].

    Where both sides of a pair are exchangeable, ups and downs are equally likely, and the capital is a martingale.

    Args:
        signs: [n], -1 or 1; pairs without a change are left out, as in McNemar's test.

    Source: Waudby-Smith & Ramdas 2024 (as e_process), the hedged capital process, for a mean of 1/2.
    """
    ups = (np.asarray(signs, dtype=np.float64) + 1) / 2
    return (e_process(ups, 0.5) + e_process(1 - ups, 0.5)) / 2


ALTERNATIVES = ((2.8, 0.7), (1.4, 0.1), (5.6, 0.1), (11.2, 0.1))
"""Effects to bet on, in standard errors of the mean over all planned values, with their shares of the capital. An exact
test of all values at 5% detects the first effect with a probability of 80%."""

PRIOR_VALUES = 4
"""Number of prior values in the running averages that determine the size of bets; their mean is 1/2."""

STEPS = 40  # steps of bisection


class Planned(NamedTuple):
    """The plan of a test whose values arrive in random order, until the evidence suffices or all have arrived."""

    n: int  # number of values without an early stop
    is_sample: bool = False  # whether the tested mean is the population's; else the mean of the n values
    known: ArrayLike | None = None  # [..., n], partners: a value in [0, 1] for each of the n, known in advance

    def opposite(self) -> "Planned":
        """Return the plan of the test of 1 - value in place of each value."""
        return self._replace(known=None if self.known is None else 1 - np.asarray(self.known, dtype=np.float64))


def log_capital(values: ArrayLike, mean: float | Floats, planned: Planned) -> Floats:
    """Return the log capital after each value of a bettor on a mean above `mean`, [..., t].

    Where the mean is at most `mean`, the capital is a non-negative supermartingale that starts at 1: the probability
    that it ever reaches 1/alpha is at most alpha. If n values are drawn without replacement, the mean of the remaining
    values follows from `mean` and the values so far, and the capital is infinite once their sum would be negative.

    The bettor gains from the part of a value that its known partner does not predict: the value minus its mean over the
    remaining values, minus the regression slope so far times the same difference for the partner. The bets are the best
    for Gaussian values with an effect of ALTERNATIVES; without replacement they grow as 1 / (remaining share).

    Args:
        values: [..., t], each between 0 and 1, in the order in which they were drawn; t is up to n.
        mean: between 0 and 1; [...], or a number for all series.
        planned: the plan of the test.

    Source: Waudby-Smith & Ramdas 2024, "Estimating means of bounded random variables by betting", Journal of the Royal
    Statistical Society B 86, section 5 (without replacement) and a mean over fixed bets. The partner is a predictable
    control variate, which does not change the mean of the gain.
    """
    x = np.asarray(values, dtype=np.float64)
    seen, level = np.arange(x.shape[-1]), np.asarray(mean, dtype=np.float64)[..., None]
    left = planned.n - seen
    # Expected value of each draw if the mean is `mean`, given the earlier draws.
    null = level if planned.is_sample else (planned.n * level - _before(x)) / left
    surprise, reach = x - np.clip(null, None, 1), np.ones_like(x)  # reach: largest possible loss of a unit bet
    average = _average(x)
    variance = _average(x * x) - average**2
    if planned.known is not None:
        # Regress values on their partners, from the earlier draws only, and bet on the residual.
        every = np.asarray(planned.known, dtype=np.float64)
        y = every[..., : x.shape[-1]]
        rest = (every.sum(axis=-1, keepdims=True) - _before(y)) / left
        spread = _average(y * y) - _average(y) ** 2
        slope = np.clip((_average(x * y, 0.375) - average * _average(y)) / spread, 0, 1)
        surprise, reach = surprise - slope * (y - rest), 1 + slope * (1 - rest)
        variance = variance - slope * (2 * (_average(x * y, 0.375) - average * _average(y)) - slope * spread)
    # Bet for an effect of one standard error; a bet risks at most 90% of the capital.
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
    """Return for each value the sum of the values before it."""
    return np.asarray(np.cumsum(x, axis=-1) - x)


def _average(x: Floats, prior: float = 0.5) -> Floats:
    """Return for each value the mean of the values before it and of PRIOR_VALUES further values `prior`."""
    return np.asarray((_before(x) + PRIOR_VALUES * prior) / (np.arange(x.shape[-1]) + PRIOR_VALUES))


def log_capitals(values: ArrayLike, mean: float | Floats, planned: Planned) -> tuple[Floats, Floats]:
    """Return the running maximum of log_capital of a bettor on a mean above `mean`, and of one on a mean below it."""
    x = np.asarray(values, dtype=np.float64)
    up, down = log_capital(x, mean, planned), log_capital(1 - x, 1 - np.asarray(mean), planned.opposite())
    return np.maximum.accumulate(up, axis=-1), np.maximum.accumulate(down, axis=-1)


def mean_interval(values: ArrayLike, planned: Planned, alpha: float) -> tuple[float, float]:
    """Return the interval of the means that no bettor has refuted.

    It contains the mean with probability 1 - alpha or more at any stopping time.

    Args:
        values: [t], as for log_capital.
        planned: the plan of the test.
        alpha: error probability, half of it for each end.
    """
    needed, x = np.log(2 / alpha), np.asarray(values, dtype=np.float64)

    def end(x: Floats, planned: Planned) -> float:
        low, high = 0.0, 1.0  # bisection: the capital of the bettor falls as the mean rises
        for _ in range(STEPS):
            middle = (low + high) / 2
            is_refuted = (log_capital(x, middle, planned) >= needed).any()
            low, high = (middle, high) if is_refuted else (low, middle)
        return low

    return end(x, planned), 1 - end(1 - x, planned.opposite())
