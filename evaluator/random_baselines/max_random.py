"""Compute the distribution of the best of several random classifiers, and test accuracies against it.

A random classifier has X of n examples right; X is binomial, or Poisson binomial where chances differ between examples.
If F is the distribution function of X, the best of t classifiers has at most k right with probability F(k)^t: the
maximum order statistic. Source: Yauney and Mimno 2024, section 3, equations 2 to 11, and appendix A.

The functions max_random_... compute expected accuracy, tails, masses and quantiles. They return a result for one
setting (n, chance, tries), and an array for arrays of settings, which broadcast:

- n, from 1 to 10,000,000, and tries, from 1 to 1e15: whole numbers, which may be floats.
- chance, between 0 and 1. With one n: a number; or a sequence of n numbers, one per example; or counts per number of
  choices, {2: 50, 5: 30}. With an array of n: numbers that broadcast with it, one per setting. A list of sequences or
  of counts has one entry per setting, whether n is a number or an array.

All other arguments raise BaselineError. Results have a relative error below 1e-9 (tests/random_baselines), tails also
where 1 - F(k)^t would have lost every digit. Masses are summed over the whole distribution, which is faster than
SciPy's incomplete beta function (benchmarks/columnar/max_random.py has the times).

expected_maximum and expected_maximum_of_draws take the accuracies of prompts instead of chances, and return the
expected best accuracy of some of these prompts.

with_tests tests whether accuracies are better than uniform guessing, and queries_needed computes how many queries such
a test needs. The p-value is the tail of the maximum random baseline: the probability that the best of t random
classifiers, t the number of prompts tried, has at least as many right answers (Yauney & Mimno 2024, appendix A). A run
makes many such tests, so the p-values are corrected for their number by Holm's procedure: the probability that any
accuracy of pure guessing is called better than guessing is at most TAIL_TO_TELL.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import betainc

from evaluator.arrays import Floats, Ints
from evaluator.random_baselines.settings import (
    SMALLEST,
    Chance,
    Numbers,
    Settings,
    read_settings,
    require_counts,
    require_numbers,
    require_probabilities,
)
from evaluator.schemas import TEST_OF_GUESSING
from evaluator.statistics.paired import holm
from evaluator.statistics.selective import first_passing, proportion_interval

BLOCK = 2**15
"""Number of masses processed at a time: with all intermediate arrays they fit a core's cache, which halves the time."""


def max_random_accuracy(n: Numbers, chance: Chance, tries: Numbers = 1) -> float | Floats:
    """Return the expected accuracy of the best of `tries` random classifiers, in [0, 1]; for one try, the mean chance.

    It is computed as (1/n) sum over k >= 1 of P(max >= k), which equals equation 8 of the paper, (1/n) sum of
    k P(max = k), without differences of probabilities.
    """
    settings = read_settings(n, chance, tries)
    expected = np.empty(len(settings.row))
    for part, log_power in _log_powers(settings):
        expected[part] = -np.expm1(log_power).sum(axis=1)
    mean_chance = settings.distributions.mean_chance[settings.row]
    return _shaped(settings, np.where(settings.tries == 1, mean_chance, expected / settings.n))


