"""The best of several random classifiers, against hand-worked numbers, exact arithmetic, SciPy and the paper's code."""

import math
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from max_random_baseline import max_random_baseline, max_random_p_value
from scipy import special, stats

import evaluator
from evaluator.random_baselines import (
    max_random_accuracy,
    max_random_cdf,
    max_random_pmf,
    max_random_quantile,
    max_random_tail,
)
from tests.random_baselines import exact

TOLERANCE = 1e-11
"""Largest relative error against exact arithmetic; the documentation promises 1e-9."""

SMALLEST = Decimal("1e-300")
MIXED = [0.5, 0.25, 1 / 3, 1e-9, 0.999999, 0.5, 0.8, 0.04] * 7

chances = st.floats(1e-6, 1 - 1e-6)
sizes = st.integers(1, 60)
many_tries = st.integers(1, 10**12)


def test_two_coin_flips_twice_worked_by_hand() -> None:
    # F = 1/4, 3/4, 1, squared 1/16, 9/16, 1: masses 1/16, 8/16, 7/16; mean of the maximum (8 + 14) / 16 = 11/8 of 2
    assert max_random_pmf(2, 0.5, 2).tolist() == pytest.approx([1 / 16, 8 / 16, 7 / 16])
    assert max_random_cdf(2, 0.5, 2).tolist() == pytest.approx([1 / 16, 9 / 16, 1])
    assert max_random_accuracy(2, 0.5, 2) == pytest.approx(11 / 16)
    assert max_random_tail([0, 1, 2], 2, 0.5, 2).tolist() == pytest.approx([1, 15 / 16, 7 / 16])


def test_different_chances_worked_by_hand() -> None:
    # Of chances 1/2 and 1/4: P(0) = 3/8, P(1) = 1/2 * 3/4 + 1/2 * 1/4 = 4/8, P(2) = 1/8; of the best of two
    # F^2 = 9/64, 49/64, 1: the mean of the maximum is 55/64 + 15/64 = 70/64 of 2
    assert max_random_accuracy(2, [0.5, 0.25], 2) == pytest.approx(35 / 64)
    assert max_random_accuracy(2, {2: 1, 4: 1}, 2) == pytest.approx(35 / 64)
    assert max_random_tail(2, 2, [0.25, 0.5], 2) == pytest.approx(15 / 64)


def test_the_papers_example_to_more_digits() -> None:
    # n = 100, p = 1/2, t = 10: 0.575 in the paper's text, 0.57678 exactly
    assert max_random_accuracy(100, 0.5, 10) == pytest.approx(0.57678, abs=5e-6)
    assert exact.max_accuracy([0.5] * 100, 10).quantize(Decimal("0.00001")) == Decimal("0.57678")


@pytest.mark.parametrize("tries", [1, 2, 200, 10**12])
@pytest.mark.parametrize(
    "chances",
    [[0.5], [0.3] * 2, [1 / 3] * 17, [0.5] * 200, [0.97] * 40, [1e-6] * 40, [1 - 1e-9] * 30, MIXED, MIXED[:3]],
    ids=["coin", "two", "seventeen", "coins", "easy", "rare", "sure", "mixed", "three"],
)
def test_values_and_tails_down_to_1e_300_are_those_of_exact_arithmetic(chances: list[float], tries: int) -> None:
    n, chance = len(chances), chances if len(set(chances)) > 1 else chances[0]
    assert exact.relative_error(max_random_accuracy(n, chance, tries), exact.max_accuracy(chances, tries)) < TOLERANCE
    tails, cdf = exact.max_tail(chances, tries), exact.max_cdf(chances, tries)
    for expected, found in zip(tails, max_random_tail(range(n + 1), n, chance, tries), strict=True):
        assert expected < SMALLEST or exact.relative_error(found, expected) < TOLERANCE
    for expected, found in zip(cdf, max_random_cdf(n, chance, tries), strict=True):
        assert expected < SMALLEST or exact.relative_error(found, expected) < TOLERANCE
    at_most, masses = Decimal(0), max_random_pmf(n, chance, tries)
    for expected, found in zip(cdf, masses, strict=True):
        mass, at_most = exact.CONTEXT.subtract(expected, at_most), expected
        assert mass < SMALLEST or exact.relative_error(found, mass) < TOLERANCE


@pytest.mark.parametrize("chances", [[0.004] * 150, [1e-30, 0.5, 1e-9] * 30, MIXED * 4], ids=["equal", "rare", "mixed"])
def test_log_tails_go_on_where_floats_end(chances: list[float]) -> None:
    # of one try P(X >= k) itself; of t tries it is t P(X >= k) but for one part in 1e-280
    n, masses = len(chances), exact.masses(chances)
    chance = chances if len(set(chances)) > 1 else chances[0]
    tails = list(accumulate(reversed(masses)))[::-1]
    assert exact.log10(tails[n]) < -330
    for tries in (1, 10**12):
        found = max_random_tail(range(n + 1), n, chance, tries, log10=True)
        for expected, log10 in zip(tails, found, strict=True):
            if tries == 1 or expected < Fraction(1, 10**30):
                assert log10 == pytest.approx(exact.log10(expected) + math.log10(tries), rel=1e-11, abs=1e-11)


