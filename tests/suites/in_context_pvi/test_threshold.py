"""Thresholds by hand, and from scikit-learn's isotonic regression."""

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from evaluator.suites.in_context_pvi.report_figures import threshold_text
from evaluator.suites.in_context_pvi.summary import judged_queries, thresholds
from tests.suites.in_context_pvi.pvi_answers import run_table

Queries = list[tuple[float, bool]]


def found(queries: Queries) -> tuple[float, float]:
    table = run_table([value for value, _ in queries], [right for _, right in queries])
    row = thresholds(judged_queries(table)).row(0, named=True)
    return row["threshold"], row["threshold_accuracy"]


def test_a_clean_cut_lies_halfway_between_wrong_and_right() -> None:
    assert found([(3.0, True), (-2.0, False), (1.0, True), (0.0, False)]) == (0.5, 1.0)


def test_a_wrong_answer_among_right_ones_is_outweighed() -> None:
    # Sums of (correct - 1/2) over all from a query up: at -2 0, at -1 0.5, at 0 0, at 1 0.5, at 2 1, at 3 0.5.
    # The highest is from 2 up, one query after another: F T F F T T. Right of the cut 2 of 2, left of it 3 of 4 wrong.
    queries = list(zip([-2.0, -1, 0, 1, 2, 3], [False, True, False, False, True, True], strict=True))
    assert found(queries) == (1.5, pytest.approx(5 / 6))


def test_equal_pvis_stand_on_one_side() -> None:
    # At 0 one of three is right, at 1 both are: the fit is 1/3 and 1.
    assert found([(0.0, True), (0.0, False), (0.0, False), (1.0, True), (1.0, True)]) == (0.5, pytest.approx(4 / 5))


def test_where_exactly_half_are_right_the_fit_is_one_half_from_there_up() -> None:
    assert found([(0.0, False), (1.0, True), (1.0, False), (2.0, True)])[0] == 0.5


def test_accuracy_that_never_crosses_has_an_infinite_threshold() -> None:
    assert found([(0.0, True), (1.0, True)]) == (-math.inf, 1.0)
    assert found([(0.0, False), (1.0, False)]) == (math.inf, 1.0)
    # Falling with PVI: the fit is flat at 2/3 and at 1/3.
    assert found([(0.0, True), (1.0, True), (2.0, False)]) == (-math.inf, pytest.approx(2 / 3))
    assert found([(0.0, True), (1.0, False), (2.0, False)]) == (math.inf, pytest.approx(2 / 3))


@given(st.lists(st.tuples(st.integers(-6, 6), st.booleans()), min_size=2, max_size=40))
def test_thresholds_are_where_the_isotonic_regression_of_scikit_learn_reaches_one_half(
    queries: list[tuple[int, bool]],
) -> None:
    values = np.array([value for value, _ in queries], dtype=float)
    right = np.array([answer for _, answer in queries], dtype=float)
    fit = IsotonicRegression().fit(values, right)
    distinct = np.unique(values)
    fitted = fit.predict(distinct)
    assume(len(distinct) > 1)
    above = fitted >= 0.5 - 1e-9
    if above.all():
        expected = -math.inf
    elif not above.any():
        expected = math.inf
    else:
        first = int(above.argmax())
        expected = (distinct[first - 1] + distinct[first]) / 2
    threshold, accuracy = found([(float(value), answer) for value, answer in queries])
    assert threshold == expected
    assert accuracy == pytest.approx(((values > threshold) == right).mean())
    # No other cut agrees with more queries.
    cuts = [-math.inf, *(distinct[:-1] + distinct[1:]) / 2, math.inf]
    assert accuracy == pytest.approx(max(((values > cut) == right).mean() for cut in cuts))


def test_runs_are_cut_one_by_one() -> None:
    table = pl.concat([run_table([0.0, 1], [False, True]), run_table([4.0, 8], [False, True], demonstration_set=1)])
    assert thresholds(judged_queries(table)).sort("demonstration_set")["threshold"].to_list() == [0.5, 6.0]


@pytest.mark.parametrize(
    ("threshold", "text"),
    [
        (None, "no threshold"),
        (-math.inf, "at least half are right from the lowest PVI up"),
        (math.inf, "at least half are right at no PVI"),
        (-0.5, "at least half are right from -0.500 bits up"),
    ],
)
def test_a_threshold_is_told_in_words(threshold: float | None, text: str) -> None:
    assert threshold_text(threshold) == text
