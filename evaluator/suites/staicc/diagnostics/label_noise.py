"""Measure how answers change with wrong labels in the demonstrations."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl
from scipy.special import stdtrit

from evaluator.errors import MetricError
from evaluator.metrics.accuracy import ACCURACY
from evaluator.metrics.base import Metric
from evaluator.metrics.intervals import CONFIDENCE_LEVEL, jackknife_standard_error
from evaluator.metrics.per_request import PredictionGroup
from evaluator.metrics.registry import METRICS, STAICC_METRICS
from evaluator.metrics.values import Measured, statistic_sums
from evaluator.suites.staicc.diagnostics.complete_grid import require_complete_grid
from evaluator.suites.staicc.label_noise import NOISE_RATES

RELEASED_RATES = (1.0, 0.75, 0.25, -0.5, -1.5)
"""Rates that the toolkit uses in place of NOISE_RATES: its loop subtracts 1/4, 2/4, 3/4 and 4/4 one after the other."""


class NoiseSlope(NamedTuple):
    """Change of accuracy from no wrong demonstration label to only wrong ones; below 0 where a model uses them."""

    slope: float  # accuracy per unit of noise rate
    ci_low: float  # 95%, over queries
    ci_high: float


def noise_slope(answers: pl.DataFrame) -> NoiseSlope:
    """Fit the least-squares line of accuracy over `noise_rate`; its slope is minus `gler` of the paper.

    The slope of accuracies is the mean of the slopes of single queries, so its standard error is that of a mean over
    queries: a query's answers at all rates and after all demonstration sets count as one observation.

    Args:
        answers: `query_id`, `noise_rate` and `correct` (bool); two queries or more at the same rates, equally often.
    """
    rates = answers["noise_rate"].unique().sort().to_list()
    weights = dict(zip(rates, slope_weights(rates), strict=True))
    slope, standard_error = _slopes(answers, 1, {"accuracy": ACCURACY}, weights)["accuracy"]
    assert standard_error is not None, "there are two queries or more"
    n_queries = answers["query_id"].n_unique()
    margin = float(stdtrit(n_queries - 1, (1 + CONFIDENCE_LEVEL) / 2)) * standard_error
    return NoiseSlope(slope, slope - margin, slope + margin)


def gler(group: PredictionGroup) -> dict[str, Measured]:
    """Measure gler, and gler_METRIC for the other metrics of StaICC: their slopes over the noise rate.

    paper: minus the slope of the least-squares line of accuracy over the share of labels that are wrong in the prompts,
    n_wrong_labels / n_shots: the accuracy lost from no wrong label to only wrong ones, along the line. This share is
    the nominal noise rate only where n_shots is a multiple of four; the line is through five points even where two
    rates have the same share. With no demonstrations all shares are 0, and the slope is NaN. The sign is that of the
    published table, where a model that uses labels has a value above 0. Its "Slope/0.1" is taken for percentage
    points per 0.1 of noise, ten times ours: 0.098 here is 0.98 there.
    released: the slope over RELEASED_RATES, which fall as noise rises, so that the sign is the same; its unit is not
    that of a noise rate.

    Raises MetricError if queries are not answered equally often at each rate, a rate is none of NOISE_RATES, or its
    prompts differ in their number of demonstrations or of wrong labels.

    Sources: Cho & Inoue 2025, section 3.3 and table 3, after Yoo et al. 2022; StaICC 0.1.1, util/experimentor.py,
    GLER_experimentor.
    """
    require_complete_grid(group, "noise_rate", "noise rates")
    rates = group.rows["noise_rate"].unique().sort().to_list()
    if not {*rates} <= {*NOISE_RATES}:
        raise MetricError(f"{group.where}: noise rates must be among {NOISE_RATES}, got {rates}. Build the run again.")
    released = dict(zip(NOISE_RATES, RELEASED_RATES, strict=True))
    axis = [released[rate] for rate in rates] if group.definition == "released" else _shares_of_true_labels(group)
    weights = dict(zip(rates, slope_weights(axis), strict=True))
    metrics = {name: METRICS[name] for name in STAICC_METRICS}
    slopes = _slopes(group.repeated_requests, group.n_labels, metrics, weights)
    largest = sum(weight for weight in weights.values() if weight > 0)  # of values in [0, 1]
    degrees_of_freedom = group.rows["query_id"].n_unique() - 1
    return {
        "gler" if name == "accuracy" else f"gler_{name}": Measured(
            *slope, degrees_of_freedom, "symmetric", -largest, largest
        )
        for name, slope in slopes.items()
    }


def slope_weights(axis: Sequence[float]) -> list[float]:
    """Return a weight for each point of the axis, so that the weighted sum of values is their least-squares slope.

    NaN where all points are the same.
    """
    centre = sum(axis) / len(axis)
    scatter = sum((x - centre) ** 2 for x in axis)
    return [(x - centre) / scatter if scatter else math.nan for x in axis]


def _shares_of_true_labels(group: PredictionGroup) -> list[float]:
    """Return the share of demonstrations that show their true label at each noise rate, from the lowest rate up."""
    shown = group.rows.select("noise_rate", "n_wrong_labels", "n_shots").unique().sort("noise_rate")
    if shown["noise_rate"].is_duplicated().any() or shown.null_count().sum_horizontal().item():
        raise MetricError(
            f"{group.where}: the prompts of a noise rate must have the same number of demonstrations and of wrong "
            f"labels, got {shown.rows()} as (rate, wrong, demonstrations). Build the run again."
        )
    return [1 - n_wrong / n_shots if n_shots else 1.0 for _, n_wrong, n_shots in shown.iter_rows()]


def _slopes(
    requests: pl.DataFrame, n_labels: int, metrics: Mapping[str, Metric], weights: Mapping[float, float]
) -> dict[str, tuple[float, float | None]]:
    """Return each metric's weighted sum over noise rates, and its standard error by a jackknife over queries."""
    sums = statistic_sums(requests, n_labels, metrics, ["query_id", "noise_rate"]).sort("query_id", "noise_rate")
    statistics = pl.exclude("query_id", "noise_rate")
    weight = pl.col("noise_rate").replace_strict(dict(weights), return_dtype=pl.Float64)
    weighted = {name: weight * metric.value(n_labels) for name, metric in metrics.items()}
    # For the jackknife: the sums without one query, for each query, then the slope of each of these sums.
    without_one = (
        sums.with_columns(statistics.sum().over("noise_rate") - statistics)
        .select("query_id", **weighted)
        .group_by("query_id", maintain_order=True)
        .agg(pl.all().sum())
    )
    over_all = sums.group_by("noise_rate", maintain_order=True).agg(statistics.sum()).select(**weighted).sum()
    return {name: (over_all[name].item(), jackknife_standard_error(without_one[name].to_numpy())) for name in metrics}