def max_random_tail(
    correct: Numbers, n: Numbers, chance: Chance, tries: Numbers = 1, *, log10: bool = False
) -> float | Floats:
    """Return P(the best of `tries` random classifiers has `correct` or more right) = 1 - F(correct - 1)^t.

    Args:
        correct: numbers of right answers, whole numbers from 0 to n. An accuracy raises an error that names the nearest
            counts, because n x accuracy is often not exactly the count in floating point.
        log10: return the base-10 logarithm, which stays accurate where the probability itself would underflow to 0.
    """
    settings = read_settings(n, chance, tries, require_numbers("correct", correct))
    require_counts(settings.extra, settings.n)
    log_exponent = np.log(settings.tries)
    for rows, members in _blocks(settings):
        log_exponent[members] += _log_minus_log_below(settings, rows, members)
    log_tail = _log_one_minus_exp(log_exponent)
    return _shaped(settings, log_tail / math.log(10) if log10 else np.exp(log_tail))


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

    To allow for rounding, a probability whose logarithm equals log q to twelve digits counts as reaching q.
    """
    settings = read_settings(n, chance, tries, require_probabilities("q", q))
    counts = np.empty(len(settings.row), dtype=np.int64)
    for part, log_power in _log_powers(settings):
        counts[part] = (log_power >= np.log(settings.extra[part, None]) * (1 + 1e-12)).argmax(axis=1)
    return counts.reshape(settings.shape) if settings.shape else int(counts[0])


def _blocks(settings: Settings) -> Iterator[tuple[slice, Ints]]:
    """Yield slices of rows of distributions that fit a block, with the indices of the settings that use them."""
    by_row, sizes = np.argsort(settings.row, kind="stable"), settings.distributions.n + 1
    step = max(1, BLOCK // int(sizes.max(initial=1)))  # the longest row determines how many rows fit a block
    for start in range(0, len(sizes), step):
        first, last = np.searchsorted(settings.row, [start, start + step], sorter=by_row)
        yield slice(start, start + step), by_row[first:last]


def _shaped(settings: Settings, values: Floats) -> float | Floats:
    """Return values [settings] in the shape of the arguments; the value of a single setting becomes a plain number."""
    return values.reshape(settings.shape) if settings.shape else float(values[0])


def _log_powers(settings: Settings) -> Iterator[tuple[Ints, Floats]]:
    """Yield the indices of a block of settings, and log F(k)^t for these settings, [block, k]; 0 for k >= n."""
    for rows, members in _blocks(settings):
        log_cdf = _log_cdf(settings.distributions.pmf(rows))
        step = max(1, BLOCK // log_cdf.shape[1])
        for start in range(0, len(members), step):
            part = members[start : start + step]
            yield part, settings.tries[part, None] * log_cdf[settings.row[part] - rows.start]


def _log_cdf(pmf: Floats) -> Floats:
    """Return log P(X <= k) of each row, summed from the end with the smaller sum, so that no value loses digits."""
    above = np.pad(_survival(pmf)[:, 1:], ((0, 0), (0, 1)))
    with np.errstate(divide="ignore"):
        from_below = np.log(np.cumsum(pmf, axis=1))
    return np.where(above < 0.5, np.log1p(-np.minimum(above, 0.5)), from_below)


def _log_minus_log_below(settings: Settings, rows: slice, members: Ints) -> Floats:
    """Return log(-log P(X < correct)) of the settings `members`; for P near 1, this is the log tail of one classifier.

    Args:
        rows: rows of the distributions of these settings.
        members: indices of the settings.
    """
    at = settings.row[members] - rows.start, settings.extra[members].astype(np.int64)
    pmf = settings.distributions.pmf(rows)
    below = np.pad(_log_cdf(pmf), ((0, 0), (1, 0)), constant_values=-np.inf)[at]
    with np.errstate(divide="ignore"):
        result: Floats = np.log(-below)
    # Compute tails that are too small to have all their digits again, from log masses.
    far = _survival(pmf)[at] < SMALLEST
    if far.any():
        first, last = at[1][far].min(), at[1][far].max()
        log_pmf = settings.distributions.log_pmf(rows, first, last)
        result[far] = np.logaddexp.accumulate(log_pmf[:, ::-1], axis=1)[:, ::-1][at][far]
    return result


def _survival(pmf: Floats) -> Floats:
    """Return P(X >= k), summed from the upper end, so that small values keep their digits."""
    return np.cumsum(pmf[:, ::-1], axis=1)[:, ::-1]


def _log_one_minus_exp(log_exponent: Floats) -> Floats:
    """Return log(1 - exp(-x)) given log x; for a tiny x it is log x."""
    x = np.exp(log_exponent)
    with np.errstate(divide="ignore"):
        small, large = np.log(-np.expm1(-x)), np.log1p(-np.exp(-x))
    # Each of the two forms keeps its digits on one side of x = log 2; adding 0.0 turns -0.0 into 0.0.
    return np.where(log_exponent < -37, log_exponent, np.where(x < 0.7, small, large)) + 0.0


def expected_maximum(values: npt.ArrayLike, tries: npt.ArrayLike) -> Floats:
    """Return the exact mean of the highest value over all subsets of `tries` prompts; shape of `tries`.

    Args:
        values: [prompts], one accuracy or count a prompt, in any order.
        tries: whole numbers from 1 to the number of prompts; with all prompts, the result is the highest value.

    The highest of m prompts out of T is at most v with probability C(N, m) / C(T, m), where N is the number of prompts
    with a value of at most v.
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
    """Return the distinct values, ascending, and for each but the highest, the number of prompts at or below it."""
    distinct, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    assert len(distinct), "there is at least one prompt"
    return distinct, counts.cumsum()[:-1].astype(np.float64)


