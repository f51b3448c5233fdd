"""Least squares against SciPy and statsmodels, for independent points and for clusters."""

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress, pearsonr

from evaluator.statistics.correlation import correlation_interval, least_squares

TOLERANCE = 1e-9

SEEDS = st.integers(0, 2**32 - 1)


def drawn(seed: int, k: int = 2) -> tuple[np.random.Generator, list[np.ndarray], np.ndarray, list[str]]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 40))
    x = [rng.normal(size=n) for _ in range(k)]
    clusters = [f"family {place}" for place in rng.integers(0, 5, n)]
    clusters[:2] = ["family 0", "family 1"]
    return rng, x, rng.normal(size=n) + x[0], clusters


@given(SEEDS)
def test_a_line_of_independent_points_is_scipys(seed: int) -> None:
    _, (x, _), y, _ = drawn(seed)
    fit = least_squares([x], y)
    expected = linregress(x, y)
    slope = fit.estimate()
    assert slope.value == pytest.approx(expected.slope, abs=TOLERANCE)
    assert slope.p_value == pytest.approx(expected.pvalue, abs=TOLERANCE)
    assert fit.coefficients[0] == pytest.approx(expected.intercept, abs=TOLERANCE)


@given(SEEDS, st.booleans())
def test_coefficients_intervals_and_p_values_are_those_of_statsmodels(seed: int, clustered: bool) -> None:
    _, x, y, clusters = drawn(seed)
    options = {"cov_type": "cluster", "cov_kwds": {"groups": np.unique(clusters, return_inverse=True)[1]}}
    expected = sm.OLS(y, sm.add_constant(np.column_stack(x))).fit(use_t=True, **(options if clustered else {}))
    fit = least_squares(x, y, clusters if clustered else None)
    for place in range(3):
        found = fit.estimate(place)
        wanted = (expected.params[place], *expected.conf_int()[place], expected.pvalues[place])
        assert found == pytest.approx(wanted, abs=TOLERANCE)


@given(SEEDS)
def test_a_prediction_interval_is_that_of_statsmodels(seed: int) -> None:
    rng, x, y, _ = drawn(seed)
    row = np.concatenate([[1.0], rng.normal(size=2) * 3])
    expected = sm.OLS(y, sm.add_constant(np.column_stack(x))).fit().get_prediction(row[None, :])
    wanted = (expected.predicted_mean[0], *expected.conf_int(obs=True)[0])
    assert least_squares(x, y).predict(row) == pytest.approx(wanted, abs=TOLERANCE)


@given(SEEDS)
def test_the_interval_of_a_correlation_is_scipys(seed: int) -> None:
    _, (x, _), y, _ = drawn(seed)
    expected = pearsonr(x, y)
    assert correlation_interval(expected.statistic, len(y)) == pytest.approx(
        tuple(expected.confidence_interval()), abs=TOLERANCE
    )


def test_the_interval_of_a_correlation_takes_four_points_and_is_a_point_at_one() -> None:
    assert np.isnan(correlation_interval(0.3, 3)).all()
    assert correlation_interval(-1.0, 5) == (-1.0, -1.0)
