"""Compute the distribution of the best of several random classifiers: expected accuracy, tails and quantiles.

A random classifier has X of n examples right; X is binomial, or Poisson binomial where chances differ between examples.
With F its distribution function, the best of t classifiers has at most k right with probability F(k)^t: the maximum
order statistic. Source: Yauney and Mimno 2024, section 3, equations 2 to 11, and appendix A.

Every function returns a number for one setting, and an array for arrays of settings, which broadcast:

- n, from 1 to 1,000,000, and tries, from 1 to 1e15: whole numbers, which may be floats.
- chance, between 0 and 1. With one n: a number; or a sequence of n numbers, one per example; or counts per number of
  choices, {2: 50, 5: 30}. With an array of n: numbers that broadcast with it, one per setting. A list of sequences or
  of counts is one per setting, whatever n is.

Anything else raises BaselineError. Results have a relative error below 1e-9 (tests/random_baselines), tails also where
1 - F(k)^t would have lost every digit. Masses are summed over the whole distribution, which is faster than SciPy's
incomplete beta function (benchmarks/columnar/max_random.py has the times).

expected_maximum and expected_maximum_of_draws take the values of prompts instead of chances, and return the expected
best of some of them.
"""

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from evaluator.arrays import Floats, Ints
from evaluator.random_baselines.settings import (
    BLOCK,
    SMALLEST,
    Chance,
    Numbers,
    Settings,
    read_settings,
    require_counts,
    require_numbers,
    require_probabilities,
)


def max_random_accuracy(n: Numbers, chance: Chance, tries: Numbers = 1) -> float | Floats:
    """Return the expected accuracy of the best of `tries` random classifiers, in [0, 1]; for one, the mean chance.

    (1/n) sum over k >= 1 of P(max >= k): the paper's (1/n) sum of k P(max = k), equation 8, without its differences.
    """
    settings = read_settings(n, chance, tries)
    expected = np.empty(len(settings.row))
    for part, log_power in _log_powers(settings):
        expected[part] = -np.expm1(log_power).sum(axis=1)
    mean_chance = settings.distributions.mean_chance[settings.row]
    return settings.shaped(np.where(settings.tries == 1, mean_chance, expected / settings.n))


def max_random_tail(
    correct: Numbers, n: Numbers, chance: Chance, tries: Numbers = 1, *, log10: bool = False
) -> float | Floats:
    """Return P(the best of `tries` random classifiers has `correct` or more right) = 1 - F(correct - 1)^t.

    Args:
        correct: whole numbers from 0 to n. An accuracy raises an error that names the nearest counts, because
            n x accuracy is often not exactly the count in floating point.
        log10: return the logarithm, which stays exact where the probability itself would be 0.
    """
    settings = read_settings(n, chance, tries, require_numbers("correct", correct))
    require_counts(settings.extra, settings.n)
    log_exponent = np.log(settings.tries)
    for rows, members in settings.blocks():
        log_exponent[members] += _log_minus_log_below(settings, rows, members)
    log_tail = _log_one_minus_exp(log_exponent)
    return settings.shaped(log_tail / math.log(10) if log10 else np.exp(log_tail))


def max_random_pmf(n: Numbers, chance: Chance, tries: Numbers = 1) -> Floats:
    """Return P(the best of `tries` has exactly k right), k = 0, 1, ..., max(n) on the last axis; 0 where k > n."""
    settings = read_settings(n, chance, tries)
    masses = np.zeros((len(settings.row), settings.n.max(initial=0) + 1))
    for part, log_power in _log_powers(settings):
        # F(k)^t - F(k - 1)^t, from the logs of both.
        below = np.pad(log_power[:, :-1], ((0, 0), (1, 0)), constant_values=-np.inf)
        with np.errstate(invalid="ignore"):  # -inf minus -inf, where both are probability 0
            mass = -np.exp(log_power) * np.expm1(below - log_power)
        masses[part, : log_power.shape[1]] = np.where(np.isneginf(log_power), 0, mass)
    return masses.reshape(settings.shape + masses.shape[1:])


def max_random_cdf(n: Numbers, chance: Chance, tries: Numbers = 1) -> Floats:
    """Return P(the best of `tries` has at most k right), k = 0, 1, ..., max(n) on the last axis; 1 where k > n."""
    settings = read_settings(n, chance, tries)
    probabilities = np.ones((len(settings.row), settings.n.max(initial=0) + 1))
    for part, log_power in _log_powers(settings):
        probabilities[part, : log_power.shape[1]] = np.exp(log_power)
    return probabilities.reshape(settings.shape + probabilities.shape[1:])


def max_random_quantile(q: Numbers, n: Numbers, chance: Chance, tries: Numbers = 1) -> int | Ints:
    """Return the smallest k with P(the best of `tries` has at most k right) >= q, for q between 0 and 1.

    A q that equals such a probability to twelve digits counts as reached, to allow for rounding.
    """
    settings = read_settings(n, chance, tries, require_probabilities("q", q))
    counts = np.empty(len(settings.row), dtype=np.int64)
    for part, log_power in _log_powers(settings):
        counts[part] = (log_power >= np.log(settings.extra[part, None]) * (1 + 1e-12)).argmax(axis=1)
    return counts.reshape(settings.shape) if settings.shape else int(counts[0])


