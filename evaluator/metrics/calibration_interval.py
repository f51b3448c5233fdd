"""Estimate the calibration error on infinitely many requests, and its 95% interval, from the bins of finitely many.

Even where a model is perfectly calibrated, accuracy and mean confidence of a bin differ, and the calibration error adds
up these gaps whatever their sign. So its value on n requests, which the papers define, is too high on average, and may
be many standard errors above the true one. docs/coverage.md has simulations of what is here; it uses no random numbers.

Estimates and intervals of metrics that are biased on finitely many requests, for datasets and means over them.

Two kinds of metrics are: sums of gaps in bins (calibration_interval.py), and distances from a limit, such as a
divergence from 0. At the limit a distance has no slope: it is a quadratic form of sampling errors, which move it in one
direction only. There neither the value is unbiased nor its standard error tells how far it may be from the true one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import chndtrinc, gammaincinv, ndtr, stdtrit

from evaluator.arrays import Floats
from evaluator.metrics.intervals import NO_VARIATION
from evaluator.schemas import MEAN_OVER_DATASETS, METRICS_KEY

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
        """Return the sum of the gaps less `threshold` standard errors, and its mean and variance under calibration."""
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


UPPER = 0.975
FAR = 12.0
"""A value of so many biases is far from its limit: the jackknife's interval is enough there."""

ESTIMATES = pl.Schema(
    {**dict.fromkeys(METRICS_KEY, pl.String()), **dict.fromkeys(("reduced_bias", "ci_low", "ci_high"), pl.Float64())}
)

Row = Mapping[str, Any]
"""METRICS_KEY and the fields of base.Measured."""


def reduced_bias(rows: Iterable[Row]) -> pl.DataFrame:
    """Estimate every metric of the interval forms "bins" and "distance": ESTIMATES, means over datasets included.

    Biases of datasets have one sign and do not average out as errors do, so that a mean over datasets is estimated from
    all of them at once. It has no row where a dataset has none: with a single query, or where a value is not finite.
    """
    # The rows of each dataset, and of each mean over datasets, in order of dataset.
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["dataset"]):
        for dataset in (row["dataset"], MEAN_OVER_DATASETS):
            groups.setdefault(tuple({**row, "dataset": dataset}[name] for name in METRICS_KEY), []).append(row)
    tables = [ESTIMATES.to_frame()]
    for form, estimate in (("bins", _calibration), ("distance", _distances)):
        estimable = {
            key: members
            for key, members in groups.items()
            if members[0]["interval"] == form and all(map(_is_estimable, members))
        }
        if estimable:
            keys = pl.DataFrame([*estimable], schema=METRICS_KEY, orient="row")
            estimates = zip(("reduced_bias", "ci_low", "ci_high"), estimate([*estimable.values()]), strict=True)
            tables.append(keys.with_columns(**dict(estimates)))
    return pl.concat(tables)


def with_estimates(table: pl.DataFrame, estimates: pl.DataFrame) -> pl.DataFrame:
    """Add `reduced_bias` to rows with METRICS_KEY and an interval, and replace the interval of those that have it.

    Both limits are moved as far as the value where it lies outside.
    """
    joined = table.join(estimates, on=METRICS_KEY, how="left", suffix="_reduced_bias", maintain_order="left")
    low, high, value = pl.col("ci_low_reduced_bias"), pl.col("ci_high_reduced_bias"), pl.col("value")
    return joined.with_columns(
        ci_low=pl.when(low.is_not_null()).then(pl.min_horizontal(low, value)).otherwise("ci_low"),
        ci_high=pl.when(high.is_not_null()).then(pl.max_horizontal(high, value)).otherwise("ci_high"),
    ).drop("ci_low_reduced_bias", "ci_high_reduced_bias")


def _is_estimable(row: Row) -> bool:
    """Whether the value and its jackknife are finite, and it has more than one query; under `released` also a bin."""
    has_bins = row["interval"] != "bins" or row["bins"].share.size > 0
    error = row["standard_error"]
    is_defined = error is not None and bool(np.isfinite([row["value"], error]).all())
    # A distance that no query changes has no interval of its own: it would have no width.
    return has_bins and is_defined and (row["interval"] == "bins" or error > NO_VARIATION)


