"""Compute the masses of distributions of the number of right answers: binomial, and Poisson binomial.

The Poisson binomial distribution is that of examples with different chances. SciPy has it as well
(stats.poisson_binom): its masses are right, but its upper tails are 1 minus a sum, and with many different chances it
is slower (benchmarks/columnar/max_random.py has the times).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from evaluator.arrays import Floats, Ints

SMALLEST = 1e-300
"""Masses below this have lost digits; their logs are computed from a tilted distribution."""


class Distributions(NamedTuple):
    """Distributions of the number of right answers, one a row, ascending in n."""

    n: Ints  # [rows], numbers of examples
    mean_chance: Floats  # [rows]
    pmf: Callable[[slice], Floats]  # masses [rows, max(n) + 1], 0 beyond the n of a row; inaccurate below SMALLEST
    log_pmf: Callable[[slice], Floats]  # log masses in nats, however small; -inf beyond the n of a row


class Chances(NamedTuple):
    """Distinct chances, ascending, and the number of examples with each."""

    chance: Floats
    counts: Ints


def binomials(n: Ints, chance: Floats) -> Distributions:
    """Return the distributions of n [rows], ascending, examples of one chance [rows]."""

    def log_pmf(rows: slice) -> Floats:
        return binomial_log_pmf(n[rows], np.log(chance[rows]), np.log1p(-chance[rows]))

    return Distributions(n, chance, lambda rows: np.exp(log_pmf(rows)), log_pmf)


def poisson_binomials(chances: Sequence[Chances]) -> Distributions:
    """Return the distributions of examples of different chances, ascending in their number."""
    n = np.array([row.counts.sum() for row in chances], dtype=np.int64)
    return Distributions(
        n,
        np.array([row.counts @ row.chance for row in chances], dtype=np.float64) / n,
        lambda rows: _padded(map(poisson_binomial_pmf, chances[rows]), fill=0.0),
        lambda rows: _padded(map(poisson_binomial_log_pmf, chances[rows]), fill=-np.inf),
    )


def binomial_log_pmf(n: Ints, log_chance: Floats, log_miss: Floats) -> Floats:
    """Return the log of C(n, k) p^k (1 - p)^(n - k) for k = 0, 1, ..., max(n), in nats; -inf where k > n.

    No term is larger than n x max(1, |log p|), so the relative error of a mass is about n x 1e-16. Differences of log
    factorials, which grow as n log n, would lose a digit more.

    Args:
        n: [rows], numbers of trials.
        log_chance: [rows], log p.
        log_miss: [rows], log (1 - p); a separate argument, because 1 - p has few digits where p is near 1.

    Returns:
        [rows, max(n) + 1].
    """
    k = np.arange(n.max() + 1)
    n = n[:, None]
    misses = n - k
    log_mass = _log_choices(n, k, np.maximum(misses, 0)) + k * log_chance[:, None] + misses * log_miss[:, None]
    log_mass[misses < 0] = -np.inf
    return log_mass


def _log_choices(n: Ints, k: Ints, misses: Ints) -> Floats:
    """Return log C(n, k) from n log n - k log k - (n - k) log (n - k) and the rests of the three log factorials."""
    rest = _log_factorial_rest(k[-1] + 1)
    entropy = k * np.log(np.maximum(k, 1) / n) + misses * np.log(np.maximum(misses, 1) / n)
    choices: Floats = rest[n] - rest[k] - rest[misses] - entropy
    return choices


def _log_factorial_rest(size: int) -> Floats:
    """Return the rest log k! - (k log k - k) for k = 0, 1, ..., size - 1; exact from k = 16 on by Stirling's series."""
    small = [math.lgamma(k + 1) - (k * math.log(k) - k if k else 0) for k in range(min(size, 16))]
    k = np.arange(16.0, size)
    series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / k**2) / k**2) / k**2) / k**2) / k
    return np.concatenate([small, np.log(2 * np.pi * k) / 2 + series])


def poisson_binomial_pmf(chances: Chances) -> Floats:
    """Return the masses of the number of successes, [n + 1]."""
    return _convolved_pmf(chances.counts, np.log(chances.chance), np.log1p(-chances.chance))


def poisson_binomial_log_pmf(chances: Chances) -> Floats:
    """Return the log masses of the number of successes in nats, [n + 1], also where the masses would underflow.

    Multiplying the odds of every example by exp(theta) multiplies the mass at k by exp(theta k) and a constant
    (exponential tilting). With theta such that the mean is k, masses up to about forty standard deviations away are
    representable; a few such steps cover 0 to n.
    """
    count, n = chances.counts, int(chances.counts.sum())
    log_miss = np.log1p(-chances.chance)
    log_odds = np.log(chances.chance) - log_miss
    log_pmf, missing = np.empty(n + 1), np.arange(n + 1)
    mean = float(count @ chances.chance)
    while len(missing):
        theta = _tilt(log_odds, count, mean)
        tilted_miss = -np.logaddexp(0, log_odds + theta)
        tilted = _convolved_pmf(count, tilted_miss + log_odds + theta, tilted_miss)
        # Undo the tilt where the tilted masses have all their digits, and go on at the first other one.
        is_accurate = tilted[missing] > SMALLEST
        accurate, missing = missing[is_accurate], missing[~is_accurate]
        log_pmf[accurate] = np.log(tilted[accurate]) - theta * accurate + count @ (log_miss - tilted_miss)
        mean = min(max(float(missing[0]), 0.5), n - 0.5) if len(missing) else mean
    return log_pmf


def _tilt(log_odds: Floats, count: Ints, mean: float) -> float:
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


def _convolved_pmf(count: Ints, log_chance: Floats, log_miss: Floats) -> Floats:
    """Convolve one binomial for each distinct chance, pair by pair; no subtraction, so that no digits are lost."""
    parts: list[Floats] = []
    for size in np.unique(count):  # one call for all binomials of a size: there may be as many as examples
        same_size = count == size
        parts += list(np.exp(binomial_log_pmf(count[same_size], log_chance[same_size], log_miss[same_size])))
    while len(parts) > 1:
        odd = parts[len(parts) // 2 * 2 :]
        parts = [*map(_convolve, parts[::2], parts[1::2]), *odd]
    return parts[0]


def _convolve(one: Floats, other: Floats) -> Floats:
    """Convolve directly, because rounding errors of an FFT would exceed the tails; zeros at both ends are left out."""
    result: Floats = np.zeros(len(one) + len(other) - 1)
    (a, last_a), (b, last_b) = (np.flatnonzero(masses)[[0, -1]] for masses in (one, other))
    result[a + b : last_a + last_b + 1] = np.convolve(one[a : last_a + 1], other[b : last_b + 1])
    return result


def _padded(rows: Iterable[Floats], *, fill: float) -> Floats:
    masses = list(rows)
    padded = np.full((len(masses), max(map(len, masses))), fill)
    for row, values in zip(padded, masses, strict=True):
        row[: len(values)] = values
    return padded