def _log_powers(settings: Settings) -> Iterator[tuple[Ints, Floats]]:
    """Yield the indices of a block of settings, and their log F(k)^t, [block, k]; 0 from the n of a setting on."""
    for rows, members in settings.blocks():
        log_cdf = _log_cdf(settings.distributions.pmf(rows))
        step = max(1, BLOCK // log_cdf.shape[1])
        for start in range(0, len(members), step):
            part = members[start : start + step]
            yield part, settings.tries[part, None] * log_cdf[settings.row[part] - rows.start]


def _log_cdf(pmf: Floats) -> Floats:
    """Return log P(X <= k) of each row, summed from the side with the smaller sum, so that neither end loses digits."""
    above = np.pad(_survival(pmf)[:, 1:], ((0, 0), (0, 1)))
    with np.errstate(divide="ignore"):
        from_below: Floats = np.log(np.cumsum(pmf, axis=1))
    log_cdf: Floats = np.where(above < 0.5, np.log1p(-np.minimum(above, 0.5)), from_below)
    return log_cdf


def _log_minus_log_below(settings: Settings, rows: slice, members: Ints) -> Floats:
    """Return log(-log P(X < correct)) of the settings `members`; for P near 1, it is the log of the tail of one try."""
    at = settings.row[members] - rows.start, settings.extra[members].astype(np.int64)
    pmf = settings.distributions.pmf(rows)
    below = np.pad(_log_cdf(pmf), ((0, 0), (1, 0)), constant_values=-np.inf)[at]
    with np.errstate(divide="ignore"):
        result: Floats = np.log(-below)
    # Compute a tail again from log masses if it is too small to have all digits.
    far = _survival(pmf)[at] < SMALLEST
    if far.any():
        result[far] = _log_survival(settings.distributions.log_pmf(rows))[at][far]
    return result


def _survival(pmf: Floats) -> Floats:
    """Return P(X >= k), summed from the upper end, so that small values keep their digits."""
    return np.cumsum(pmf[:, ::-1], axis=1)[:, ::-1]


def _log_survival(log_pmf: Floats) -> Floats:
    """Return log P(X >= k), also where the probability would underflow."""
    backwards: Floats = np.logaddexp.accumulate(log_pmf[:, ::-1], axis=1)
    return backwards[:, ::-1]


def _log_one_minus_exp(log_exponent: Floats) -> Floats:
    """Return log(1 - exp(-x)) given log x; for a tiny x it is log x."""
    x = np.exp(log_exponent)
    with np.errstate(divide="ignore"):
        small, large = np.log(-np.expm1(-x)), np.log1p(-np.exp(-x))
    # Each of the two forms keeps its digits on one side of x = log 2; adding 0.0 turns -0.0 into 0.0.
    return np.where(log_exponent < -37, log_exponent, np.where(x < 0.7, small, large)) + 0.0


def expected_maximum(values: npt.ArrayLike, tries: npt.ArrayLike) -> Floats:
    """Return the mean of the highest value over all subsets of `tries` prompts, exactly; shape of `tries`.

    Args:
        values: [prompts], one accuracy or count a prompt, in any order.
        tries: whole numbers from 1 to the number of prompts; the last gives the highest value.

    The highest of m prompts out of T is at most v with probability C(N, m) / C(T, m), where N prompts have at most v.
    """
    distinct, at_most = _steps(values)
    n_prompts, n_tries = np.size(values), np.asarray(tries)
    assert ((n_tries >= 1) & (n_tries <= n_prompts)).all(), "tries are from 1 to the number of prompts"
    # C(N, m) / C(T, m) is the product of (N - i) / (T - i) over i = 0, ..., m - 1.
    drawn_before = np.arange(n_prompts)
    chosen = np.clip(at_most[:, None] - drawn_before, 0, None) / (n_prompts - drawn_before)
    return _mean(distinct, np.cumprod(chosen, axis=1)[:, n_tries - 1])


def expected_maximum_of_draws(values: npt.ArrayLike, tries: npt.ArrayLike) -> Floats:
    """Return the expected highest value among `tries` prompts drawn with replacement; shape of `tries`.

    Args:
        values: [prompts], one accuracy or count a prompt, in any order.
        tries: whole numbers from 1; the result approaches the highest value but never reaches it.

    Source: Dodge et al. 2019, "Show Your Work", section 3.1; used in Yauney & Mimno 2024, section 5.1.
    """
    distinct, at_most = _steps(values)
    n_tries = np.asarray(tries)
    assert (n_tries >= 1).all(), "tries are at least 1"
    return _mean(distinct, np.power.outer(at_most / np.size(values), n_tries))


def _steps(values: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return the distinct values, ascending, and for each but the highest, how many prompts have at most it."""
    distinct, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    assert len(distinct), "there is at least one prompt"
    return distinct, counts.cumsum()[:-1].astype(np.float64)


def _mean(distinct: Floats, at_most: Floats) -> Floats:
    """Return the mean of a maximum, from P(maximum <= value) for each distinct value but the last, [value, ...]."""
    return np.asarray(distinct[-1] - np.diff(distinct) @ at_most)
