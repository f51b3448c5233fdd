"""Bounds of a proportion against SciPy's exact test and its beta distribution."""

import numpy as np
import pytest
from scipy import stats

from evaluator.metrics.guessing import jeffreys_interval
from evaluator.statistics.selective import proportion_interval

COUNTS = [(0, 7), (1, 7), (7, 7), (58, 100), (299, 512)]


@pytest.mark.parametrize(("successes", "n"), COUNTS)
@pytest.mark.parametrize("error", [0.2, 0.001])
def test_the_lower_bound_is_that_of_scipys_exact_test(successes: int, n: int, error: float) -> None:
    interval = stats.binomtest(successes, n, alternative="greater").proportion_ci(1 - error, method="exact")
    assert float(proportion_interval(successes, n, error)[0]) == pytest.approx(interval.low, rel=1e-9)


@pytest.mark.parametrize("truth", [0.02, 0.25, 0.5, 0.93])
def test_the_true_proportion_is_below_the_bound_as_rarely_as_stated(truth: float) -> None:
    # Exactly: the probability of every count whose bound is above the truth.
    counts = np.arange(41)
    is_above = proportion_interval(counts, 40, 0.2)[0] > truth
    assert stats.binom.pmf(counts[is_above], 40, truth).sum() <= 0.2


@pytest.mark.parametrize(("successes", "n"), [(1, 7), (58, 100), (3.5, 8)])
def test_the_bayesian_interval_has_equal_tails_of_the_posterior(successes: float, n: int) -> None:
    low, high = jeffreys_interval(successes, n)
    posterior = stats.beta(successes + 0.5, n - successes + 0.5)
    assert (posterior.cdf(low), posterior.sf(high)) == pytest.approx((0.025, 0.025))


def test_the_bayesian_interval_reaches_to_0_without_successes_and_to_1_without_failures() -> None:
    low, high = jeffreys_interval([0, 10], [10, 10])
    assert (low[0], high[1]) == (0, 1)
    assert (high[0], low[1]) == pytest.approx((stats.beta(0.5, 10.5).isf(0.025), stats.beta(10.5, 0.5).ppf(0.025)))
