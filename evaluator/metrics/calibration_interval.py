"""Estimate the calibration error on infinitely many requests, and its 95% interval, from the bins of finitely many.

Even where a model is perfectly calibrated, accuracy and mean confidence of a bin differ, and the calibration error adds
up these gaps whatever their sign. So its value on n requests, which the papers define, is too high on average, and may
be many standard errors above the true one. docs/coverage.md has simulations of what is here; it uses no random numbers.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import gammaincinv, ndtr

from evaluator.arrays import Floats

Z = 1.959963984540054
"""Normal quantile of a two-sided 95% interval."""

EXTRA_VARIANCE = 0.25
"""Variance, in requests, that the sum of all gaps has beyond those of the bins. Few wrong answers are a skewed count;
without it, one of 32 would refute a calibrated confidence of 0.997, though that happens in 9% of samples."""

STEPS = 60  # of bisection, enough for all digits


class Bins(NamedTuple):
    """Confidence bins; all of [bins] for one dataset, or [rows, bins] filled up with bins of share 0."""

    share: Floats  # of all requests
    accuracy: Floats
    confidence: Floats  # mean
    n: Floats  # independent requests that those of the bin are worth
    extra: Floats  # EXTRA_VARIANCE in units of the squared error, divided among the bins


class CalibrationErrors(NamedTuple):
    """Estimates of true calibration errors, [rows]."""

    reduced_bias: Floats
    ci_low: Floats
    ci_high: Floats


def bins_of(requests: pl.DataFrame) -> Bins:
    """Return the bins of per-request columns that hold a request; requests in no bin count in the total alone.

    Requests of one query are not independent. With r the gap of a request less the mean gap of its bin, n requests are
    worth n x sum r^2 / sum over queries of (sum of r)^2 (a design effect, Kish 1965), but no fewer than one a query and
    no more than two.
    """
    gap = pl.col("correct").cast(pl.Float64) - pl.col("confidence")
    gaps = requests.select("query_id", "bin", "correct", "confidence", gap=gap)
    in_bins = gaps.filter(pl.col("bin").is_not_null()).group_by("bin", maintain_order=True)
    bins = in_bins.agg(pl.len(), pl.col("correct", "confidence", "gap").sum()).sort("bin")
    mean_gap = dict(bins.select("bin", pl.col("gap") / pl.col("len")).iter_rows())
    of_bin = pl.col("bin").replace_strict(mean_gap, default=None, return_dtype=pl.Float64)
    residuals = gaps.select("query_id", residual=(pl.col("gap") - of_bin).fill_null(0.0))
    in_query = residuals.group_by("query_id", maintain_order=True).agg(pl.col("residual").sum())["residual"].to_numpy()
    n_requests, n_queries = requests.height, len(in_query)
    clustered, squares = float(in_query @ in_query), float((residuals["residual"] ** 2).sum())
    worth = n_requests * squares / clustered if clustered > 1e-12 * n_requests else n_queries
    size = bins["len"].to_numpy()
    share = size / n_requests
    n = share * np.clip(worth, n_queries, 2 * n_queries)
    extra = EXTRA_VARIANCE * share * (share / n) ** 2
    return Bins(share, bins["correct"].to_numpy() / size, bins["confidence"].to_numpy() / size, n, extra)


def calibration_errors(bins: Bins) -> CalibrationErrors:
    """Estimate the sum over bins of share x |accuracy - mean confidence| on infinitely many requests.

    If the true gaps were d, the expected size of a gap and its variance would be those of a folded normal variable
    (Leone, Nelson & Nottingham 1961). Observed gaps are shrunk towards 0, all by as many standard errors, until

    - `reduced_bias`: these expectations add up to the observed sum. It is the sum of the shrunken gaps, and 0 where a
      calibrated model is expected to show as much.
    - `ci_low`: the observed sum is the 97.5% quantile of the gamma distribution with these means and variances.

    `ci_high` is the observed sum plus the root sum of squares of the distances to the farther end of Wilson's interval
    in each bin (Zou & Donner 2008). A larger bound is not needed: whatever the signs of the true gaps, the observed sum
    is at least the sum of the gaps with these signs, which is unbiased.

    Kumar, Liang & Ma 2019, "Verified Uncertainty Calibration", debias the sum of squared gaps; the papers measured here
    add up absolute ones. Their bootstrap for these, and twice the observed sum less its expectation, take away less
    than half of the bias of a calibrated model.
    """
    share, confidence = np.maximum(bins.share, 1e-300), bins.confidence
    difference = bins.accuracy - confidence
    gaps = bins.share * np.abs(difference)
    observed = gaps.sum(axis=1)
    n = np.maximum(bins.n, 1e-300)
    scale = np.maximum(_deviation(bins.share, confidence, n), 1e-12)
    largest = (gaps / scale).max(axis=1)

    def shrunk(threshold: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the sum of the gaps less `threshold` standard errors, and mean and variance of what it would show."""
        true = np.maximum(gaps - threshold[:, None] * scale, 0.0)
        true[threshold >= largest] = 0.0  # exactly
        accuracy = np.clip(confidence + np.sign(difference) * true / share, 0.0, 1.0)
        mean, variance = _folded_normal(true, _deviation(bins.share, accuracy, n))
        return true.sum(axis=1), mean.sum(axis=1), variance.sum(axis=1) + bins.extra.sum(axis=1)

    def reaches(threshold: Floats) -> npt.NDArray[np.bool_]:
        _, mean, variance = shrunk(threshold)
        mean = np.maximum(mean, 1e-300)
        return np.asarray(variance / mean * gammaincinv(mean**2 / variance, 0.975) >= observed)

    reduced_bias = shrunk(_last(lambda threshold: shrunk(threshold)[1] >= observed, largest))[0]
    low = shrunk(_last(reaches, largest))[0]
    return CalibrationErrors(reduced_bias, low, np.minimum(observed + _distance_up(bins, difference, n), 1.0))


