"""Compute 95% intervals, clustered by query: requests of one query share its text and are not independent.

Where templates are a sample as well as queries, both are clusters (two_way_standard_error).

Everything here is deterministic: no resampling, no seed. An interval covers other queries of the same kind with the
same model and protocol (Miller 2024, "Adding Error Bars to Evals", section on clustering).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import gammaincinv, stdtridf, stdtrit

from evaluator.arrays import Floats
from evaluator.schemas import MEAN_OVER_DATASETS

CONFIDENCE_LEVEL = 0.95
NO_VARIATION = 1e-12
"""A standard error below this is rounding error: no two queries differ."""

FEW = 3
"""Up to so many wrong (or right) answers, the limit of an interval on their side is that of a Poisson count."""


class Jackknife(NamedTuple):
    """The jackknife estimates of a value's standard error and bias; None with a single query."""

    standard_error: float | None
    bias: float | None  # NaN or infinite where the value without some query is


def jackknife(value: float, without_one: Floats) -> Jackknife:
    """Return the jackknife standard error and bias of a value from the values [Q] without each query in turn.

    SE^2 = (Q - 1)/Q x sum over queries of (value without it - mean of these)^2; infinite where a value without some
    query is not finite: the value then depends on that query alone. For a mean with equally many requests a query this
    is the clustered standard error of Miller 2024. Source: SAS/STAT, PROC SURVEYMEANS, "Jackknife Method", with a query
    as the sampling unit and no strata. Bias = (Q - 1) x (mean of the values without one - value): the part of a smooth
    function's bias that shrinks as 1/Q (Quenouille 1956).
    """
    n_queries = len(without_one)
    if n_queries < 2:
        return Jackknife(None, None)
    is_finite = np.isfinite(without_one).all()
    error = float(np.std(without_one)) * math.sqrt(n_queries - 1) if is_finite else math.inf
    return Jackknife(error, (n_queries - 1) * (float(without_one.mean()) - value))


def two_way_standard_error(
    cells: Floats, attributes: Sequence[Sequence[int]] | None = None, *, template_weight: float = 1.0
) -> tuple[float | None, float]:
    """Return the standard error of the mean of all cells, rows and columns both samples, and its degrees of freedom.

    Args:
        cells: [Q, T], one number a query and template, each query answered with each template.
        attributes: where templates are rows of an orthogonal array, the values of each template's attributes. Then
            values are the sample: a mean over nine rows of L9 is one over three values of each of four attributes,
            which has four times the variance that nine templates of their own would leave.
        template_weight: times V_template; 1 + T where the mean is compared with one more template.

    V = V_query + V_template - V_both x number of attributes, but not below V_query or the V_template of one attribute,
    where V_query is the variance of the queries' means divided by their number, V_template the sum over attributes of
    that of their values' means, and V_both the residual variance of the cells divided by Q x T. Without the last, the
    noise of single answers would be counted more than once. Templates that are no array have one attribute, themselves.
    None where there is only one query or value.

    Sources: Cameron, Gelbach & Miller 2011, "Robust inference with multiway clustering", and Owen & Eckles 2012,
    "Bootstrapping data arrays of arbitrary order", for the sum. Their last term also includes 1/T of the
    variance between queries; it is excluded here, so that V is unbiased on complete tables, as in a two-way analysis of
    variance with random effects. Degrees of freedom: Cochran 1964, "Approximate significance levels of the
    Behrens-Fisher test", whose t is a mean of both variances' t. V_template, noise included, has the t of one
    attribute's values, because it may be that only one attribute, or chance, makes it: with two sets, t is 12.7.
    """
    query_means, template_means = cells.mean(axis=1), cells.mean(axis=0)
    n_queries, n_templates = cells.shape
    by_value = attribute_variances(template_means, attributes)
    degrees = np.array([n_queries - 1, (n_queries - 1) * (n_templates - 1), *by_value.degrees])
    if not degrees.all():
        return None, 0.0
    by_query, by_both = query_means.var(ddof=1) / n_queries, _noise(cells)
    # The noise of single answers is in the variance of every attribute's values and of queries, and must be in V once.
    n_attributes = template_weight * len(by_value.variances)
    by_values = template_weight * float(by_value.variances.sum()) - (n_attributes - 1) * by_both
    by_template = max(by_values, float(by_value.variances.max()))
    by_query_alone = max(by_query - by_both, 0.0)
    variance = max(by_query_alone + by_template, by_query)
    return math.sqrt(variance), _joint_degrees(by_query_alone, n_queries - 1, by_template, by_value.degrees.min())


