"""Compute 95% intervals, clustered by query: requests of one query share its text and are not independent.

Where templates are a sample as well as queries, both are clusters (two_way_standard_error).

Everything here is deterministic: no resampling, no seed. An interval covers other queries of the same kind with the
same model and protocol (Miller 2024, "Adding Error Bars to Evals", section on clustering).
"""

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import stdtrit

Floats = npt.NDArray[np.float64]

CONFIDENCE_LEVEL = 0.95
NO_VARIATION = 1e-12
"""A standard error below this is rounding error: no two queries differ."""


def jackknife_standard_errors(per_query: pl.DataFrame, values: Mapping[str, pl.Expr]) -> dict[str, float | None]:
    """Return the jackknife standard error of each value, leaving out each query in turn; None with a single query.

    Args:
        per_query: one row a query, columns of statistics that add up.
        values: expressions over the sums of these columns.

    SE^2 = (Q - 1)/Q x sum over queries of (value without it - mean of these)^2. For a mean with equally many requests
    a query this is the clustered standard error of Miller 2024. Source: SAS/STAT, PROC SURVEYMEANS, "Jackknife Method",
    with a query as the sampling unit and no strata.
    """
    if per_query.height < 2:
        return dict.fromkeys(values)
    without_one = per_query.select(pl.all().sum() - pl.all()).select(**values)
    return {name: jackknife_standard_error(without_one[name].to_numpy()) for name in values}


def jackknife_standard_error(without_one: Floats) -> float | None:
    """Return the jackknife standard error from the values [Q] without each query in turn; None with a single one.

    Infinite where a value without some query is not finite: the value then depends on that query alone.
    """
    if len(without_one) < 2:
        return None
    if not np.isfinite(without_one).all():
        return math.inf
    return float(np.std(without_one)) * math.sqrt(len(without_one) - 1)


def two_way_standard_error(cells: Floats) -> tuple[float | None, float]:
    """Return the standard error of the mean of all cells, rows and columns both samples, and its degrees of freedom.

    Args:
        cells: [Q, T], one number a query and template, each query answered with each template.

    V = V_query + V_template - V_both, but not below the larger of the first two, where V_query and V_template are the
    variances of the means divided by their number; V_both is the residual variance of the cells divided by Q x T.
    Without the last, the noise of single answers would be counted twice. None where there is only one query or
    template.

    Sources: Cameron, Gelbach & Miller 2011, "Robust inference with multiway clustering", and Owen & Eckles 2012,
    "Bootstrapping data arrays of arbitrary order", for the sum; their last term also includes 1/T of the
    variance between queries, which is excluded here, so that on complete tables V is unbiased, as in a two-way analysis
    of variance with random effects. Degrees of freedom: Satterthwaite 1946, "An approximate distribution of estimates
    of variance components".
    """
    query_means, template_means = cells.mean(axis=1), cells.mean(axis=0)
    n_queries, n_templates = cells.shape
    degrees = np.array([n_queries - 1, n_templates - 1, (n_queries - 1) * (n_templates - 1)])
    if not degrees.all():
        return None, 0.0
    residuals = cells - query_means[:, None] - template_means + cells.mean()
    by_query, by_template = query_means.var(ddof=1) / n_queries, template_means.var(ddof=1) / n_templates
    by_both = (residuals**2).sum() / degrees[2] / cells.size
    variance = max(by_query + by_template - by_both, by_query, by_template)
    if not variance:
        return 0.0, float(degrees[:2].min())
    scatter = (np.array([by_query, by_template, by_both]) ** 2 / degrees).sum()
    return math.sqrt(variance), float(variance**2 / scatter)


def with_intervals(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ci_low and ci_high to rows with the columns of values.Measured and n_queries.

    Both forms use t at degrees_of_freedom, lie between `lowest` and `highest` and contain the value.
    "symmetric" is value -+ t x SE, cut at these limits. "score" is Wilson's interval for the effective sample size
    n* = value (1 - value) / SE^2, with values scaled to [0, 1]; it keeps its coverage near the limits, where the
    symmetric one loses it. Where no two queries differ, SE = 0 does not mean certainty: both forms are then Wilson's
    with n* = n_queries, the widest interval for numbers between the limits with this mean, whose variance is at most
    value (1 - value).
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
    low = pl.when(use_score).then(lowest + span * (centre - half_width)).otherwise(value - t * se)
    high = pl.when(use_score).then(lowest + span * (centre + half_width)).otherwise(value + t * se)
    is_defined = se.is_not_null() & value.is_finite() & (varies | span.is_finite())
    return (
        rows.with_columns(t=_t_quantiles(rows["degrees_of_freedom"]))
        .with_columns(
            ci_low=pl.when(is_defined).then(pl.min_horizontal(low.clip(lowest, highest), value)),
            ci_high=pl.when(is_defined).then(pl.max_horizontal(high.clip(lowest, highest), value)),
        )
        .drop("t")
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


def _t_quantiles(degrees_of_freedom: pl.Series) -> pl.Series:
    # At least 1 degree of freedom: a single query has none, but its interval is null in any case.
    return pl.Series(stdtrit(np.maximum(degrees_of_freedom.to_numpy(), 1), (1 + CONFIDENCE_LEVEL) / 2))
