"""The slope of accuracy over noise rates, against hand-worked numbers and SciPy."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluator.diagnostics.label_noise import noise_slope

RATES = (0.0, 0.25, 0.5, 0.75, 1.0)


def answers(correct_by_query: dict[int, list[list[bool]]], rates: tuple[float, ...] = RATES) -> pl.DataFrame:
    """One row an answer, from [demonstration set][rate] of each query."""
    rows = [
        {"query_id": query, "noise_rate": rate, "correct": correct}
        for query, sets in correct_by_query.items()
        for of_set in sets
        for rate, correct in zip(rates, of_set, strict=True)
    ]
    return pl.DataFrame(rows)


def test_a_slope_and_its_interval_worked_by_hand():
    # Rates 0, 1: a query's slope is (answer at 1) - (answer at 0): -1, 0, -1. Their mean is -2/3, their standard
    # deviation sqrt(((1/3)^2 + (2/3)^2 + (1/3)^2) / 2) = sqrt(1/3); t(2) at 97.5% is 4.302653.
    frame = answers({0: [[True, False]], 1: [[True, True]], 2: [[True, False]]}, rates=(0.0, 1.0))
    result = noise_slope(frame)
    reach = 4.302653 * (1 / 3) ** 0.5 / 3**0.5
    assert result.slope == pytest.approx(-2 / 3)
    assert result.ci_low == pytest.approx(-2 / 3 - reach, rel=1e-6)
    assert result.ci_high == pytest.approx(-2 / 3 + reach, rel=1e-6)


def test_the_slope_is_that_of_the_least_squares_line_through_the_accuracies():
    random = np.random.default_rng(0)
    correct = random.random((60, 2, 5)) < np.linspace(0.8, 0.4, 5)
    frame = answers({query: sets.tolist() for query, sets in enumerate(correct)})
    assert noise_slope(frame).slope == pytest.approx(stats.linregress(RATES, correct.mean((0, 1))).slope, rel=1e-12)


def test_the_interval_holds_the_true_slope_in_about_95_of_100_samples():
    random = np.random.default_rng(1)
    held = 0
    for _ in range(300):
        ease = random.uniform(
            -0.2, 0.2, (40, 1, 1)
        )  # answers to one query go together: they are no independent evidence
        correct = random.random((40, 2, 5)) < np.linspace(0.7, 0.5, 5) + ease
        frame = answers({query: sets.tolist() for query, sets in enumerate(correct)})
        slope = noise_slope(frame)
        held += slope.ci_low <= -0.2 <= slope.ci_high
    assert 0.92 <= held / 300 <= 0.98


def test_rows_in_another_order_give_the_same_slope():
    random = np.random.default_rng(2)
    frame = answers({query: sets.tolist() for query, sets in enumerate(random.random((30, 2, 5)) < 0.6)})
    shuffled = noise_slope(frame.sample(fraction=1, shuffle=True, seed=0))
    assert shuffled == pytest.approx(noise_slope(frame), rel=1e-12)