def _joint_degrees(by_query: float, degrees: float, by_template: float, of_templates: float) -> float:
    """Return the degrees of freedom at which t is the mean of the two variances' t, weighted by them (Cochran 1964).

    Satterthwaite's for the sum would be too many where few templates happen to agree: their variance is then too small
    and seems to matter little.
    """
    ends = sorted((float(degrees), float(of_templates)))
    if not by_query + by_template > 0:
        return ends[0]
    squares = stdtrit([degrees, of_templates], (1 + CONFIDENCE_LEVEL) / 2) ** 2
    t = math.sqrt((by_query * squares[0] + by_template * squares[1]) / (by_query + by_template))
    joint = float(stdtridf((1 + CONFIDENCE_LEVEL) / 2, t))
    return min(max(joint, ends[0]), ends[1]) if math.isfinite(joint) else ends[1]


def _noise(cells: Floats) -> float:
    """Return the residual variance of cells [Q, T] divided by their number: the part of V that single answers make."""
    residuals = cells - cells.mean(axis=1)[:, None] - cells.mean(axis=0) + cells.mean()
    n_queries, n_templates = cells.shape
    return float((residuals**2).sum() / ((n_queries - 1) * (n_templates - 1)) / cells.size)


class AttributeVariances(NamedTuple):
    """Hold the variance of a mean over the values of each attribute, and its degrees of freedom."""

    variances: Floats
    degrees: npt.NDArray[np.int64]


def attribute_variances(template_means: Floats, attributes: Sequence[Sequence[int]] | None) -> AttributeVariances:
    """Return the variances of the mean over templates [T] that come from the values of each attribute.

    Args:
        attributes: as for two_way_standard_error.
    """
    table = np.arange(len(template_means))[:, None] if attributes is None else np.asarray(attributes)
    variances, degrees = [], []
    for values in table.T:
        means = np.array([template_means[values == value].mean() for value in np.unique(values)])
        variances.append(means.var(ddof=1) / len(means) if len(means) > 1 else 0.0)
        degrees.append(len(means) - 1)
    return AttributeVariances(np.array(variances), np.array(degrees))


def total_standard_error(
    standard_error: float, degrees_of_freedom: float, cells: Floats, attributes: Sequence[Sequence[int]] | None = None
) -> tuple[float | None, float]:
    """Return the standard error of a mean over queries with one template, if that is a sample of one, and its freedom.

    Args:
        standard_error, degrees_of_freedom: of the mean over queries, for its template.
        cells: [Q, T], answers of queries with each of several templates, which tell how templates vary.
        attributes: as for two_way_standard_error.

    The variance of a template is that of its attributes' values, less the noise of single answers; it is added to that
    over queries. Degrees of freedom by Cochran's t, with Satterthwaite's for all attributes together. None where there
    is only one query or template.
    """
    n_queries, n_templates = cells.shape
    if min(n_queries, n_templates) < 2:
        return None, 0.0
    template_means = cells.mean(axis=0)
    by_value = attribute_variances(template_means, attributes)
    # From the variance of a mean over k values to that of one of them.
    of_one = (by_value.degrees + 1) * by_value.variances
    by_template = max(float((of_one - (by_value.degrees + 1) * _noise(cells)).sum()), 0.0)
    # Satterthwaite's degrees of freedom of the sum over attributes.
    scatter = float((of_one**2 / by_value.degrees).sum())
    of_templates = float(of_one.sum()) ** 2 / scatter if scatter else float(by_value.degrees.min())
    joint = _joint_degrees(standard_error**2, degrees_of_freedom, by_template, of_templates)
    return math.sqrt(standard_error**2 + by_template), joint


