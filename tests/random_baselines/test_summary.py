"""One result beside its baselines: the numbers of the record, and the verdict in words."""

import math

import numpy as np
import pytest
from scipy import stats

from evaluator.errors import BaselineError
from evaluator.random_baselines.calculator import summarise, summary_text


def test_baselines_without_a_result_worked_by_hand() -> None:
    # two coin flips, the best of two: (1/2) (15/16 + 7/16) = 11/16
    summary = summarise(2, 0.5, 2)
    assert (summary.n, summary.tries, summary.chance, summary.result) == (2, 2, 0.5, None)
    assert summary.max_random == pytest.approx(11 / 16)


def test_a_result_has_both_tails_and_their_logarithms_worked_by_hand() -> None:
    # both right: 1/4 of one try, 1 - (3/4)^2 = 7/16 of the best of two
    result = summarise(2, 0.5, 2, correct=2).result
    assert result is not None
    assert (result.correct, result.accuracy) == (2, 1)
    assert (result.standard_tail, result.max_tail) == pytest.approx((1 / 4, 7 / 16))
    assert (result.log10_standard_tail, result.log10_max_tail) == pytest.approx((math.log10(1 / 4), math.log10(7 / 16)))


def test_different_numbers_of_choices_have_their_mean_as_chance() -> None:
    # (50/2 + 50/4) / 100
    assert summarise(100, {2: 50, 4: 50}, 10).chance == 0.375


@pytest.mark.parametrize(
    ("correct", "verdict", "words"),
    [
        (50, "below both", "Below both baselines: not better than guessing once."),
        (57, "between", "not above the best of 10 random classifiers"),  # 0.57678 to expect of them
        (58, "above both", "Above both baselines. The best of 10 random classifiers has as many right"),
    ],
)
def test_verdicts_lie_on_either_side_of_the_two_baselines(correct: int, verdict: str, words: str) -> None:
    summary = summarise(100, 0.5, 10, correct)
    assert summary.result is not None
    assert summary.result.verdict == verdict
    assert words in summary_text(summary)
    # The exact bound of the best of ten at error .2 / 10 is below a half for all three.
    assert summary.result.n_needed is None
    assert summary.result.accuracy_lower_bound == pytest.approx(
        stats.binomtest(correct, 100, alternative="greater").proportion_ci(0.98, method="exact").low
    )


def test_a_result_is_better_than_uniform_where_the_tail_of_the_best_is_small_and_says_how_many_examples_tell() -> None:
    # P(X >= 68) of 100 coin flips is .000204, of the best of ten .00204; P(X >= 58) is .067, of the best of ten .50.
    told, not_told = (summarise(100, 0.5, 10, correct) for correct in (68, 58))
    assert told.result is not None
    assert not_told.result is not None
    assert (told.result.better_than_uniform, not_told.result.better_than_uniform) == (True, False)
    assert "better than uniform guessing at the 5% level" in summary_text(told)
    assert "not better than uniform guessing at the 5% level" in summary_text(not_told)
    n = told.result.n_needed
    assert n is not None
    assert f"{n:,} examples" in summary_text(told)
    right = np.arange(n + 1)
    rare = 1 - stats.binom.cdf(right - 1, n, 0.5) ** 10 <= 0.05
    assert stats.binom.pmf(right[rare], n, told.result.accuracy_lower_bound).sum() >= 0.8
    assert "cannot say how many examples" in summary_text(not_told)


def test_the_text_shows_baselines_tails_and_result() -> None:
    # 0.57678 exactly (test_max_random); P(X >= 58) of 100 coin flips is 0.0666053
    lines = summary_text(summarise(100, 0.5, 10, 58)).splitlines()
    assert lines[0].split("  ")[-2:] == ["P(>= 58 right)", "log10 P"]
    assert lines[1].split() == ["chance", "0.50000", "0.06661", "-1.1765"]
    assert lines[2].split()[:6] == ["best", "of", "10", "random", "classifiers", "0.57678"]
    assert lines[3].split() == ["58", "of", "100", "right", "0.58000"]


def test_a_logarithm_that_rounds_to_zero_has_no_sign() -> None:
    lines = summary_text(summarise(100, 0.5, 10, 1)).splitlines()  # P = 1 - 2^-100, whose logarithm is below 0
    assert [line.split()[-1] for line in lines[1:3]] == ["0.0000", "0.0000"]


def test_without_a_result_the_text_is_the_two_baselines() -> None:
    assert [line.split()[-1] for line in summary_text(summarise(100, 0.5, 1)).splitlines()] == [
        "accuracy",
        "0.50000",
        "0.50000",
    ]


def test_a_tail_that_no_float_holds_is_shown_as_a_power_of_ten() -> None:
    # all of 2000 coin flips: 2^-2000 = 10^-602.06
    text = summary_text(summarise(2_000, 0.5, 1, 2_000))
    assert "10^-602.1" in text
    assert "best of 1 random classifier has" in text


def test_a_result_that_is_no_count_is_refused_before_any_verdict() -> None:
    with pytest.raises(BaselineError, match="correct must be a count"):
        summarise(100, 0.5, 10, 0.58)
