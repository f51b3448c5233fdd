"""Compute the masses of Poisson binomial distributions: correct answers when chances differ between examples.

SciPy has this distribution as well (stats.poisson_binom). Its masses are right, but its upper tails are 1 minus a sum,
and with many different chances it is slower (benchmarks/columnar/max_random.py has the times).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from evaluator.random_baselines.binomial import FloatArray, IntArray, binomial_log_pmf

SMALLEST = 1e-300
"""Masses below this have lost digits; their logs are computed from a tilted distribution."""


@dataclass(frozen=True, kw_only=True)
class Chances:
    """Distinct chances, ascending, and the number of examples with each."""

    chance: FloatArray
    count: IntArray

    @property
    def n(self) -> int:
        return int(self.count.sum())


@dataclass(frozen=True, kw_only=True)
class PoissonBinomials:
    """Poisson binomial distributions, one a row; same methods as Binomials."""

    chances: Sequence[Chances]

    @cached_property
    def n(self) -> IntArray:
        return np.array([chances.n for chances in self.chances], dtype=np.int64)

    @property
    def mean_chance(self) -> FloatArray:
        return np.array([row.count @ row.chance / row.n for row in self.chances], dtype=np.float64)

    def pmf(self, rows: slice) -> FloatArray:
        """Return masses [rows, max(n) + 1]; 0 beyond the n of a row, inaccurate below SMALLEST."""
        return _padded(map(poisson_binomial_pmf, self.chances[rows]), fill=0.0)

    def log_pmf(self, rows: slice) -> FloatArray:
        """Return log masses [rows, max(n) + 1] in nats, however small; -inf beyond the n of a row."""
        return _padded(map(poisson_binomial_log_pmf, self.chances[rows]), fill=-np.inf)


def poisson_binomial_pmf(chances: Chances) -> FloatArray:
    """Return the masses of the number of successes, [n + 1]."""
    return _convolved_pmf(chances.count, np.log(chances.chance), np.log1p(-chances.chance))


def poisson_binomial_log_pmf(chances: Chances) -> FloatArray:
    """Return the log masses of the number of successes in nats, [n + 1], also where the masses would underflow.

    Multiplying the odds of every example by exp(theta) multiplies the mass at k by exp(theta k) and a constant
    (exponential tilting). With theta such that the mean is k, masses up to about forty standard deviations away are
    representable; a few such steps cover 0 to n.
    """
    count, n = chances.count, chances.n
    log_miss = np.log1p(-chances.chance)
    log_odds = np.log(chances.chance) - log_miss
    log_pmf = np.full(n + 1, -np.inf)
    mean = float(count @ chances.chance)
    while len(missing := np.flatnonzero(np.isneginf(log_pmf))):
        theta = _tilt(log_odds, count, mean)
        tilted_miss = -np.logaddexp(0, log_odds + theta)
        tilted = _convolved_pmf(count, tilted_miss + log_odds + theta, tilted_miss)
        # Undo the tilt where the tilted masses have all their digits.
        accurate = missing[tilted[missing] > SMALLEST]
        log_pmf[accurate] = np.log(tilted[accurate]) - theta * accurate + count @ (log_miss - tilted_miss)
        # Go on at the first count whose mass is still missing.
        still_missing = np.flatnonzero(np.isneginf(log_pmf))
        mean = min(max(float(still_missing[0]), 0.5), n - 0.5) if len(still_missing) else mean
    return log_pmf


def _tilt(log_odds: FloatArray, count: IntArray, mean: float) -> float:
    """Find the theta at which the tilted chances add up to `mean`, by bisection."""
    # At these ends all tilted chances are 0 or 1 in floating point.
    low, high = -800 - float(log_odds.max()), 800 - float(log_odds.min())
    for _ in range(60):
        theta = (low + high) / 2
        if count @ np.exp(-np.logaddexp(0, -log_odds - theta)) < mean:
            low = theta
        else:
            high = theta
    return theta


def _convolved_pmf(count: IntArray, log_chance: FloatArray, log_miss: FloatArray) -> FloatArray:
    """Convolve one binomial for each distinct chance, pair by pair; no subtraction, so that no digits are lost."""
    parts: list[FloatArray] = []
    for size in np.unique(count):  # one call for all binomials of a size: there may be as many as examples
        same_size = count == size
        parts += list(np.exp(binomial_log_pmf(count[same_size], log_chance[same_size], log_miss[same_size])))
    while len(parts) > 1:
        odd = parts[len(parts) // 2 * 2 :]
        parts = [*map(_convolve, parts[::2], parts[1::2]), *odd]
    return parts[0]


def _convolve(one: FloatArray, other: FloatArray) -> FloatArray:
    """Convolve directly, because rounding errors of an FFT would exceed the tails; zeros at both ends are left out."""
    result: FloatArray = np.zeros(len(one) + len(other) - 1)
    (first, a), (second, b) = _without_zeros(one), _without_zeros(other)
    result[first + second : first + second + len(a) + len(b) - 1] = np.convolve(a, b)
    return result


def _without_zeros(masses: FloatArray) -> tuple[int, FloatArray]:
    """Return the number of leading zeros, and the masses without zeros at either end; short arrays are unchanged."""
    if len(masses) < 500:
        return 0, masses
    nonzero = np.flatnonzero(masses)
    return int(nonzero[0]), masses[nonzero[0] : nonzero[-1] + 1]


def _padded(rows: Iterable[FloatArray], *, fill: float) -> FloatArray:
    masses = list(rows)
    padded = np.full((len(masses), max(map(len, masses))), fill)
    for row, values in zip(padded, masses, strict=True):
        row[: len(values)] = values
    return padded
