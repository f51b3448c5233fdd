"""Spearman's rho and its p-value against SciPy's."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import permutation_test, rankdata, spearmanr

from evaluator.statistics.correlation import MAX_PERMUTED, rank_correlation

Floats = npt.NDArray[np.float64]


def series(n: int, seed: int, *, ties: bool) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, n))
    return (np.round(x), np.round(y)) if ties else (x, y)


@pytest.mark.parametrize("n", [3, 4, 5, 6, 7, 8, 9, 20, 100])
@pytest.mark.parametrize("ties", [False, True])
def test_rho_is_scipys(n: int, ties: bool) -> None:
    x, y = series(n, n, ties=ties)
    found = rank_correlation(x, y)
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert found.rho is None
    else:
        assert found.rho == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)


@pytest.mark.parametrize("n", [3, 4, 5, 6, 7])
@pytest.mark.parametrize("ties", [False, True])
def test_the_p_value_of_few_points_is_that_of_all_orders(n: int, ties: bool) -> None:
    assert n <= MAX_PERMUTED
    x, y = series(n, 100 + n, ties=ties)
    of_y = rankdata(y) - (n + 1) / 2

    def statistic(own: Floats, axis: int) -> Floats:
        """Spearman's rho of all orders at once: the correlation of ranks, whose mean is (n + 1) / 2."""
        of_own = rankdata(own, axis=axis) - (n + 1) / 2
        return np.vecdot(of_own, of_y) / np.sqrt(np.vecdot(of_own, of_own) * np.vecdot(of_y, of_y))

    assert statistic(x, -1) == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)
    expected = permutation_test((x,), statistic, permutation_type="pairings", n_resamples=np.inf)
    assert rank_correlation(x, y).p_value == pytest.approx(expected.pvalue, abs=1e-12)


@pytest.mark.parametrize("n", [9, 20, 100])
def test_the_p_value_of_many_points_is_scipys(n: int) -> None:
    assert n > MAX_PERMUTED
    x, y = series(n, n, ties=True)
    assert rank_correlation(x, y).p_value == pytest.approx(spearmanr(x, y).pvalue, rel=1e-9)
    assert rank_correlation(x, x).p_value == 0


def test_three_points_in_order_are_no_certainty() -> None:
    x = np.array([1.0, 2, 5])
    # One order of six gives rho = 1, one gives -1; SciPy's own approximation says p = 0.
    assert rank_correlation(x, x) == (1, pytest.approx(1 / 3), None)
    assert rank_correlation(x, -x) == (-1, pytest.approx(1 / 3), None)


def test_two_points_have_no_rank_correlation_and_that_is_said() -> None:
    assert rank_correlation(np.array([1.0, 2]), np.array([2.0, 1])) == (None, None, "2 points, and it takes 3")
    assert rank_correlation(np.array([1.0]), np.array([2.0])).reason == "1 point, and it takes 3"


def test_a_constant_has_no_rank_correlation_and_that_is_said() -> None:
    same = np.full(5, 0.1)
    assert rank_correlation(same, np.arange(5.0)) == (None, None, "one of them is the same everywhere")


def test_values_that_differ_by_rounding_alone_tie() -> None:
    # 0.1 + 0.2 is 0.30000000000000004.
    x, y = np.array([0.1 + 0.2, 0.3, 0.5, 0.7]), np.array([1.0, 2, 3, 4])
    assert x[0] != x[1]
    # Ranks 1.5 1.5 3 4 against 1 2 3 4: covariance 4.5, variances 4.5 and 5.
    assert rank_correlation(x, y).rho == pytest.approx(4.5 / math.sqrt(4.5 * 5))


def test_an_infinite_value_is_the_highest() -> None:
    assert rank_correlation(np.array([0.1, np.inf, 0.2]), np.array([1.0, 3, 2])).rho == 1
