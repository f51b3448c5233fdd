"""The reduced_bias calibration error and its interval: single bins against SciPy, and bins of real requests."""

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluator.metrics.classification import bins_of
from evaluator.metrics.intervals import EXTRA_VARIANCE, Bins, calibration_errors, reduced_bias
from evaluator.schemas import METRICS_KEY


def one_bin(accuracy: float, confidence: float, n: float) -> Bins:
    return Bins(*(np.array([[value]]) for value in (1.0, accuracy, confidence, n, EXTRA_VARIANCE / n**2)))


def test_the_upper_end_of_one_bin_is_the_farther_end_of_wilsons_interval() -> None:
    # 64 of 80 right at a confidence of 0.85: Wilson's interval of 0.8 reaches farther down than up.
    wilson = stats.binomtest(64, 80).proportion_ci(method="wilson")
    assert calibration_errors(one_bin(0.8, 0.85, 80)).ci_high[0] == pytest.approx(0.85 - wilson.low, abs=1e-6)


def test_a_gap_that_a_calibrated_model_is_expected_to_show_is_reduced_bias_to_none() -> None:
    # The mean of |x| of a normal x is sqrt(2 / pi) of its deviation: sqrt(0.8 x 0.2 / 100) = 0.04, so 0.0319.
    just_below = calibration_errors(one_bin(0.8 - 0.0318, 0.8, 100))
    just_above = calibration_errors(one_bin(0.8 - 0.0322, 0.8, 100))
    assert just_below.reduced_bias[0] == just_below.ci_low[0] == just_above.ci_low[0] == 0.0
    assert just_above.reduced_bias[0] > 0.0


def test_the_reduced_bias_gap_is_the_one_that_is_expected_to_show_as_the_observed_one() -> None:
    observed, deviation = 0.06, np.sqrt(0.75 * 0.25 / 100)
    found = calibration_errors(one_bin(0.75, 0.75 + observed, 100)).reduced_bias[0]
    # At the true gap the accuracy is 0.81 less it, and so is the deviation.
    accuracy = 0.75 + observed - found
    deviation = np.sqrt(accuracy * (1 - accuracy) / 100)
    assert stats.foldnorm(found / deviation, scale=deviation).mean() == pytest.approx(observed, abs=1e-9)


def test_far_from_calibration_nothing_is_taken_away_and_the_interval_is_the_normal_one() -> None:
    found = calibration_errors(one_bin(0.6, 0.9, 4_000))
    reach = stats.norm.ppf(0.975) * np.sqrt(0.6 * 0.4 / 4_000)
    assert found.reduced_bias[0] == pytest.approx(0.3, abs=1e-6)
    assert (found.ci_low[0], found.ci_high[0]) == pytest.approx((0.3 - reach, 0.3 + reach), abs=5e-4)


def test_bins_without_requests_change_nothing() -> None:
    bins = Bins(*(np.array([row]) for row in ([0.5, 0.5], [0.8, 0.5], [0.7, 0.6], [40.0, 40.0], [1e-5, 1e-5])))
    padded = Bins(*(np.pad(field, ((0, 0), (0, 3))) for field in bins))
    for plain, with_empty in zip(calibration_errors(bins), calibration_errors(padded), strict=True):
        assert with_empty == pytest.approx(plain, abs=1e-12)


def test_a_mean_over_datasets_has_a_quarter_of_the_extra_variance_of_two() -> None:
    # So many requests that only the extra variance of 0.001 of each dataset is left; both gaps are 0.1.
    bins = Bins(*(np.array([value]) for value in (1.0, 0.7, 0.8, 1e9, 1e-3)))
    row = {**dict.fromkeys(METRICS_KEY, "x"), "interval": "bins", "bins": bins, "value": 0.1, "standard_error": 0.01}
    found = reduced_bias([{**row, "dataset": "a"}, {**row, "dataset": "b"}]).filter(dataset="mean")
    low, variance = found["ci_low"].item(), 2e-3 / 4
    assert stats.gamma(low**2 / variance, scale=variance / low).ppf(0.975) == pytest.approx(0.1, abs=1e-4)


def requests(confidence: list[float], correct: list[bool], query: list[int]) -> pl.DataFrame:
    return pl.DataFrame({"query_id": query, "confidence": confidence, "correct": correct}).with_columns(
        bin=(pl.col("confidence") * 10).cast(pl.Int64)
    )


def test_bins_count_a_querys_equal_answers_once() -> None:
    once = requests([0.62, 0.64, 0.85, 0.88], [True, False, True, True], [0, 1, 2, 3])
    bins = bins_of(once)
    assert (bins.share.tolist(), bins.accuracy.tolist()) == ([0.5, 0.5], [0.5, 1.0])
    assert bins.confidence == pytest.approx([0.63, 0.865])
    assert bins.n == pytest.approx([2, 2])
    assert bins.extra == pytest.approx([0.5 * 0.25 / 4**2] * 2)  # each half of a quarter of one of 4 requests, squared
    twice = bins_of(pl.concat([once, once]))
    assert twice.n == pytest.approx(bins.n)
    apart = bins_of(pl.concat([once, once.with_columns(pl.col("query_id") + 4)]))
    assert apart.n == pytest.approx([4, 4])


def test_answers_of_a_query_that_differ_count_up_to_twice() -> None:
    # Gaps 0.4 and -0.6 of each query add up to -0.2, half of which is the bin's mean: no query differs from another.
    rows = requests([0.6] * 4, [True, False, True, False], [0, 0, 1, 1])
    assert bins_of(rows).n == pytest.approx([2.0])  # nothing varies between queries: as many as queries
    mixed = requests([0.6] * 6, [True, False, True, False, True, True], [0, 0, 1, 1, 2, 2])
    # Residuals 1/3, -2/3, 1/3, -2/3, 1/3, 1/3: squares add up to 12/9; sums of queries -1/3, -1/3, 2/3: 6/9.
    # Six requests are worth 6 x 12/6 = 12, but no more than two a query.
    assert bins_of(mixed).n == pytest.approx([6.0])
    assert bins_of(pl.concat([mixed, mixed])).n == pytest.approx(
        [6.0]
    )  # twelve requests are worth 12, of three queries
    # Gaps 0.4, 0.2 and -0.4, -0.2: squares add up to 0.4, of sums of queries 0.6 and -0.6 to 0.72.
    unsure = requests([0.6, 0.8, 0.4, 0.2], [True, True, False, False], [0, 0, 1, 1]).with_columns(bin=0)
    assert bins_of(unsure).n == pytest.approx([4 * 0.4 / 0.72])