def _distance_up(bins: Bins, difference: Floats, n: Floats) -> Floats:
    spread = Z * np.sqrt(n * bins.accuracy * (1 - bins.accuracy) + Z**2 / 4)
    ends = ((n * bins.accuracy + Z**2 / 2 + sign * spread) / (n + Z**2) for sign in (-1, 1))
    low, high = (np.abs(end - bins.confidence) for end in ends)
    distances = bins.share * (np.maximum(low, high) - np.abs(difference))
    # How many requests fall into which bin varies as well.
    gaps = bins.share * np.abs(difference)
    of_shares = (gaps * np.abs(difference)).sum(axis=1) - gaps.sum(axis=1) ** 2
    total = np.maximum(bins.n.sum(axis=1), 1e-300)
    return np.asarray(np.sqrt((distances**2).sum(axis=1) + Z**2 * np.maximum(of_shares, 0.0) / total))


def _deviation(share: Floats, accuracy: Floats, n: Floats) -> Floats:
    return np.asarray(share * np.sqrt(accuracy * (1 - accuracy) / n))


def _folded_normal(mean: Floats, deviation: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of |x| for normal x."""
    ratio = np.minimum(mean / np.maximum(deviation, 1e-300), 1e3)
    folded = deviation * np.sqrt(2 / np.pi) * np.exp(-(ratio**2) / 2) + mean * (2 * ndtr(ratio) - 1)
    return folded, np.maximum(mean**2 + deviation**2 - folded**2, 0.0)


def _last(is_reached: Callable[[Floats], npt.NDArray[np.bool_]], largest: Floats) -> Floats:
    """Return the largest threshold, up to `largest`, at which it is reached; bisection, [rows]."""
    low, high = np.zeros_like(largest), largest
    at_end = is_reached(largest)
    for _ in range(STEPS):
        middle = (low + high) / 2
        reached = is_reached(middle)
        low, high = np.where(reached, middle, low), np.where(reached, high, middle)
    return np.where(at_end, largest, low)
