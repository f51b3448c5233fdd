"""Intervals of distances near 0, against SciPy's noncentral chi-squared distribution."""

import numpy as np
import pytest
from scipy import stats

from evaluator.metrics.intervals import distances, freedom


def test_at_the_limit_the_ends_are_those_of_a_noncentral_chi_squared_variable() -> None:
    # A bias of 0.02 at four degrees of freedom: squares of 0.005 each; the value is 10 of them.
    value, bias = np.array([0.05]), np.array([0.02])
    found = distances(value, bias, np.array([0.0]), np.array([99.0]), np.array([4.0]))
    assert found.reduced_bias == pytest.approx(0.03)
    assert found.ci_low == pytest.approx(0.0)
    assert stats.ncx2.cdf(10, 4, found.ci_high[0] / 0.005) == pytest.approx(0.025)
    # Unbiased: the mean of such a variable is its noncentrality and 4; its deviation without distance is sqrt(8).
    assert found.standard_error == pytest.approx(0.005 * np.sqrt(8))


def test_far_from_the_limit_the_interval_is_the_jackknifes() -> None:
    found = distances(np.array([0.8]), np.array([0.01]), np.array([0.05]), np.array([24.0]), np.array([2.0]))
    reach = stats.t.ppf(0.975, 24) * 0.05
    assert (found.ci_low[0], found.ci_high[0]) == pytest.approx((0.79 - reach, 0.79 + reach))


def test_degrees_of_freedom_are_the_number_of_equal_independent_errors_and_fewer_where_one_dominates() -> None:
    # Orthogonal errors of equal size in three columns; with scale 100 the third hardly counts.
    errors = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=np.float64)
    assert freedom(errors, np.ones(3)) == pytest.approx(3.0)
    # Variances 1, 1 and 1/100: (2.01)^2 / (2 + 1e-4).
    assert freedom(errors, np.array([1.0, 1.0, 100.0])) == pytest.approx(2.01**2 / 2.0001)
    # Two labels: what one gains the other loses, a single error.
    assert freedom(np.array([[0.1, -0.1], [-0.3, 0.3], [0.2, -0.2]]), np.array([0.5, 0.5])) == pytest.approx(1.0)


def test_a_label_without_probability_does_not_change_the_degrees_of_freedom() -> None:
    errors = np.array([[1, 1, 0], [1, -1, 0], [-1, 1, 0], [-1, -1, 0]], dtype=np.float64)
    assert freedom(errors, np.array([1.0, 1.0, 0.0])) == pytest.approx(2.0)
