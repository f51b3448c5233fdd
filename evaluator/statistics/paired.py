"""Test paired differences: tests of 0, equivalence tests with a margin, and the smallest detectable difference.

Interval and test of a difference agree: the 95% interval excludes 0 exactly where the test rejects 0 at 5%. `holm`
corrects the p-values of any tests for their number.
"""

import math
from bisect import bisect_left
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.special import bdtr, bdtrik, nctdtrinc, ndtri, stdtr, stdtrit

from evaluator.arrays import Floats, Ints

LEVEL, POWER = 0.05, 0.8
"""Level of two-sided tests, and probability that a detectable difference is detected."""

MAX_UNITS = 8_192
"""Largest sum of absolute differences, in units, for which the distribution over all signs is computed exactly."""

MAX_ENUMERATED = 12
"""Largest number of differences without a common unit for which all signs are enumerated: 4,096 sums."""

MAX_DENOMINATOR = 60
"""Largest k of a common unit 1/k of differences; means over k requests of a query have this unit."""


EXACT_TESTS, TWO_WAY = ("McNemar", "sign flips"), "two-way t"
"""Names of the exact tests, and of the t test over queries and demonstration sets; all other tests are t tests."""


class Estimate(NamedTuple):
    """A mean difference with its standard error and degrees of freedom."""

    difference: float
    standard_error: float
    degrees_of_freedom: float


class PairedTest(NamedTuple):
    """The p-value of the hypothesis that the difference is 0, and the test that gave it."""

    p_value: float  # two-sided, unless one side was requested
    test: str  # "McNemar", "sign flips" or "t"


def paired_test(differences: Floats, *, one_sided: bool = False) -> PairedTest:
    """Test that paired differences are symmetric about 0, exactly where they are few or have a common unit.

    Args:
        differences: [pairs], one or more.
        one_sided: test the hypothesis that differences are not positive, against positive differences only.

    Under the hypothesis, both sides of a pair are exchangeable, so every assignment of signs is equally likely: the
    p-value is the share of assignments whose sum is at least as far from 0. Where all differences are -1, 0 or 1, this
    is McNemar's exact test, a binomial of the pairs that differ ("McNemar"). Means over several requests of a query
    have a common unit, so that the sums can be counted exactly as well ("sign flips"); the sums of at most
    MAX_ENUMERATED other differences are enumerated ("sign flips"). All other differences have Student's t test of
    adjusted_estimate ("t").

    Sources: McNemar 1947, "Note on the sampling error of the difference between correlated proportions or percentages";
    Fisher 1935, "The Design of Experiments", section 21, for the test over all signs.
    """
    nonzero = np.abs(differences[differences != 0])
    if not len(nonzero):
        return PairedTest(1.0, "McNemar")
    sides, total = (1, float(differences.sum())) if one_sided else (2, abs(float(differences.sum())))
    unit = _common_unit(nonzero)
    if unit is not None and (units := np.rint(nonzero * unit).astype(np.int64)).sum() <= MAX_UNITS:
        p_value = min(1.0, sides * _sign_flips(units, round(total * unit)))
        return PairedTest(p_value, "McNemar" if unit == 1 else "sign flips")
    if len(nonzero) <= MAX_ENUMERATED:
        signs = 1 - 2 * (np.arange(2 ** len(nonzero))[:, None] >> np.arange(len(nonzero)) & 1)
        as_far = signs @ nonzero >= total - 1e-12 * nonzero.sum()
        return PairedTest(min(1.0, sides * float(as_far.mean())), "sign flips")
    return PairedTest(t_test(adjusted_estimate(differences), one_sided=one_sided), "t")


