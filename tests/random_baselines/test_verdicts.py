"""Verdicts between two baselines, and the number of examples that would tell, against exact rational arithmetic."""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import reduce

import polars as pl
import pytest
from scipy import stats

from evaluator.random_baselines.max_random import queries_needed, verdict

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


def distribution(chances: Sequence[Fraction]) -> list[Fraction]:
    """P(k right) for k = 0, 1, ..., of examples that are right by these chances."""

    def one_more(masses: list[Fraction], p: Fraction) -> list[Fraction]:
        return [a * (1 - p) + b * p for a, b in zip([*masses, Fraction(0)], [Fraction(0), *masses], strict=True)]

    return reduce(one_more, chances, [Fraction(1)])


def tells(accuracies: Sequence[Fraction], chances: Sequence[Fraction], tries: int) -> bool:
    """Whether some count has p_max <= 1/20 for guessing by these chances, and is reached with probability 4/5."""
    guessing, right = distribution(chances), distribution(accuracies)
    counts = range(1, len(chances) + 1)
    rare = (c for c in counts if 1 - sum(guessing[:c]) ** tries <= Fraction(1, 20))
    return any(sum(right[c:]) >= Fraction(4, 5) for c in rare)


@pytest.mark.parametrize(
    ("accuracy", "expected"),
    [(0.2, "below both"), (0.25, "below both"), (0.26, "between"), (0.3, "between"), (0.31, "above both")],
)
def test_an_accuracy_that_equals_a_baseline_is_not_above_it(accuracy: float, expected: str) -> None:
    assert pl.select(verdict(pl.lit(accuracy), pl.lit(0.25), pl.lit(0.3))).item() == expected


def test_accuracies_that_differ_from_a_baseline_in_the_last_digits_alone_equal_it() -> None:
    # 1, 2, 3 and 6 tenths add up to 12, and their mean is .3, but not in floats; nor is 3 x .1 / 3.
    mean, tenth = (0.1 + 0.2 + 0.3 + 0.6) / 4, (0.1 + 0.1 + 0.1) / 3
    assert mean > 3 / 10
    assert tenth > 1 / 10
    for accuracy, baseline in ((mean, 0.3), (0.3, mean), (tenth, 0.1), (0.1, tenth)):
        assert pl.select(verdict(pl.lit(accuracy), pl.lit(baseline), pl.lit(0.9))).item() == "below both"
        assert pl.select(verdict(pl.lit(accuracy), pl.lit(0.05), pl.lit(baseline))).item() == "between"


def test_shares_of_the_most_examples_there_may_be_are_told_from_chances_near_them() -> None:
    # 333,334 of a million is more than a third by 2/3 of a millionth, 90,910 more than an eleventh by 10/11 of one.
    accuracies, chances = pl.Series([333_334, 90_910, 333_333, 90_909]) / 1_000_000, pl.Series([1 / 3, 1 / 11] * 2)
    verdicts = pl.select(verdict(pl.lit(accuracies), pl.lit(chances), pl.lit(chances))).to_series()
    assert verdicts.to_list() == ["above both", "above both", "below both", "below both"]


def test_with_one_try_both_baselines_are_one_and_nothing_lies_between() -> None:
    accuracies = pl.Series([0.25, 250_001 / 1_000_000])
    verdicts = pl.select(verdict(pl.lit(accuracies), pl.lit(0.25), pl.lit(0.25))).to_series()
    assert verdicts.to_list() == ["below both", "above both"]


@pytest.mark.parametrize("unknown", [0, 1, 2])
def test_without_all_three_numbers_there_is_no_verdict(unknown: int) -> None:
    numbers = [pl.lit(value, pl.Float64) for value in (None if place == unknown else 0.5 for place in range(3))]
    assert pl.select(verdict(*numbers)).item() is None


def test_a_classifier_that_is_always_right_needs_as_many_examples_as_guessing_rarely_gets_all_of() -> None:
    # All of n right at two labels has probability 2^-n: 1/16 is above .05 and 1/32 is not.
    assert queries_needed(1.0, 0.5) == 5
    # Of ten tries one or more: 1 - (127/128)^10 = .075 with n = 7, 1 - (255/256)^10 = .038 with n = 8.
    assert queries_needed(1.0, 0.5, tries=10) == 8


@pytest.mark.parametrize(
    ("accuracy", "chance", "tries"),
    [
        (Fraction(7, 10), HALF, 1),
        (Fraction(7, 10), HALF, 200),
        (HALF, THIRD, 2),
        (Fraction(1, 4), Fraction(1, 6), 1),
        (Fraction(19, 20), Fraction(4, 5), 3),
        (Fraction(9, 10), Fraction(1, 10), 1000),
    ],
)
def test_the_answer_is_enough_and_one_example_fewer_is_not(accuracy: Fraction, chance: Fraction, tries: int) -> None:
    n = queries_needed(float(accuracy), float(chance), tries)
    assert n is not None
    assert tells([accuracy] * n, [chance] * n, tries)
    assert not tells([accuracy] * (n - 1), [chance] * (n - 1), tries)


@pytest.mark.parametrize(("accuracy", "tries"), [(0.51, 1), (0.501, 2), (0.5001, 200), (0.50002, 1e12)])
def test_many_examples_are_as_many_as_the_normal_approximation_says(accuracy: float, tries: float) -> None:
    # Sample size of a one-sided test of one proportion: ((z_a sqrt(p q) + z_b sqrt(P Q)) / (P - p))^2, where one guess
    # in a = 1 - .95^(1 / tries) and b = .2; 1 - .95^(1 / t) is -expm1(log(.95) / t).
    z_tail = stats.norm.isf(-math.expm1(math.log(0.95) / tries))
    spread = z_tail * 0.5 + stats.norm.isf(0.2) * math.sqrt(accuracy * (1 - accuracy))
    assert queries_needed(accuracy, 0.5, tries) == pytest.approx((spread / (accuracy - 0.5)) ** 2, rel=0.01)


def test_of_chances_that_differ_the_mean_asks_for_enough() -> None:
    # Half of the examples have two choices and half have four; their chances' mean is 3/8, and their accuracies' 1/2.
    n = queries_needed(0.5, 3 / 8, tries=3)
    assert n is not None
    n += n % 2
    assert tells([Fraction(5, 8), Fraction(3, 8)] * (n // 2), [HALF, Fraction(1, 4)] * (n // 2), 3)


@pytest.mark.parametrize("accuracy", [0.5, 0.4, math.nan, None])
def test_no_number_of_queries_tells_what_is_not_above_chance(accuracy: float | None) -> None:
    assert queries_needed(accuracy, 0.5) is None
