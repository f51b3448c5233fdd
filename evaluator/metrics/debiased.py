"""Estimates and intervals of metrics that are biased on finitely many requests, for datasets and means over them."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from evaluator.arrays import Floats
from evaluator.metrics.calibration_interval import Bins, Z, calibration_errors
from evaluator.metrics.distance_interval import distances
from evaluator.schemas import MEAN_OVER_DATASETS, METRICS_KEY

KEY_OF_MEAN = [name for name in METRICS_KEY if name != "dataset"]
ESTIMATES = pl.Schema(
    {**dict.fromkeys(METRICS_KEY, pl.String()), **dict.fromkeys(("debiased", "ci_low", "ci_high"), pl.Float64())}
)

Row = Mapping[str, Any]
"""METRICS_KEY and the fields of values.Measured."""


class _Group(NamedTuple):
    key: dict[str, str]  # METRICS_KEY
    rows: list[Row]  # of the datasets that it is a mean over; one, of a dataset alone


def debiased(rows: Iterable[Row]) -> pl.DataFrame:
    """Estimate every metric of the interval forms "bins" and "distance": ESTIMATES, means over datasets included.

    Biases of datasets have one sign and do not average out as errors do, so that a mean over datasets is estimated from
    all of them at once. It has no row where a dataset has none: with a single query, or where a value is not finite.
    """
    by_form = {form: [row for row in rows if row["interval"] == form] for form in ("bins", "distance")}
    return pl.concat([ESTIMATES.to_frame(), _calibration(by_form["bins"]), _distances(by_form["distance"])])


def with_estimates(table: pl.DataFrame, estimates: pl.DataFrame) -> pl.DataFrame:
    """Add `debiased` to rows with METRICS_KEY and an interval, and replace the interval of those that have it.

    Both limits are moved as far as the value where it lies outside.
    """
    joined = table.join(estimates, on=METRICS_KEY, how="left", suffix="_debiased", maintain_order="left")
    low, high, value = pl.col("ci_low_debiased"), pl.col("ci_high_debiased"), pl.col("value")
    return joined.with_columns(
        ci_low=pl.when(low.is_not_null()).then(pl.min_horizontal(low, value)).otherwise("ci_low"),
        ci_high=pl.when(high.is_not_null()).then(pl.max_horizontal(high, value)).otherwise("ci_high"),
    ).drop("ci_low_debiased", "ci_high_debiased")


def _calibration(rows: list[Row]) -> pl.DataFrame:
    # Under `released` all requests can be in no bin.
    has_bins = {id(row) for row in rows if _is_estimable(row) and row["bins"].share.size}
    groups = [group for group in _with_means(rows) if all(id(row) in has_bins for row in group.rows)]
    if not groups:
        return ESTIMATES.to_frame()
    # In a mean over n datasets a bin's share is an n-th of what it is in its own.
    bins = [
        [row["bins"]._replace(share=row["bins"].share / n, extra=row["bins"].extra / n**2) for row in group.rows]
        for group in groups
        if (n := len(group.rows))
    ]
    joined = [[np.concatenate(arrays) for arrays in zip(*parts, strict=True)] for parts in bins]
    # Equally long rows, filled up with bins of no requests.
    width = max(len(arrays[0]) for arrays in joined)
    padded = (
        np.array([np.pad(array, (0, width - len(array))) for array in field]) for field in zip(*joined, strict=True)
    )
    return _frame(groups, *calibration_errors(Bins(*padded)))


def _distances(rows: list[Row]) -> pl.DataFrame:
    """Estimate distances from the limit of a metric that its bias points away from."""
    estimable = [row for row in rows if _is_estimable(row)]
    if not estimable:
        return ESTIMATES.to_frame()
    value, bias, error, degrees, freedom, lowest, highest = (
        np.array([row[name] for row in estimable], dtype=np.float64)
        for name in ("value", "bias", "standard_error", "degrees_of_freedom", "bias_freedom", "lowest", "highest")
    )
    # A divergence is 0 or more; the entropy of a mean is highest without bias.
    sign = np.where(np.isinf(highest), 1.0, -1.0)
    limit = np.where(np.isinf(highest), lowest, highest)
    single = distances(sign * (value - limit), sign * bias, error, degrees, freedom)
    place = {id(row): number for number, row in enumerate(estimable)}
    groups = [group for group in _with_means(rows) if all(id(row) in place for row in group.rows)]
    columns = []
    for group in groups:
        own = [place[id(row)] for row in group.rows]
        estimate, low, high = single.debiased[own].mean(), single.ci_low[own].mean(), single.ci_high[own].mean()
        if len(own) > 1:
            reach = Z * float(np.sqrt((single.standard_error[own] ** 2).sum())) / len(own)
            low, high = estimate - reach, estimate + reach
        distance = np.clip([estimate, low, high], 0.0, highest[own].mean() - lowest[own].mean())
        columns.append(limit[own].mean() + sign[own[0]] * distance)
    estimates, one_end, other_end = np.transpose(columns)
    return _frame(groups, estimates, np.minimum(one_end, other_end), np.maximum(one_end, other_end))


def _is_estimable(row: Row) -> bool:
    """Whether the value and its jackknife are finite, and it has more than one query."""
    return row["standard_error"] is not None and bool(np.isfinite([row["value"], row["standard_error"]]).all())


def _with_means(rows: list[Row]) -> list[_Group]:
    """Return a group for every row, and one for every mean over datasets, in order of dataset."""
    by_mean: dict[tuple[str, ...], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["dataset"]):
        by_mean.setdefault(tuple(row[name] for name in KEY_OF_MEAN), []).append(row)
    means = [
        _Group({**dict(zip(KEY_OF_MEAN, key, strict=True)), "dataset": MEAN_OVER_DATASETS}, group)
        for key, group in by_mean.items()
    ]
    return [*(_Group({name: row[name] for name in METRICS_KEY}, [row]) for row in rows), *means]


def _frame(groups: list[_Group], *columns: Floats) -> pl.DataFrame:
    values = dict(zip(("debiased", "ci_low", "ci_high"), columns, strict=True))
    return pl.DataFrame([group.key for group in groups]).with_columns(**values).select(ESTIMATES.names())