def plain_estimate(differences: Floats) -> Estimate:
    """Return the mean of differences [pairs] with its usual standard error, infinite with a single pair."""
    n = len(differences)
    error = float(differences.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
    return Estimate(float(differences.mean()), error, max(n - 1, 1))


def largest_difference(differences: Floats) -> float:
    """Return the largest possible absolute difference of [pairs].

    1 if they have a common unit, as differences of accuracies do, or are all 0; else the largest that occurs.
    """
    nonzero = np.abs(differences[differences != 0])
    return float(nonzero.max()) if len(nonzero) and _common_unit(nonzero) is None else 1.0


def adjusted_estimate(differences: Floats, n_added: float = 2, largest: float | None = None) -> Estimate:
    """Return the estimate of a mean difference with `n_added` pairs added: half at `largest`, half at -`largest`.

    The standard error is therefore never 0: pairs that all agree do not count as certainty.

    Args:
        differences: [pairs].
        n_added: number of added pairs; 2 / D for each of D datasets of a mean, which adds two pairs to the mean.
        largest: largest possible absolute difference; None: largest_difference of the pairs.

    Source: Bonett & Price 2012, "Adjusted Wald confidence interval for a difference of binomial proportions based on
    paired data", Journal of Educational and Behavioral Statistics 37; their interval for differences of -1, 0 and 1.
    """
    n, largest = len(differences) + n_added, largest or largest_difference(differences)
    mean = float(differences.sum()) / n
    mean_square = (float((differences**2).sum()) + n_added * largest**2) / n
    return Estimate(mean, math.sqrt((mean_square - mean**2) / (n - 1)), n - 1)


def interval(difference: float, estimate: Estimate, p_value: float) -> tuple[float, float]:
    """Return the 95% interval of a difference: Student's t interval, with 0 inside exactly where p is above LEVEL.

    Where an exact test and Student's interval disagree about 0, the end nearer to 0 is moved (end_by_test). Both ends
    lie between -1 and 1.

    Args:
        difference: plain mean of the pairs; the interval contains it.
        estimate: adjusted_estimate, or the estimate of a test over two crossed factors.
        p_value: two-sided p-value of a difference of 0.
    """
    reach = float(stdtrit(estimate.degrees_of_freedom, 1 - LEVEL / 2)) * estimate.standard_error
    low = max(min(estimate.difference - reach, difference), -1.0)
    high = min(max(estimate.difference + reach, difference), 1.0)
    if (low <= 0 <= high) == (p_value <= LEVEL):
        near = end_by_test(difference, p_value)
        low, high = (max(near, -1.0), high) if difference > 0 else (low, min(near, 1.0))
    return low, high


def end_by_test(difference: float, p_value: float) -> float:
    """Return the end nearer to 0 of the 95% interval of a difference, as normal theory has it for a p-value.

    It is difference x (1 - z(1 - LEVEL/2) / z(1 - p/2)), and beyond 0 exactly where the test does not reject 0.

    Source: Miettinen 1976, "Estimability and estimation in case-referent studies", American Journal of Epidemiology
    103, for limits from a test.
    """
    return difference * (1 - float(ndtri(1 - LEVEL / 2)) / max(-float(ndtri(p_value / 2)), 1e-9))


def paired_interval(differences: Floats) -> tuple[float | None, float | None]:
    """Return the 95% interval of the mean of differences [pairs], in agreement with paired_test; None for one pair."""
    if len(differences) < 2:
        return None, None
    return interval(float(differences.mean()), adjusted_estimate(differences), paired_test(differences)[0])


def mean_estimate(estimates: list[Estimate]) -> Estimate:
    """Return the plain mean of independent estimates, with Satterthwaite's degrees of freedom."""
    variances = np.array([estimate.standard_error**2 for estimate in estimates])
    freedom = np.array([estimate.degrees_of_freedom for estimate in estimates])
    total = float(variances.sum())
    mean = float(np.mean([estimate.difference for estimate in estimates]))
    with np.errstate(invalid="ignore"):
        degrees = total**2 / float((variances**2 / freedom).sum()) if 0 < total < math.inf else float(freedom.min())
    return Estimate(mean, math.sqrt(total) / len(estimates), degrees)


def t_test(estimate: Estimate, *, one_sided: bool = False) -> float:
    """Return the p-value of Student's t test; 1 where the standard error is 0.

    Two-sided for a difference of 0, or one-sided for a difference of 0 or less.
    """
    difference, error, freedom = estimate
    if error == 0:
        return 1.0
    tail = float(stdtr(freedom, -(difference if one_sided else abs(difference)) / error))
    return tail if one_sided else 2 * tail


class Equivalence(NamedTuple):
    """The p-values of non-inferiority and equivalence with a margin."""

    no_worse: float  # p-value of the hypothesis that the difference is -margin or less
    equivalent: float  # p-value of the hypothesis |difference| >= margin: the larger of two one-sided p-values


def equivalence_test(estimate: Estimate, margin: float, n_pairs: int) -> Equivalence:
    """Test that a is less than `margin` worse than b, and that neither is better by `margin`, by one-sided t tests.

    Two corrections keep the level where few pairs differ (tests/statistics has exact levels). The standard error is at
    least that of a true difference equal to the margin with all differences of one sign, and the distance to the margin
    is reduced by one pair (1 / n_pairs).

    Args:
        estimate: adjusted_estimate of a minus b.
        margin: between 0 and 1.
        n_pairs: number of pairs in the estimate.

    Source: Schuirmann 1987, "A comparison of the two one-sided tests procedure and the power approach for assessing the
    equivalence of average bioavailability", Journal of Pharmacokinetics and Biopharmaceutics 15.
    """
    difference, error, freedom = estimate
    error = max(error, math.sqrt(margin * (1 - margin) / n_pairs))
    above, below = (float(stdtr(freedom, -(margin + side * difference - 1 / n_pairs) / error)) for side in (1, -1))
    return Equivalence(above, max(above, below))


def worse_test(estimate: Estimate, margin: float, n_pairs: int) -> float:
    """Return the one-sided p-value of the hypothesis that a is not worse than b by more than `margin`.

    The test is the mirror image of equivalence_test at the same margin, with the same two corrections.

    Args:
        estimate: adjusted_estimate of a minus b.
        margin: between 0 and 1.
        n_pairs: number of pairs in the estimate.
    """
    return equivalence_test(estimate._replace(difference=-2 * margin - estimate.difference), margin, n_pairs).no_worse


class Spread(NamedTuple):
    """The variation of paired differences, which determines the detectable difference."""

    plain_error: float  # standard error of the mean difference
    tested_error: float  # standard error that the test uses
    degrees_of_freedom: float
    n_pairs: int
    mean_size: float  # mean of |difference|
    mean_square: float  # mean of difference^2


def detectable_difference(spread: Spread, test: str, n_tests: int = 1) -> float:
    """Return the smallest true difference that the test detects with probability POWER; at most 1.

    It depends on the variation of pairs, not on the observed difference. The level is LEVEL / n_tests: at this level
    Holm's correction has at least this power, whatever the results of the other tests.

    For an exact test the differences d are replaced by (sum of |d|)^2 / sum of d^2 pairs that differ by
    sum of d^2 / sum of |d| each, and the power is that of McNemar's test. For a t test the power is from the
    noncentral t distribution.

    Args:
        spread: variation of the paired differences.
        test: name of the test, as in PairedTest.
        n_tests: number of tests that p-values are corrected for.
    """
    plain, tested, degrees, n_pairs, size, square = spread
    level = LEVEL / n_tests
    if test in EXACT_TESTS:
        of_pair = square / size if size else 1.0
        return min(of_pair * _detectable_by_mcnemar(n_pairs, min(size / of_pair, 1.0), level), 1.0)
    critical = float(stdtrit(degrees, 1 - level / 2))
    beyond = float(nctdtrinc(degrees, 1 - POWER, critical)) - critical
    return min((1 + 2 / n_pairs) * (critical * tested + beyond * plain), 1.0)


def detectable_in_advance(n_queries: int, share_that_differs: float, n_tests: int = 1) -> float:
    """Return the detectable difference of two accuracies before a run, from the share of queries answered differently.

    Args:
        n_queries: number of queries of one dataset.
        share_that_differs: share of queries on which exactly one of the two answers is right. A difference cannot be
            larger, so this share is returned where no smaller difference is detectable.
        n_tests: number of tests that p-values are corrected for.
    """
    return min(_detectable_by_mcnemar(n_queries, share_that_differs, LEVEL / n_tests), share_that_differs)


@lru_cache(maxsize=2**12)
def _detectable_by_mcnemar(n: int, share: float, level: float) -> float:
    """Return the smallest difference that McNemar's exact test detects with probability POWER.

    Differences are multiples of 1e-6, and power grows with the difference. Where the difference exceeds `share`, all
    pairs that differ have one sign. 1 where no difference is detected.
    """

    def is_detected(millionths: int) -> bool:
        difference = millionths / 1_000_000
        return mcnemar_power(n, max(share, difference), difference, level) >= POWER

    candidates = range(1, 1_000_000)
    return (1 + bisect_left(candidates, True, key=is_detected)) / 1_000_000


def mcnemar_power(n: int, share: float, difference: float, level: float) -> float:
    """Return the exact probability that McNemar's test of n pairs rejects at `level`, two-sided.

    Args:
        share: probability that a pair differs.
        difference: probability of a better pair minus the probability of a worse pair, at most `share`.
        level: two-sided level of the test.

    The number of pairs that differ is binomial, and given this number, the number of better pairs is binomial as well
    (Connor 1987, "Sample size for testing differences in proportions for the paired-sample design", Biometrics 43, has
    a normal approximation).
    """
    reach = 9 * math.sqrt(n * share * (1 - share)) + 9
    differing = np.arange(max(0, math.floor(n * share - reach)), min(n, math.ceil(n * share + reach)) + 1)
    # The test rejects where at most `few` of the differing pairs are better, or at most `few` worse; -1: it never
    # rejects. bdtrik may be one too high.
    few = np.nan_to_num(np.floor(bdtrik(level / 2, differing, 0.5)))
    few -= bdtr(few, differing, 0.5) > level / 2
    better = (1 + difference / share) / 2
    rejected = np.where(few < 0, 0.0, bdtr(few, differing, better) + bdtr(few, differing, 1 - better))
    # The probability of each number of differing pairs.
    below = bdtr(differing - 1, n, share)
    masses = bdtr(differing, n, share) - np.where(differing > 0, below, 0.0)
    return float(masses @ rejected)


def _common_unit(absolute: Floats) -> int | None:
    """Return the smallest k up to MAX_DENOMINATOR such that all differences are multiples of 1/k, or None."""
    distinct = np.unique(absolute)
    units = (k for k in range(1, MAX_DENOMINATOR + 1) if k * distinct[0] > 0.5)  # no difference may be rounded to 0
    return next((k for k in units if np.abs(distinct * k - np.rint(distinct * k)).max() < 1e-9), None)


def _sign_flips(units: Ints, total: int) -> float:
    """Return the share of all assignments of signs to `units` (1 or more each) whose sum is `total` or more."""
    masses: Floats = np.ones(1)  # distribution of the sum P of the units with a positive sign
    for size, count in zip(*np.unique(units, return_counts=True), strict=True):
        of_size = np.zeros(size * count + 1)
        of_size[::size] = _fair_coins(int(count))
        masses = np.convolve(masses, of_size).astype(np.float64)
    # The signed sum is 2P - units.sum(), symmetric about 0. Add the masses from the smallest to keep their digits.
    least = (int(units.sum()) + total + 1) // 2
    return float(masses[least:][::-1].sum())


def _fair_coins(n: int) -> Floats:
    """Return the probabilities of 0 to n heads of n fair coins."""
    heads = np.arange(n + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log((n - heads[:-1]) / (heads[:-1] + 1)))])
    return np.exp(logs - n * math.log(2))


def holm(p_value: pl.Expr) -> pl.Expr:
    """Return p-values corrected by Holm's step-down procedure, in the order of the rows; null where a p-value is null.

    Of m p-values in ascending order, the i-th is multiplied by m - i + 1, and results are made ascending and at most 1.
    Rejecting where the result is at most a level keeps the probability of any false rejection (family-wise error) at or
    below that level, whatever the dependence between tests.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6.
    """
    rank = p_value.rank("ordinal")  # null where the p-value is
    scaled = p_value * (p_value.count() - rank + 1)
    highest_so_far = scaled.sort_by(rank, nulls_last=True).cum_max()
    return highest_so_far.gather(rank - 1).clip(upper_bound=1)