def _mean(distinct: Floats, at_most: Floats) -> Floats:
    """Return the mean of a maximum, from P(maximum <= value) for each distinct value but the last, [value, ...]."""
    return np.asarray(distinct[-1] - np.diff(distinct) @ at_most)


Verdict = Literal["below both", "between", "above both"]
"""Position of an accuracy relative to the standard random baseline (chance) and the maximum random baseline.

It compares with expected accuracies, as Yauney & Mimno 2024 do, and is not a statistical test: pure guessing is "above
both" in a third to a half of all experiments. The test is with_tests."""

TAIL_TO_TELL = 0.05
"""Level of the test: the largest probability of a result under guessing at which it is called better than guessing."""

POWER = 0.8
"""Probability with which a classifier should be distinguished from guessing. This number and TAIL_TO_TELL are
conventional (Cohen 1992, "A power primer")."""

ROUNDING = 1e-12
"""Accuracies this close are equal: k / n and a mean of chances that are the same number can differ by rounding."""

ASSURANCE = 0.8
"""Confidence level of the lower bound of accuracy from which n_needed is computed."""

NEAREST = 1e-5
"""A lower bound this close to chance counts as not above it: distinguishing the two would take more than 10^10
examples."""


def is_above(accuracy: pl.Expr, baseline: pl.Expr) -> pl.Expr:
    """Return whether an accuracy exceeds a baseline by more than ROUNDING. Null where an argument is null.

    Every verdict uses this rule, except verdicts reproduced from a paper with a different rule. Two different shares of
    settings.MAX_EXAMPLES examples are further apart than ROUNDING.
    """
    return accuracy > baseline + ROUNDING


def verdict(accuracy: pl.Expr, chance: pl.Expr, max_random: pl.Expr) -> pl.Expr:
    """Return the Verdict of an accuracy; "between" is above chance, but not above the maximum random baseline.

    An accuracy equal to a baseline is not above it. Null where an argument is null.

    Source: Yauney & Mimno 2024, table 1: "better than" both baselines, or only the standard baseline. Their code
    (`full-results.py`) differs in one case: there, an accuracy that equals chance counts as above it.
    """
    above_chance, above_max = (is_above(accuracy, baseline).cast(pl.Int64) for baseline in (chance, max_random))
    n_above = above_chance * (1 + above_max)
    return n_above.replace_strict(dict(enumerate(get_args(Verdict))), return_dtype=pl.String)


def verdict_counts() -> dict[str, pl.Expr]:
    """Return expressions that count the accuracies of a group above chance, above both baselines, and between them.

    `flipped_share` is the share of accuracies above chance that are not above the maximum random baseline; null if no
    accuracy is above chance.

    Source: Yauney & Mimno 2024, section 5.1: 255 above the standard baseline, 199 above both, 56 disagreements, 22.0%.
    """
    above_standard, between = ((pl.col("verdict") != "below both").sum(), (pl.col("verdict") == "between").sum())
    return {
        "above_standard": above_standard,
        "above_max": (pl.col("verdict") == "above both").sum(),
        "disagreements": between,
        "flipped_share": pl.when(above_standard > 0).then(between / above_standard),
    }


@lru_cache(maxsize=2**14)
def queries_needed(accuracy: float | None, chance: float, tries: float = 1, n_tests: int = 1) -> int | None:
    """Return the number of queries that distinguish a classifier from the best of `tries` random classifiers.

    With this number of queries, the test rejects with probability POWER or more: the classifier has so many correct
    answers that the best random classifier reaches them with probability TAIL_TO_TELL / n_tests or less. At this level
    the power holds under Holm's correction, whatever the results of the other tests. Both probabilities are exact.
    Because counts are whole numbers, the power is a sawtooth in the number of queries: the result suffices and one
    query fewer does not, but some slightly smaller numbers may suffice too, and some slightly larger ones may not.

    Args:
        accuracy: true accuracy of the classifier, or None.
        chance: chance of every query. Where chances differ, give their mean: counts more than one away from the mean
            count are then rarer than assumed (Hoeffding 1956, "On the distribution of the number of successes in
            independent trials"), so no more queries are needed.
        tries: number of random classifiers.
        n_tests: number of tests that p-values are corrected for.

    Returns None for an accuracy that is None or not above chance (by NEAREST): no number of queries suffices.

    Source: p_max of Yauney & Mimno 2024, appendix A, used as a test: 1 - F(c - 1)^tries <= level is equivalent to
    P(X >= c) <= 1 - (1 - level)^(1 / tries) for one random classifier.
    """
    if accuracy is None or not accuracy > chance + NEAREST:
        return None
    one_tail = -math.expm1(math.log1p(-TAIL_TO_TELL / n_tests) / tries)
    return first_passing(lambda n: _tells(n, accuracy, chance, one_tail))


