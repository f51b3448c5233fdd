"""Both analyses of variance against SciPy, least squares and numbers worked by hand."""

import math

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg, stats

from evaluator.errors import MetricError
from evaluator.statistics.variance_components import (
    ONE_WAY,
    REPEATED_MEASURES,
    one_way,
    one_way_by,
    one_way_reach,
    repeated_measures,
    repeated_measures_by,
)

Floats = npt.NDArray[np.float64]
SEEDS = st.integers(0, 2**32 - 1)


def drawn(seed: int, n_queries: int, n_conditions: int) -> Floats:
    """Queries that differ more than conditions do, and conditions of unequal spread."""
    random = np.random.default_rng(seed)
    spread = np.arange(1, n_conditions + 1)
    own = random.normal(size=(n_queries, 1)) * 3
    return np.asarray(own + random.normal(size=(n_queries, n_conditions)) * spread + 0.3 * spread)


def test_one_way_of_three_sets_with_two_runs_each_is_worked_by_hand() -> None:
    # Means 2, 3, 7, overall 4. Between: 2 (4 + 1 + 9) = 28 over 2 degrees of freedom, within: six squares of 1 over 3.
    # F = 14 / 2 = 7. With 2 and d degrees of freedom, p = (1 + 2 F / d) ** (-d / 2) = (1 + 14 / 3) ** -1.5.
    found = one_way([np.array([1.0, 3.0]), np.array([2.0, 4.0]), np.array([6.0, 8.0])])
    assert (found.f, found.df_between, found.df_within) == (pytest.approx(7), 2, 3)
    assert found.p == pytest.approx((17 / 3) ** -1.5, rel=1e-12)


@given(SEEDS, st.lists(st.integers(2, 9), min_size=2, max_size=6))
def test_one_way_is_that_of_scipy_for_groups_of_any_sizes(seed: int, sizes: list[int]) -> None:
    random = np.random.default_rng(seed)
    groups = [random.normal(0.2 * place, 1, size) for place, size in enumerate(sizes)]
    expected = stats.f_oneway(*groups)
    found = one_way(groups)
    assert (found.f, found.p) == pytest.approx((expected.statistic, expected.pvalue), rel=1e-9)


def test_an_f_that_is_not_defined_is_nan_and_one_without_spread_within_groups_is_infinite() -> None:
    same = np.array([1.0, 1.0])
    assert all(math.isnan(number) for number in one_way([same, same])[:2])
    assert all(math.isnan(number) for number in one_way([np.array([1.0, 2.0])])[:2])
    assert all(math.isnan(number) for number in one_way([np.array([1.0]), np.array([2.0])])[:2])
    assert one_way([same, same + 1])[:2] == (math.inf, 0)
    # The mean of three times 0.1 is not 0.1: what is left of equal values is rounding.
    tenths = np.full(3, 0.1)
    assert all(math.isnan(number) for number in one_way([tenths, tenths])[:2])
    assert one_way([tenths, tenths * 7])[:2] == (math.inf, 0)
    equal = repeated_measures(np.full((5, 3), 0.1))
    assert all(math.isnan(number) for number in (equal.f, equal.p, equal.epsilon, equal.corrected_p))
    assert repeated_measures(np.full((5, 3), 0.1) * [1, 2, 3]).f == math.inf
    assert all(math.isnan(number) for number in one_way_reach([same, same + 1], 0.1))


@given(SEEDS)
def test_the_reach_of_rounding_is_the_most_that_small_errors_do(seed: int) -> None:
    groups = list(np.random.default_rng(seed).normal(0, 1, (3, 2)))
    error = 1e-7
    signs = (np.array(np.unravel_index(range(64), (2,) * 6)).T * 2 - 1).reshape(64, 3, 2) * error
    base = one_way(groups)
    moved = [one_way(list(np.array(groups) + sign)) for sign in signs]
    f_reach, p_reach = one_way_reach(groups, error)
    # All corners of the cube of errors; the worst one is the sum of F's derivatives, for so small a cube.
    assert f_reach == pytest.approx(max(abs(each.f - base.f) for each in moved), rel=1e-2, abs=1e-12)
    assert p_reach == pytest.approx(max(abs(each.p - base.p) for each in moved), rel=1e-2, abs=1e-12)


def test_repeated_measures_of_three_queries_are_worked_by_hand() -> None:
    # Means of queries 2, 4, 6 and of conditions 3, 4, 5; overall 4. Queries: 3 (4 + 0 + 4) = 24 and conditions:
    # 3 (1 + 0 + 1) = 6. Left over of the rows, in turn: 0 0 0, 1 -1 0, -1 1 0: 4. F = (6 / 2) / (4 / 4) = 3.
    found = repeated_measures(np.array([[1.0, 2, 3], [4.0, 3, 5], [4.0, 7, 7]]))
    assert (found.f, found.df_condition, found.df_residual) == (pytest.approx(3), 2, 4)
    assert (found.ss_query, found.ss_condition, found.ss_residual) == pytest.approx((24, 6, 4))
    assert found.p == pytest.approx((1 + 2 * 3 / 4) ** -2)  # as above: (1 + 2 F / d) ** (-d / 2)
    # One direction, (1, -1, 0), has all of the residuals, so epsilon is the least it can be, 1 / 2: degrees of freedom
    # 1 and 2, where F is the square of a Student t of 2, whose tails are 1 - t / sqrt(2 + t ** 2).
    assert found.epsilon == pytest.approx(1 / 2)
    assert found.corrected_p == pytest.approx(1 - math.sqrt(3 / 5))


