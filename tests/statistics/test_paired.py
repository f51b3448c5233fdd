"""Paired tests against SciPy's exact tests, enumeration of all signs, and simulation at the margin."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from scipy import stats

from evaluator.statistics.paired import (
    Estimate,
    Spread,
    adjusted_estimate,
    detectable_difference,
    detectable_in_advance,
    equivalence_test,
    interval,
    mcnemar_power,
    mean_estimate,
    paired_interval,
    paired_test,
    plain_estimate,
    t_test,
    worse_test,
)


def all_signs(differences: list[float]) -> float:
    """The share of assignments of signs whose sum is as far from 0, one after another."""
    total = abs(sum(differences)) - 1e-9
    sums = [
        sum(s * d for s, d in zip(signs, differences, strict=True))
        for signs in product((-1, 1), repeat=len(differences))
    ]
    return sum(abs(value) >= total for value in sums) / len(sums)


@pytest.mark.parametrize(
    ("better", "worse", "equal"), [(9, 1, 0), (30, 14, 468), (5, 5, 3), (0, 1, 0), (700, 800, 3000)]
)
def test_answers_that_are_right_or_wrong_have_mcnemars_exact_test(better: int, worse: int, equal: int) -> None:
    differences = np.repeat([1.0, -1.0, 0.0], [better, worse, equal])
    found, one_sided = paired_test(differences), paired_test(differences, one_sided=True)
    assert found.test == one_sided.test == "McNemar"
    assert found.p_value == pytest.approx(stats.binomtest(better, better + worse).pvalue, rel=1e-9)
    greater = stats.binomtest(better, better + worse, alternative="greater")
    assert one_sided.p_value == pytest.approx(greater.pvalue, rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_means_over_requests_have_the_share_of_all_signs(seed: int) -> None:
    differences = np.random.default_rng(seed).integers(-2, 3, 11) / 2 + (0.5 if seed % 2 else 0)
    found = paired_test(differences)
    assert found.test == "sign flips"
    assert found.p_value == pytest.approx(all_signs(differences.tolist()))


def test_few_differences_of_probabilities_have_the_share_of_all_signs() -> None:
    differences = np.random.default_rng(1).normal(0.5, 1, 10)
    found = paired_test(differences)
    assert found.test == "sign flips"
    assert found.p_value == pytest.approx(all_signs(differences.tolist()))


def test_many_differences_of_probabilities_have_students_test() -> None:
    differences = np.random.default_rng(2).normal(0.1, 1, 50)
    found = paired_test(differences)
    assert found.test == "t"
    largest = np.abs(differences).max()
    assert found.p_value == pytest.approx(stats.ttest_1samp([*differences, largest, -largest], 0).pvalue)
    greater = stats.ttest_1samp([*differences, largest, -largest], 0, alternative="greater")
    assert paired_test(differences, one_sided=True).p_value == pytest.approx(greater.pvalue)


@pytest.mark.parametrize(
    ("exact", "too_many"),
    [
        (np.ones(8_192), np.ones(8_193)),  # units
        (np.arange(1, 15) / 60, np.arange(1, 15) / 61),  # the denominator of a unit
        (np.sqrt(np.arange(2, 14)), np.sqrt(np.arange(2, 15))),  # differences without a unit
    ],
)
def test_signs_are_counted_exactly_up_to_the_stated_sizes(exact: np.ndarray, too_many: np.ndarray) -> None:
    assert paired_test(exact).test != "t"
    assert paired_test(too_many).test == "t"


def test_no_difference_at_all_has_a_p_value_of_1() -> None:
    assert paired_test(np.zeros(5)) == (1.0, "McNemar")
    assert paired_test(np.array([0.25, -0.25])).p_value == 1


def test_a_single_pair_and_pairs_without_an_error_decide_nothing() -> None:
    assert plain_estimate(np.array([0.5])) == (0.5, math.inf, 1)
    assert paired_interval(np.array([0.5])) == (None, None)
    assert t_test(Estimate(0.5, 0.0, 3)) == 1


def test_an_interval_is_cut_at_1_and_may_end_at_0_where_0_is_not_rejected() -> None:
    # Two pairs are added: mean 1.5 / 4, variance (3.25 / 4 - .375^2) / 3, t(3) = 3.18: -1.13 to 1.88.
    assert paired_interval(np.array([1.0, 0.5])) == (-1, 1)
    assert interval(0.5, Estimate(0.0, 0.0, 5), 0.5) == (0, 0.5)
    assert interval(-0.5, Estimate(0.0, 0.0, 5), 0.5) == (-0.5, 0)


def test_a_mean_of_estimates_has_the_root_of_summed_squares_and_satterthwaites_degrees_of_freedom() -> None:
    samples = [np.random.default_rng(seed).normal(0, seed + 1, 20 + seed) for seed in range(2)]
    found = mean_estimate([plain_estimate(sample) for sample in samples])
    # Welch's test of a and -b compares their sum with 0.
    welch = stats.ttest_ind(samples[0], -samples[1], equal_var=False)
    assert found.degrees_of_freedom == pytest.approx(welch.df)
    assert found.difference / found.standard_error == pytest.approx(welch.statistic)


def test_the_adjusted_estimate_is_worked_by_hand() -> None:
    # Bonett and Price: 3 better, 1 worse of 10 queries: (4 - 2) / 12, variance (6/12 - (2/12)^2) / 12 by population.
    found = adjusted_estimate(np.repeat([1.0, -1.0, 0.0], [3, 1, 6]))
    assert found.difference == pytest.approx(2 / 12)
    assert found.standard_error == pytest.approx(math.sqrt((6 / 12 - (2 / 12) ** 2) / 11))


def test_equivalence_is_two_one_sided_tests() -> None:
    differences = np.random.default_rng(3).normal(0.01, 0.4, 60)
    found = equivalence_test(plain_estimate(differences), 0.05, 60)
    # Moving both limits by one of sixty pairs leaves SciPy's one-sample tests.
    limit = 0.05 - 1 / 60
    lower = stats.ttest_1samp(differences, -limit, alternative="greater").pvalue
    upper = stats.ttest_1samp(differences, limit, alternative="less").pvalue
    assert found.no_worse == pytest.approx(lower)
    assert found.equivalent == pytest.approx(max(lower, upper))


def test_pairs_that_all_agree_are_no_certainty_of_equivalence() -> None:
    # The error is that of a share of .02 in 100: t = (.02 - .01) / .014 at 101 degrees of freedom.
    found = equivalence_test(adjusted_estimate(np.zeros(100)), 0.02, 100)
    assert found.equivalent == pytest.approx(stats.t.sf(0.01 / math.sqrt(0.02 * 0.98 / 100), 101))
    assert found.equivalent > 0.2


@pytest.mark.parametrize(("n", "margin"), [(100, 0.1), (300, 0.05), (500, 0.02)])
@pytest.mark.parametrize("differing", [1, 1.5, 5])
def test_a_model_that_is_worse_by_the_margin_is_rarely_called_no_worse(n: int, margin: float, differing: float) -> None:
    assert _share_rejected(n, margin, differing, lambda each: equivalence_test(each, margin, n).no_worse) <= 0.05


def _share_rejected(n: int, margin: float, differing: float, p_value: Callable[[Estimate], float]) -> float:
    """How often a p-value is 0.05 or less if the true difference is minus the margin."""
    # Exactly, over all counts of better and worse answers; `differing` is the share that differs, in margins.
    better, worse = (differing - 1) / 2 * margin, (differing + 1) / 2 * margin
    rejected = 0.0
    for n_worse in range(n + 1):
        of_worse = stats.binom.pmf(n_worse, n, worse)
        if of_worse < 1e-9:
            continue
        n_better = np.arange(n - n_worse + 1)
        probabilities = of_worse * stats.binom.pmf(n_better, n - n_worse, better / (1 - worse))
        for count, probability in zip(n_better, probabilities, strict=True):
            if probability >= 1e-9:
                differences = np.repeat([1.0, -1.0, 0.0], [count, n_worse, n - n_worse - count])
                rejected += probability * (p_value(adjusted_estimate(differences)) <= 0.05)
    return rejected


def test_a_detectable_difference_of_probabilities_is_detected_with_the_stated_power() -> None:
    rng, n = np.random.default_rng(4), 200
    sample = rng.normal(0, 0.1, n)
    plain, tested = plain_estimate(sample), adjusted_estimate(sample)
    spread = Spread(
        plain.standard_error, tested.standard_error, tested.degrees_of_freedom, n, np.abs(sample).mean(), sample.var()
    )
    shift = detectable_difference(spread, "t", n_tests=10)
    power = np.mean([paired_test(rng.normal(shift, sample.std(), n)).p_value <= 0.005 for _ in range(2_000)])
    assert 0.77 <= power <= 0.83


def test_a_detectable_difference_makes_up_for_the_two_pairs_that_the_estimate_adds() -> None:
    # Two pairs whose differences cancel make a mean over n pairs n / (n + 2) of what it was.
    few, many = (detectable_difference(Spread(0.1, 0.1, 50, n, 0.1, 0.01), "t") for n in (4, 10**12))
    assert few / many == pytest.approx(6 / 4)


def test_where_no_pair_differed_as_many_better_ones_are_needed_as_reject() -> None:
    # Six of six pairs have p = 2 / 64, five of five 2 / 32. P(X >= 6) of 100 rises with the share, as a beta's does.
    found = detectable_difference(Spread(0.0, 0.0, 101, 100, 0.0, 0.0), "McNemar")
    assert found == pytest.approx(stats.beta.ppf(0.8, 6, 95), abs=1e-5)
    # Three of three pairs have p = 2 / 8, which is at most a level of exactly this size.
    assert mcnemar_power(3, 1.0, 1.0, 0.25) == 1


@pytest.mark.parametrize("size", np.random.default_rng(0).random(40))
def test_pairs_that_all_differ_by_the_same_have_a_detectable_difference_whatever_their_last_digit(size):
    # A single pair, of a run with --queries 1: rounded, the square of the size over the mean square can exceed 1.
    assert detectable_difference(Spread(0.0, 0.0, 0, 1, size, size * size), "sign flips") == pytest.approx(size)


@pytest.mark.parametrize(("n", "share", "n_tests"), [(512, 0.2, 1), (200, 0.4, 10), (300, 0.1, 110), (64, 0.3, 2)])
def test_in_advance_the_power_of_mcnemars_test_is_the_stated_one(n: int, share: float, n_tests: int) -> None:
    difference = detectable_in_advance(n, share, n_tests)
    # Exactly, over the number of pairs that differ and of better ones among them.
    power = 0.0
    for differing in range(n + 1):
        better = np.arange(differing + 1)
        tails = np.minimum(stats.binom.cdf(better, differing, 0.5), stats.binom.sf(better - 1, differing, 0.5))
        masses = stats.binom.pmf(better, differing, (1 + difference / share) / 2)
        power += stats.binom.pmf(differing, n, share) * masses[2 * tails <= 0.05 / n_tests].sum()
    assert power == pytest.approx(0.8, abs=1e-4)


@pytest.mark.parametrize(("n", "margin"), [(100, 0.1), (300, 0.05), (500, 0.02)])
@pytest.mark.parametrize("differing", [1, 1.5, 5])
def test_a_model_that_is_worse_by_the_margin_is_rarely_called_worse_than_that(
    n: int, margin: float, differing: float
) -> None:
    assert _share_rejected(n, margin, differing, lambda estimate: worse_test(estimate, margin, n)) <= 0.05


def test_the_two_sides_of_a_margin_are_mirror_images() -> None:
    found = worse_test(Estimate(-0.15, 0.02, 200), 0.1, 100)
    # Mirrored at the margin, -0.15 is -0.05; both count by one pair less than they are.
    assert found == pytest.approx(equivalence_test(Estimate(-0.05, 0.02, 200), 0.1, 100).no_worse)


def test_differences_that_are_tiny_keep_their_size() -> None:
    tiny = np.random.default_rng(1).normal(0.5, 1, 10) * 1e-12
    found = paired_test(tiny)
    assert found.test == "sign flips"
    assert found.p_value == pytest.approx(all_signs((1e12 * tiny).tolist()))
    assert paired_test(np.array([1.0, 1.0, 1e-12])).p_value == pytest.approx(2 / 8)
    low, high = paired_interval(tiny)
    assert low is not None
    assert high is not None
    assert low < tiny.mean() < high < 1e-11