def with_intervals(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ci_low and ci_high to rows with the columns of values.Measured and n_queries.

    All forms use t at degrees_of_freedom, lie between `lowest` and `highest` and contain the value.
    "symmetric" is value -+ t x SE, cut at these limits. "score" is Wilson's interval for the effective sample size
    n* = value (1 - value) / SE^2, with values scaled to [0, 1]; it keeps its coverage near the limits, where the
    symmetric one loses it. With FEW effective answers or fewer on the side of a limit, x = n* share or n* (1 - share),
    Wilson's end on that side is too far in; there it is no farther in than the expectation with which a Poisson count
    reaches x with probability 5% (Brown, Cai & DasGupta 2001, "Interval estimation for a binomial proportion", section
    4.1.1). "log" is value x exp(-+ t x SE / value), the symmetric form for the logarithm of a value above 0, for means
    of skewed losses, which are below their expectation more often than above. Where no two queries differ, SE = 0 does
    not mean certainty: all forms are then Wilson's with n* = n_queries, the widest interval for numbers between the
    limits with this mean, whose variance is at most value (1 - value).
    The interval is null for a single query, for a value that is not finite, and for an SE of 0 with an infinite limit.

    Sources: Franco et al. 2019, "Comparative study of confidence intervals for proportions in complex sample surveys",
    who recommend Wilson's form with n*; Kott 2017, "A note on Wilson coverage intervals for proportions estimated from
    complex samples".
    """
    value, se, n_queries = pl.col("value"), pl.col("standard_error"), pl.col("n_queries")
    lowest, highest = pl.col("lowest"), pl.col("highest")
    span = highest - lowest
    varies = se >= NO_VARIATION
    # Wilson's interval is for shares: scale the value to [0, 1].
    share = (value - lowest) / span
    spread = (share * (1 - share)).clip(lower_bound=0)
    effective_n = pl.when(varies).then(spread / (se / span).pow(2)).otherwise(n_queries)
    # n* is 0 where macro-F1 is 1 but depends on one query of a label. No term divides by n*: the result is [0, 1].
    t = pl.col("t")
    centre = (effective_n * share + t.pow(2) / 2) / (effective_n + t.pow(2))
    half_width = t * (effective_n * spread + t.pow(2) / 4).sqrt() / (effective_n + t.pow(2))
    use_score = (pl.col("interval") == "score") | ~varies
    use_log = (pl.col("interval") == "log") & (value > 0)
    t_low = pl.when(use_log).then(value * (-t * se / value).exp()).otherwise(value - t * se)
    t_high = pl.when(use_log).then(value * (t * se / value).exp()).otherwise(value + t * se)
    score_low = pl.min_horizontal(centre - half_width, pl.col("few_low"))
    score_high = pl.max_horizontal(centre + half_width, 1 - pl.col("few_high"))
    low = pl.when(use_score).then(lowest + span * score_low).otherwise(t_low)
    high = pl.when(use_score).then(lowest + span * score_high).otherwise(t_high)
    is_defined = se.is_not_null() & value.is_finite() & (varies | span.is_finite())
    # Limits for few answers on one side, null for more.
    sides = rows.select(n=effective_n, low=effective_n * share, high=effective_n * (1 - share))
    few = {f"few_{side}": _poisson_limits(sides[side], sides["n"]) for side in ("low", "high")}
    return (
        rows.with_columns(t=t_quantiles(rows["degrees_of_freedom"]), **few)
        .with_columns(
            ci_low=pl.when(is_defined).then(pl.min_horizontal(low.clip(lowest, highest), value)),
            ci_high=pl.when(is_defined).then(pl.max_horizontal(high.clip(lowest, highest), value)),
        )
        .drop("t", *few)
    )


def mean_of_intervals() -> dict[str, pl.Expr]:
    """Return value, ci_low and ci_high of the plain mean over the rows of a group, which are independent.

    The distances of the mean to its limits are the root sums of squares of the rows' distances, over their number: with
    symmetric intervals this is SE = sqrt(sum SE^2)/D, and one-sided ones stay one-sided. Null where any row has no
    interval.

    Source: Zou & Donner 2008, "Construction of confidence limits about effect measures" (their MOVER for a sum).
    """
    value, low, high = pl.col("value"), pl.col("ci_low"), pl.col("ci_high")
    has_intervals = low.is_not_null().all()
    distance_down = (value - low).pow(2).sum().sqrt() / pl.len()
    distance_up = (high - value).pow(2).sum().sqrt() / pl.len()
    return {
        "value": value.mean(),
        "ci_low": pl.when(has_intervals).then(value.mean() - distance_down),
        "ci_high": pl.when(has_intervals).then(value.mean() + distance_up),
    }


def mean_over_datasets(datasets: pl.DataFrame, key: Sequence[str], **more: pl.Expr) -> pl.DataFrame:
    """Return the means over datasets with mean_of_intervals, a row for each value of the other columns of a key.

    Args:
        datasets: rows of single datasets.
        key: of the table, which has the column `dataset`.
        more: further columns of a mean.
    """
    by = [name for name in key if name != "dataset"]
    means = datasets.sort("dataset").group_by(by, maintain_order=True).agg(**mean_of_intervals(), **more)
    return means.with_columns(dataset=pl.lit(MEAN_OVER_DATASETS))


def t_quantiles(degrees_of_freedom: pl.Series) -> pl.Series:
    """Return Student's quantile of a 95% interval for each number of degrees of freedom."""
    # A single query has 0 degrees of freedom, of which there is no quantile; its interval is null in any case.
    return pl.Series(stdtrit(np.maximum(degrees_of_freedom.to_numpy(), 1), (1 + CONFIDENCE_LEVEL) / 2))


def _poisson_limits(counts: pl.Series, n: pl.Series) -> pl.Series:
    """Return the share at which a Poisson count out of n is at least `counts` with probability 5%; null above FEW."""
    x = counts.cast(pl.Float64).fill_null(np.nan).to_numpy()
    is_few = (x > 0) & (x <= FEW)
    limits = np.where(is_few, gammaincinv(np.where(is_few, x, 1.0), 1 - CONFIDENCE_LEVEL), np.nan)
    return pl.Series(limits / np.maximum(n.cast(pl.Float64).fill_null(np.nan).to_numpy(), 1e-300)).fill_nan(None)