@given(SEEDS, st.integers(2, 30))
def test_two_conditions_are_a_paired_t_test(seed: int, n_queries: int) -> None:
    values = drawn(seed, n_queries, 2)
    expected = stats.ttest_rel(values[:, 0], values[:, 1])
    found = repeated_measures(values)
    assert (found.f, found.p) == pytest.approx((expected.statistic**2, expected.pvalue), rel=1e-7)
    assert (found.epsilon, found.corrected_p) == pytest.approx((1, expected.pvalue), rel=1e-7)


@given(SEEDS, st.integers(3, 12), st.integers(2, 5))
def test_f_is_that_of_least_squares_with_and_without_conditions(seed: int, n_queries: int, n_conditions: int) -> None:
    values = drawn(seed, n_queries, n_conditions)
    queries = np.kron(np.eye(n_queries), np.ones((n_conditions, 1)))
    conditions = np.kron(np.ones((n_queries, 1)), np.eye(n_conditions)[:, 1:])

    def left_over(design: Floats) -> float:
        fitted = design @ np.linalg.lstsq(design, values.ravel(), rcond=None)[0]
        return float(((values.ravel() - fitted) ** 2).sum())

    without, with_conditions = left_over(queries), left_over(np.hstack([queries, conditions]))
    df = (n_conditions - 1) * (n_queries - 1)
    expected = (without - with_conditions) / (n_conditions - 1) / (with_conditions / df)
    found = repeated_measures(values)
    assert found.f == pytest.approx(expected, rel=1e-6)
    assert found.p == pytest.approx(stats.f.sf(expected, n_conditions - 1, df), rel=1e-5)
    total = found.ss_condition + found.ss_query + found.ss_residual
    assert total == pytest.approx(float(((values - values.mean()) ** 2).sum()))


@given(SEEDS, st.integers(3, 12), st.integers(2, 5))
def test_epsilon_is_that_of_the_eigenvalues_of_orthonormal_contrasts(seed: int, n_queries: int, n: int) -> None:
    values = drawn(seed, n_queries, n)
    contrasts = linalg.helmert(n)  # orthonormal, each orthogonal to the mean
    eigenvalues = np.linalg.eigvalsh(np.atleast_2d(contrasts @ np.cov(values.T) @ contrasts.T))
    expected = eigenvalues.sum() ** 2 / ((n - 1) * (eigenvalues**2).sum())
    found = repeated_measures(values)
    assert found.epsilon == pytest.approx(expected, rel=1e-7)
    df = expected * found.df_condition, expected * found.df_residual
    assert found.corrected_p == pytest.approx(stats.f.sf(found.f, *df), rel=1e-6)


def test_of_the_same_pvis_repeated_measures_see_what_one_way_does_not() -> None:
    # Queries differ by whole bits, sets by .1 of one, and every query answers to the sets alike, within .01.
    random = np.random.default_rng(0)
    values = random.normal(0, 3, (200, 1)) + np.array([0, 0.1, 0.2]) + random.normal(0, 0.01, (200, 3))
    assert one_way(list(values.T)).p > 0.5
    assert repeated_measures(values).corrected_p < 1e-6


def rows(values: Floats, **case: object) -> pl.DataFrame:
    """One row a query and demonstration set."""
    n_queries, n_sets = values.shape
    key = {
        "query_id": np.repeat(np.arange(n_queries), n_sets),
        "demonstration_set": np.tile(np.arange(n_sets), n_queries),
    }
    named = [pl.lit(value).alias(name) for name, value in case.items()]
    return pl.DataFrame({**key, "pvi_bits": values.ravel()}).with_columns(named)


def test_tables_hold_each_group_by_itself_whatever_the_order_of_rows() -> None:
    values = {"b": drawn(1, 8, 3), "a": drawn(2, 5, 3)}
    frame = pl.concat([rows(own, model=model) for model, own in values.items()]).sample(
        fraction=1, shuffle=True, seed=3
    )
    how = {"by": ["model"], "condition": "demonstration_set", "value": "pvi_bits"}
    within, between = repeated_measures_by(frame, **how), one_way_by(frame, **how)  # type: ignore[arg-type]
    assert within.schema == pl.Schema({"model": pl.String(), **REPEATED_MEASURES})
    assert between.schema == pl.Schema({"model": pl.String(), **ONE_WAY})
    for place, model in enumerate(("a", "b")):
        assert within.row(place)[:-2] == pytest.approx((model, *repeated_measures(values[model])))
        assert between.row(place) == pytest.approx((model, *one_way(list(values[model].T))))
    assert within.select("n_queries", "n_left_out").rows() == [(5, 0), (8, 0)]


def test_queries_without_a_finite_pvi_in_every_set_are_left_out_and_counted() -> None:
    values = drawn(4, 6, 3)
    holed = values.copy()
    holed[1, 2], holed[3, 0], holed[3, 1] = -np.inf, np.nan, np.inf
    frame = rows(holed, model="m").filter(~((pl.col("query_id") == 5) & (pl.col("demonstration_set") == 0)))
    found = repeated_measures_by(frame, by=["model"], condition="demonstration_set", value="pvi_bits")
    assert found.select("n_queries", "n_left_out").row(0) == (3, 3)
    assert found["f"][0] == pytest.approx(repeated_measures(values[[0, 2, 4]]).f)


def test_a_query_that_stands_twice_under_one_set_is_refused() -> None:
    frame = rows(drawn(5, 4, 2), model="m")
    with pytest.raises(MetricError, match="query_id 3 is in more than one row"):
        repeated_measures_by(
            pl.concat([frame, frame.tail(1)]), by=["model"], condition="demonstration_set", value="pvi_bits"
        )