def _calibration(groups: Sequence[Sequence[Row]]) -> tuple[Floats, Floats, Floats]:
    """Estimate calibration errors of all groups together, [groups]."""
    joined = []
    for group in groups:
        # In a mean over n datasets a bin's share is an n-th of what it is in its own.
        n = len(group)
        bins = [row["bins"]._replace(share=row["bins"].share / n, extra=row["bins"].extra / n**2) for row in group]
        joined.append([np.concatenate(arrays) for arrays in zip(*bins, strict=True)])
    # Equally long rows, filled up with bins of no requests.
    width = max(len(share) for share, *_ in joined)
    fields = zip(*joined, strict=True)
    padded = (np.array([np.pad(array, (0, width - len(array))) for array in field]) for field in fields)
    return calibration_errors(Bins(*padded))


def _distances(groups: Sequence[Sequence[Row]]) -> tuple[Floats, Floats, Floats]:
    """Estimate distances from the limit of a metric that its bias points away from, [groups]."""
    names = ("value", "bias", "standard_error", "degrees_of_freedom", "bias_freedom", "lowest", "highest")
    columns = []
    for group in groups:
        numbers = np.array([[row[name] for name in names] for row in group], dtype=np.float64)
        value, bias, error, degrees, freedom, lowest, highest = numbers.T
        # A divergence is 0 or more; the entropy of a mean is highest without bias.
        sign, limit = (1.0, lowest) if np.isinf(highest[0]) else (-1.0, highest)
        single = distances(sign * (value - limit), sign * bias, error, degrees, freedom)
        estimate, low, high = single.reduced_bias.mean(), single.ci_low.mean(), single.ci_high.mean()
        if len(group) > 1:
            reach = Z * float(np.sqrt((single.standard_error**2).sum())) / len(group)
            low, high = estimate - reach, estimate + reach
        distance = np.clip([estimate, low, high], 0.0, highest.mean() - lowest.mean())
        ends = limit.mean() + sign * distance
        columns.append([ends[0], ends[1:].min(), ends[1:].max()])
    estimates, low, high = np.transpose(columns)
    return estimates, low, high


class Distances(NamedTuple):
    """Estimates of true distances, [n]; `standard_error` is that of `reduced_bias`, also where a distance is 0."""

    reduced_bias: Floats  # unbiased up to 1/Q^2, so that it is below 0 in half of the samples without a distance
    standard_error: Floats
    ci_low: Floats  # 0 or more
    ci_high: Floats


def freedom(errors: Floats, scale: Floats) -> float:
    """Return the degrees of freedom of the quadratic form sum of mean error^2 / scale (Satterthwaite 1946).

    Args:
        errors: [queries, labels], whose means are 0 where there is no distance.
        scale: [labels]
    """
    if len(errors) < 2:
        return 1.0
    # A label of no probability and no queries is in neither.
    present = scale > 0
    scaled = np.cov(errors[:, present], rowvar=False) / np.sqrt(np.outer(scale[present], scale[present]))
    scaled = np.atleast_2d(scaled)
    squares = float((scaled**2).sum())
    return float(np.trace(scaled)) ** 2 / squares if squares > 0 else 1.0


def distances(value: Floats, bias: Floats, standard_error: Floats, degrees: Floats, bias_freedom: Floats) -> Distances:
    """Return distances of reduced bias and 95% intervals, the union of two:

    - reduced_bias -+ t x jackknife standard error, right far from the limit, and alone above FAR;
    - that of a noncentral chi-squared variable of `bias_freedom` degrees of freedom, scaled so that it exceeds its
      noncentrality by `bias` on average, right at the limit, where the value is such a quadratic form.

    Args:
        value: distances on n requests, 0 or more.
        bias, standard_error, degrees: of the value, by a jackknife over queries.
        bias_freedom: as from `freedom`.
    """
    reduced_bias = value - bias
    scale = np.maximum(bias, 1e-300) / bias_freedom
    reach = stdtrit(np.maximum(degrees, 1), UPPER) * standard_error
    is_near = (bias > 0) & (value < FAR * bias)
    quantile = np.where(is_near, value / scale, 1.0)
    low, high = (scale * chndtrinc(quantile, bias_freedom, p) for p in (UPPER, 1 - UPPER))
    return Distances(
        reduced_bias,
        np.maximum(standard_error, np.where(bias > 0, scale * np.sqrt(2 * bias_freedom), 0.0)),
        np.maximum(np.where(is_near, np.minimum(low, reduced_bias - reach), reduced_bias - reach), 0.0),
        np.maximum(np.where(is_near, np.maximum(high, reduced_bias + reach), reduced_bias + reach), 0.0),
    )
