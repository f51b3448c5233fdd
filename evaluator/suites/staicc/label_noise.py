"""Build prompts whose demonstrations have wrong labels, and measure whether a model uses the labels (GLER).

Source: Cho & Inoue 2025, section 3.3.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from evaluator.arrays import Ints
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.lcg import Lcg
from evaluator.errors import MetricError, TemplateError
from evaluator.metrics.classification import METRICS, STAICC_METRICS, Measured, Metric, statistic_sums
from evaluator.metrics.groups import PredictionGroup
from evaluator.metrics.intervals import jackknife
from evaluator.prompts.rows import benchmark_plan, requests, variations
from evaluator.schemas import Definition
from evaluator.suites.staicc.robustness import require_complete_grid

logger = logging.getLogger(__name__)

NOISE_RATES = (0.0, 0.25, 0.5, 0.75, 1.0)  # five rates, evenly spaced
RELEASED_RATES = (1.0, 0.75, 0.25, -0.5, -1.5)
"""Rates that the toolkit uses in place of NOISE_RATES: its loop subtracts 1/4, 2/4, 3/4 and 4/4 one after the other."""


POINTS_PER_TENTH = 10.0
"""Factor from accuracy per unit of noise to percentage points per 0.1 of noise, the unit of table 3."""


def label_noise_requests(
    dataset: ClassificationDataset,
    *,
    n_shots: int,
    n_queries: int | None,
    definition: Definition = "paper",
    seed: int = 0,
) -> Iterator[pl.DataFrame]:
    """Yield the prompts of normal_requests with wrong demonstration labels at each of NOISE_RATES.

    Columns are as in normal_requests; `position` continues from one rate to the next. Rate 0 has exactly the prompts
    of normal_requests.

    Under `paper`, round(rate * n_shots) labels are wrong, halves rounded up, each drawn from the wrong labels by `seed`
    (falsified_labels). Under `released`, int(rate * n_shots) are wrong, each replaced by the next label of the label
    space; the toolkit's generator chooses them and ignores `seed` (next_labels). The column `n_wrong_labels` has this
    number. With fewer than four demonstrations some rates have the same number of wrong labels, which is logged: with
    one, `paper` distinguishes rates below 0.5 from the others, `released` only the rate 1; with none, all rates are the
    same and GLER is undefined.

    Raises as normal_requests does, and TemplateError for a label space of one label, which has no wrong label.
    """
    n_labels = len(dataset.verbalizer.label_names)
    if n_labels < 2:
        raise TemplateError(
            f"{dataset.name} has one label, so no demonstration can have a wrong one. Leave it out of the suite "
            "staicc-robustness (--datasets)."
        )
    n_wrong = wrong_counts(n_shots, definition)
    if len(set(n_wrong)) < len(NOISE_RATES):
        logger.warning(
            "%s: at %d shots the noise rates %s falsify %s labels of a prompt, some rates as many as others.",
            *(dataset.name, n_shots, NOISE_RATES, n_wrong),
        )
    plan = benchmark_plan(dataset, n_shots=n_shots)
    true_labels = dataset.demonstration["gold"].to_numpy()[plan.demonstration_ids]
    if definition == "released":
        shown = next_labels(true_labels, n_labels=n_labels, n_wrong=n_wrong)
    else:
        shown = [falsified_labels(true_labels, n_labels=n_labels, n_wrong=count, seed=seed) for count in n_wrong]
    variants = (
        (
            {"noise_rate": pl.lit(rate), "n_wrong_labels": pl.lit(count, pl.Int64)},
            requests(dataset, plan, shown_labels=labels, n_queries=n_queries),
        )
        for rate, count, labels in zip(NOISE_RATES, n_wrong, shown, strict=True)
    )
    yield from variations(variants, len(true_labels))


def wrong_counts(n_shots: int, definition: Definition) -> tuple[int, ...]:
    """Return the number of wrong labels of a prompt at each of NOISE_RATES."""
    # The rates are exact in binary, so that the products are exact as well.
    rounding = 0.0 if definition == "released" else 0.5
    return tuple(int(rate * n_shots + rounding) for rate in NOISE_RATES)


def falsified_labels(labels: Ints, *, n_labels: int, n_wrong: int, seed: int) -> Ints:
    """Replace `n_wrong` labels of each row of `labels` [..., n_shots] by wrong labels, drawn uniformly.

    The draws depend on the shape and the seed, not on `n_wrong`: a label that is wrong at one rate is the same wrong
    label at every higher rate, so that accuracies at two rates differ by the noise alone.
    """
    random = np.random.default_rng(seed)
    rank = random.random(labels.shape).argsort(axis=-1).argsort(axis=-1)  # in which order demonstrations turn wrong
    wrong = (labels + random.integers(1, n_labels, size=labels.shape)) % n_labels
    return np.where(rank < n_wrong, wrong, labels)


def next_labels(labels: Ints, *, n_labels: int, n_wrong: tuple[int, ...]) -> list[Ints]:
    """Replace labels of each row of `labels` [n, n_shots] by the next label, the last by the first, for each rate.

    The replaced positions are drawn anew for each rate, by one toolkit generator that continues over prompts and rates.
    """
    random = Lcg()
    n_prompts, n_shots = labels.shape
    shown = []
    for count in n_wrong:
        is_wrong = np.zeros(labels.shape, dtype=bool)
        np.put_along_axis(is_wrong, random.samples(n_prompts, count, n_shots), True, axis=1)
        shown.append(np.where(is_wrong, (labels + 1) % n_labels, labels))
    return shown


def gler(group: PredictionGroup) -> dict[str, Measured]:
    """Measure gler, and gler_METRIC for the other metrics of StaICC: their slopes over the noise rate.

    paper: minus the slope of the least-squares line of accuracy over the share of labels that are wrong in the prompts,
    n_wrong_labels / n_shots: the accuracy lost from no wrong label to only wrong ones, along the line. This share is
    the nominal noise rate only where n_shots is a multiple of four; the line is through five points even where two
    rates have the same share. With no demonstrations all shares are 0, and the slope is NaN. The sign is that of the
    published tables, where a model that uses labels has a value above 0.
    released: the slope over RELEASED_RATES, which fall as noise rises, so that the sign is the same; its unit is not
    that of a noise rate.

    Two forms as printed: gler_per_tenth, the "Slope/0.1" of table 3 in percentage points, ten times gler (its numbers
    are ten times those of table 7); gler_toolkit_axis, the slope over RELEASED_RATES, which table 7 must have, as the
    toolkit computed it. Under `released` the second is gler itself.

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
    metrics = {name: METRICS[name] for name in STAICC_METRICS}
    degrees_of_freedom = group.rows["query_id"].n_unique() - 1

    def measured(axis: Sequence[float], names: Sequence[str], scale: float = 1.0) -> dict[str, Measured]:
        weights = {rate: scale * weight for rate, weight in zip(rates, slope_weights(axis), strict=True)}
        largest = sum(weight for weight in weights.values() if weight > 0)  # of values in [0, 1]
        slopes = _slopes(group.repeated_requests, group.n_labels, {name: metrics[name] for name in names}, weights)
        return {
            name: Measured(*slope, degrees_of_freedom, "symmetric", -largest, largest) for name, slope in slopes.items()
        }

    slopes = {
        "gler" if name == "accuracy" else f"gler_{name}": slope for name, slope in measured(axis, [*metrics]).items()
    }
    on_toolkit_axis = measured([released[rate] for rate in rates], ["accuracy"])["accuracy"]
    return slopes | {
        "gler_per_tenth": measured(axis, ["accuracy"], POINTS_PER_TENTH)["accuracy"],
        "gler_toolkit_axis": on_toolkit_axis,
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
    # For the jackknife: the sums without one query, for each query, then the slope of each sum.
    without_one = (
        sums.with_columns(statistics.sum().over("noise_rate") - statistics)
        .select("query_id", **weighted)
        .group_by("query_id", maintain_order=True)
        .agg(pl.all().sum())
    )
    over_all = sums.group_by("noise_rate", maintain_order=True).agg(statistics.sum()).select(**weighted).sum()
    slopes = {name: over_all[name].item() for name in metrics}
    return {
        name: (slope, jackknife(slope, without_one[name].to_numpy()).standard_error) for name, slope in slopes.items()
    }