def _tells(n: int, accuracy: float, chance: float, one_tail: float) -> bool:
    """Return whether n queries suffice, as queries_needed defines it."""
    # The largest count that one random classifier reaches too often; a result must be above it.
    too_common = bisect_left(range(1, n + 1), True, key=lambda right: _at_least(right, n, chance) <= one_tail)
    return too_common < n and _at_least(too_common + 1, n, accuracy) >= POWER


def _at_least(k: int, n: int, p: float) -> float:
    """Return P(X >= k) of a binomial X, for k from 1 to n."""
    return float(betainc(k, n - k + 1, p))


def with_tests(rows: pl.DataFrame, family: Sequence[str] = (), further: Sequence[str] = ()) -> pl.DataFrame:
    """Test accuracies against uniform guessing: add schemas.TEST_OF_GUESSING to the rows.

    P-values are corrected together over all rows that have a tail and agree in the columns `family`.

    Args:
        rows: log10_tail (null where there is no test), n_right (whole number of correct queries), n_queries, chance,
            tries, and n_chosen_from: the number of prompts from which the best accuracy was chosen; 1 for an accuracy
            or a mean that was not chosen.
        family: columns that identify the tests to correct together; none: all rows.
        further: columns with p-values of further tests of the same rows, which are corrected together with these
            tests; the result has a column NAME_holm for each.

    n_needed is planned with a lower bound of the true accuracy, because an observed accuracy is too high if it is the
    best of several (winner's curse), and otherwise as likely too high as too low. The bound is Clopper and Pearson's
    with error (1 - ASSURANCE) / n_chosen_from, which by Bonferroni's inequality holds for all prompts at once, and so
    for the best prompt, with confidence ASSURANCE. n_needed is the number of queries on which a run with the same
    number of tries and tests calls a classifier of this accuracy better than uniform guessing with probability POWER.
    It is null where the bound is not above chance: such a run cannot say whether any number of queries is enough.

    Source of planning by a lower bound: Perugini, Gallucci & Costantini 2014, "Safeguard power as a protection against
    imprecise power estimates", Perspectives on Psychological Science 9.
    """
    tested = rows.with_columns(p_value=pl.lit(10.0).pow(pl.col("log10_tail")))
    holm_names = {"p_value": "p_holm", **{name: f"{name}_holm" for name in further}}
    # The p-values of all tests in one column, test after test, so that they are corrected together.
    stacked, by = pl.concat(tested.select(*family, p=name) for name in holm_names), family or pl.lit("all rows")
    n_tests = pl.col("p").count().cast(pl.Int64)
    corrected = stacked.select(p_holm=holm(pl.col("p")).over(by), n_tests=n_tests.over(by))
    of_test = [corrected.slice(place * rows.height, rows.height) for place in range(len(holm_names))]
    has_test = pl.col("log10_tail").is_not_null()
    right, n_queries, chosen_from = (rows[name].to_numpy() for name in ("n_right", "n_queries", "n_chosen_from"))
    bounds = pl.Series(proportion_interval(right, n_queries, (1 - ASSURANCE) / chosen_from)[0], dtype=pl.Float64)
    tested = tested.with_columns(
        *(part["p_holm"].alias(name) for part, name in zip(of_test, holm_names.values(), strict=True)),
        n_tests=pl.when(has_test).then(of_test[0]["n_tests"]),
        accuracy_lower_bound=pl.when(has_test).then(bounds),
    )
    planned = tested.select("accuracy_lower_bound", "chance", "tries", "n_tests").iter_rows()
    return tested.with_columns(
        better_than_uniform=pl.col("p_holm") <= TAIL_TO_TELL,
        n_needed=pl.Series([queries_needed(*row) for row in planned], dtype=pl.Int64),
    ).cast(TEST_OF_GUESSING)  # type: ignore[arg-type]
