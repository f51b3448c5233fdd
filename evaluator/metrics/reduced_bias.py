"""Estimates and intervals of metrics that are biased on finitely many requests, for datasets and means over them.

Two kinds of metrics are: sums of gaps in bins (calibration_interval.py), and distances from a limit, such as a
divergence from 0. At the limit a distance has no slope: it is a quadratic form of sampling errors, which move it in one
direction only. There neither the value is unbiased nor its standard error tells how far it may be from the true one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy.special import chndtrinc, stdtrit

from evaluator.arrays import Floats
from evaluator.metrics.calibration_interval import Bins, Z, calibration_errors
from evaluator.metrics.intervals import NO_VARIATION
from evaluator.schemas import MEAN_OVER_DATASETS, METRICS_KEY

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
