"""Compute the probability masses of many binomial distributions at once."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Binomials:
    """Binomial distributions, one a row."""

    n: IntArray  # [rows], numbers of trials
    chance: FloatArray  # [rows]

    @property
    def mean_chance(self) -> FloatArray:
        return self.chance

    def pmf(self, rows: slice) -> FloatArray:
        """Return masses [rows, max(n) + 1]; 0 beyond the n of a row."""
        return np.exp(self.log_pmf(rows))

    def log_pmf(self, rows: slice) -> FloatArray:
        """Return log masses [rows, max(n) + 1] in nats; -inf beyond the n of a row."""
        chance = self.chance[rows]
        return binomial_log_pmf(self.n[rows], np.log(chance), np.log1p(-chance))


def binomial_log_pmf(n: IntArray, log_chance: FloatArray, log_miss: FloatArray) -> FloatArray:
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


def _log_choices(n: IntArray, k: IntArray, misses: IntArray) -> FloatArray:
    """Return log C(n, k) from n log n - k log k - (n - k) log (n - k) and the rests of the three log factorials."""
    rest = _log_factorial_rest(k[-1] + 1)
    entropy = k * np.log(np.maximum(k, 1) / n) + misses * np.log(np.maximum(misses, 1) / n)
    choices: FloatArray = rest[n] - rest[k] - rest[misses] - entropy
    return choices


def _log_factorial_rest(size: int) -> FloatArray:
    """Return the rest log k! - (k log k - k) for k = 0, 1, ..., size - 1; exact from k = 16 on by Stirling's series."""
    small = [math.lgamma(k + 1) - (k * math.log(k) - k if k else 0) for k in range(min(size, 16))]
    k = np.arange(16.0, size)
    series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / k**2) / k**2) / k**2) / k**2) / k
    return np.concatenate([small, np.log(2 * np.pi * k) / 2 + series])