def test_all_right_by_guessing_is_the_chance_to_the_power_of_n() -> None:
    assert max_random_tail(10_000, 10_000, 0.5, 1e12, log10=True) == pytest.approx(
        12 - 10_000 * math.log10(2), rel=1e-12
    )
    counts = {2: 5_000, 5: 5_000}
    expected = 2 - 5_000 * (math.log10(2) + math.log10(5))
    assert max_random_tail(10_000, 10_000, counts, 100, log10=True) == pytest.approx(expected, rel=1e-12)
    assert max_random_tail(10_000, 10_000, counts, 100) == 0


def test_a_log_tail_keeps_its_digits_beside_certainty() -> None:
    # one right or more of 100 coin flips: log10(1 - 2^-100) = -2^-100 / ln 10, but for one part in 2^100
    expected = -(2.0**-100) / math.log(10)
    assert max_random_tail(1, 100, 0.5, log10=True) == pytest.approx(expected, rel=1e-12, abs=0)


def test_ten_thousand_coin_flips_are_those_of_exact_arithmetic() -> None:
    n, ways, at_least = 10_000, 1, [1]  # of the 2^n outcomes, with n right, then n or n - 1, and so on
    for k in range(n, n // 2, -1):
        ways = ways * k // (n - k + 1)
        at_least.append(at_least[-1] + ways)
    for k in (5_000, 5_001, 5_100, 6_000, 6_800):
        expected = exact.decimal(Fraction(at_least[n - k], 2**n))
        assert expected > SMALLEST
        assert exact.relative_error(max_random_tail(k, n, 0.5), expected) < 1e-10
    for k in (6_900, 8_000, 9_999):
        expected = exact.log10(Fraction(at_least[n - k], 2**n))
        assert expected < -300
        assert max_random_tail(k, n, 0.5, log10=True) == pytest.approx(expected, rel=1e-13)


def test_the_baseline_of_two_thousand_coin_flips_is_that_of_exact_arithmetic() -> None:
    expected = exact.max_accuracy([0.5] * 2_000, 200)
    assert exact.relative_error(max_random_accuracy(2_000, 0.5, 200), expected) < TOLERANCE


@pytest.mark.parametrize("n", [10_000, 10**6, 10**7])
def test_large_n_agrees_with_scipys_incomplete_beta_function(n: int) -> None:
    deviations = np.array([-2, 0, 1, 3, 10, 20, 30]) * math.sqrt(n / 4)
    correct = (n // 2 + deviations).astype(int)
    np.testing.assert_allclose(
        max_random_tail(correct, n, 0.5), special.betainc(correct, n - correct + 1, 0.5), rtol=1e-9
    )


def test_different_chances_agree_with_scipys_poisson_binomial() -> None:
    different = np.random.default_rng(0).uniform(0.01, 0.99, 400)
    expected = stats.poisson_binom.pmf(np.arange(401), different)
    np.testing.assert_allclose(max_random_pmf(400, different), expected, rtol=1e-10, atol=1e-305)


@pytest.mark.parametrize("tries", [1, 10, 200])
@pytest.mark.parametrize("chance", [0.5, 0.2, {2: 60, 5: 40}, [0.5] * 30 + [0.3] * 70])
def test_the_papers_package_agrees_where_it_is_right(chance: object, tries: int) -> None:
    assert max_random_accuracy(100, chance, tries) == pytest.approx(max_random_baseline(100, chance, tries), rel=1e-9)
    for correct in (30, 45, 57):
        # It rounds down n x accuracy - 1; a quarter of an example more keeps 57/100 out of the neighbouring bin.
        theirs = max_random_p_value((correct + 0.25) / 100, 100, chance, tries)
        assert max_random_tail(correct, 100, chance, tries) == pytest.approx(theirs, abs=1e-10)


def test_ten_billion_tries_where_the_papers_package_is_wrong() -> None:
    assert max_random_accuracy(1000, 0.5, 1e10) == pytest.approx(0.6016, abs=5e-5)
    assert max_random_baseline(1000, 0.5, 10**10) == pytest.approx(0.6031, abs=5e-5)
    # 57 of 100 are 57 right, though 57/100 * 100 - 1 rounds down to 55
    at_least_57 = Fraction(sum(math.comb(100, k) for k in range(57, 101)), 2**100)
    assert max_random_tail(57, 100, 0.5) == pytest.approx(float(at_least_57), rel=1e-12)
    assert max_random_p_value(57 / 100, 100, 0.5, 1) > 1.3 * float(at_least_57)


@given(sizes, chances, many_tries)
def test_more_tries_never_lower_the_baseline_nor_the_tails(n: int, chance: float, tries: int) -> None:
    more = [tries, 2 * tries, 50 * tries]
    assert (np.diff(max_random_accuracy(n, chance, more)) >= -1e-12).all()
    assert (np.diff(max_random_tail(np.arange(n + 1)[:, None], n, chance, more), axis=1) >= -1e-12).all()


@given(sizes, chances, many_tries)
def test_more_examples_never_raise_the_baseline(n: int, chance: float, tries: int) -> None:
    assert max_random_accuracy(n + 1, chance, tries) <= max_random_accuracy(n, chance, tries) + 1e-12


@given(sizes, chances, many_tries)
def test_none_right_is_certain_and_more_right_is_rarer(n: int, chance: float, tries: int) -> None:
    tails = max_random_tail(range(n + 1), n, chance, tries)
    assert tails[0] == 1
    assert max_random_tail(0, n, chance, tries, log10=True) == 0
    assert (np.diff(tails) <= 0).all()


@given(sizes, chances)
def test_one_try_is_the_plain_binomial(n: int, chance: float) -> None:
    k = np.arange(n + 1)
    assert max_random_accuracy(n, chance) == chance
    np.testing.assert_allclose(max_random_tail(k, n, chance), stats.binom.sf(k - 1, n, chance), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(max_random_pmf(n, chance), stats.binom.pmf(k, n, chance), rtol=1e-9, atol=1e-300)


@given(sizes, chances, many_tries)
def test_equal_chances_given_one_by_one_are_the_binomial(n: int, chance: float, tries: int) -> None:
    np.testing.assert_allclose(max_random_cdf(n, [chance] * n, tries), max_random_cdf(n, chance, tries), rtol=1e-12)
    assert max_random_accuracy(n, [chance] * n, tries) == pytest.approx(
        max_random_accuracy(n, chance, tries), rel=1e-12
    )


@given(
    st.lists(chances, min_size=1, max_size=40).flatmap(lambda given: st.tuples(st.just(given), st.permutations(given)))
)
def test_the_order_of_examples_changes_nothing(orders: tuple[list[float], list[float]]) -> None:
    one, other = orders
    assert max_random_accuracy(len(one), one, 7) == max_random_accuracy(len(one), other, 7)


@given(sizes, chances, many_tries)
def test_masses_and_tails_are_parts_of_one_distribution(n: int, chance: float, tries: int) -> None:
    masses, cdf = max_random_pmf(n, chance, tries), max_random_cdf(n, chance, tries)
    np.testing.assert_allclose(np.cumsum(masses), cdf, atol=1e-12)
    np.testing.assert_allclose(cdf[:-1] + max_random_tail(range(1, n + 1), n, chance, tries), 1, atol=1e-12)
    mean = (masses * np.arange(n + 1)).sum() / n
    assert max_random_accuracy(n, chance, tries) == pytest.approx(mean, rel=1e-9, abs=1e-300)


@given(sizes, chances, many_tries, st.floats(1e-3, 0.999))
def test_a_quantile_is_the_smallest_count_that_is_enough(n: int, chance: float, tries: int, q: float) -> None:
    cdf = max_random_cdf(n, chance, tries)
    count = max_random_quantile(q, n, chance, tries)
    assert cdf[count] >= q * (1 - 1e-9)
    assert count == 0 or cdf[count - 1] < q


def test_quantiles_worked_by_hand_count_a_probability_that_is_just_reached() -> None:
    # two coin flips: P(X <= 0) = 1/4, P(X <= 1) = 3/4
    assert max_random_quantile([0.2, 0.25, 0.26, 0.75, 0.76], 2, 0.5).tolist() == [0, 0, 1, 1, 2]
    # three: P(X <= 2) = 7/8; four: P(X <= 1) = 1/16 + 4/16. Logarithms of both are rounded on the way.
    assert max_random_quantile([7 / 8, 5 / 16], [3, 4], 0.5).tolist() == [2, 1]
    assert isinstance(max_random_quantile(0.5, 10, 0.5), int)


def test_the_top_level_names_are_these_functions() -> None:
    assert evaluator.max_random_accuracy is max_random_accuracy
    assert evaluator.max_random_tail is max_random_tail


@pytest.mark.parametrize("counts", [[790], [765, 795], [765, 800]], ids=["one", "apart", "to the end"])
def test_far_tails_are_the_same_whatever_others_are_computed_with_them(counts: list[int]) -> None:
    sizes = {5: 300, 4: 300, 2: 200}
    masses = exact.masses([1 / choices for choices, n in sizes.items() for _ in range(n)])
    found = max_random_tail(counts, 800, sizes, log10=True)
    for count, log10 in zip(counts, found, strict=True):
        expected = exact.log10(sum(masses[count:], Fraction(0)))
        assert expected < -300
        assert log10 == pytest.approx(expected, rel=TOLERANCE)
