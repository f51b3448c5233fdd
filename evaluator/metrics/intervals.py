"""95% intervals, clustered by query: the requests of one query share its text and are no independent trials.

Where templates are as much a sample as queries are, both count (two_way_standard_error).

Everything here is deterministic: no resampling, no seed. An interval says what other queries of the same kind would
have given with the same model and protocol (Miller 2024, "Adding Error Bars to Evals", section on clustering).
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
"""A standard error below this is rounding: no two queries were seen to differ."""


def jackknife_standard_errors(per_query: pl.DataFrame, values: Mapping[str, pl.Expr]) -> dict[str, float | None]:
    """Return the standard error of each value when queries are left out in turn; None where there is but one query.

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
    """Return the standard error from the values [Q] without each query in turn; None where there is but one.

    Infinite where a value is not finite without some query: then it hangs on that query alone.
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

    V = V_query + V_template - V_both, at least the larger of the first two, where each is a variance of means over
    their number; V_both is what is left of the cells after both means, over Q x T. Without the last, the noise of
    single answers would be counted twice. None where there is only one query or template.

    Sources: Cameron, Gelbach & Miller 2011, "Robust inference with multiway clustering", and Owen & Eckles 2012,
    "Bootstrapping data arrays of arbitrary order", for the sum; their last term also holds a T-th of the query's own
    variance, which is taken out here, so that on complete tables V is unbiased, as in a two-way analysis of variance
    with random effects. Degrees of freedom: Satterthwaite 1946, "An approximate distribution of estimates of variance
    components".
    """
    of_query, of_template = cells.mean(axis=1), cells.mean(axis=0)
    n_queries, n_templates = cells.shape
    degrees = np.array([n_queries - 1, n_templates - 1, (n_queries - 1) * (n_templates - 1)])
    if not degrees.all():
        return None, 0.0
    rest = cells - of_query[:, None] - of_template + cells.mean()
    by_query, by_template = of_query.var(ddof=1) / n_queries, of_template.var(ddof=1) / n_templates
    by_both = (rest**2).sum() / degrees[2] / cells.size
    variance = max(by_query + by_template - by_both, by_query, by_template)
    if not variance:
        return 0.0, float(degrees[:2].min())
    scatter = (np.array([by_query, by_template, by_both]) ** 2 / degrees).sum()
    return math.sqrt(variance), float(variance**2 / scatter)


def with_intervals(rows: pl.DataFrame) -> pl.DataFrame:
    """Add ci_low and ci_high to rows with the columns of values.Measured and n_queries.

    Both forms take t at degrees_of_freedom, lie between `lowest` and `highest` and hold the value.
    "symmetric" is value -+ t x SE, cut at these limits. "score" is Wilson's interval for the effective sample size
    n* = value (1 - value) / SE^2, with values scaled to [0, 1]; it keeps its coverage near the limits, where the
    symmetric one loses it. Where no two queries differ, SE = 0 does not mean certainty: both forms are then Wilson's
    with n* = n_queries, the widest that numbers between the limits with this mean can ask for, as their variance is at
    most value (1 - value).
    Null is the interval of one query alone, which says nothing about others, of a value that is not finite, and of an
    SE of 0 where a limit is infinite.

    Sources: Franco et al. 2019, "Comparative study of confidence intervals for proportions in complex sample surveys",
    who recommend Wilson's form with n*; Kott 2017, "A note on Wilson coverage intervals for proportions estimated from
    complex samples".
    """
    value, se, n_queries = pl.col("value"), pl.col("standard_error"), pl.col("n_queries")
    lowest, highest = pl.col("lowest"), pl.col("highest")
    span = highest - lowest
    varies = se >= NO_VARIATION
    share = (value - lowest) / span
    spread = (share * (1 - share)).clip(lower_bound=0)
    effective_n = pl.when(varies).then(spread / (se / span).pow(2)).otherwise(n_queries)
    # n* is 0 where macro-F1 is 1 but hangs on one query of a label. Nothing is divided by n* alone: [0, 1] comes out.
    t = pl.col("t")
    centre = (effective_n * share + t.pow(2) / 2) / (effective_n + t.pow(2))
    half_width = t * (effective_n * spread + t.pow(2) / 4).sqrt() / (effective_n + t.pow(2))
    use_score = (pl.col("interval") == "score") | ~varies
    low = pl.when(use_score).then(lowest + span * (centre - half_width)).otherwise(value - t * se)
    high = pl.when(use_score).then(lowest + span * (centre + half_width)).otherwise(value + t * se)
    known = se.is_not_null() & value.is_finite() & (varies | span.is_finite())
    return (
        rows.with_columns(t=_t_quantiles(rows["degrees_of_freedom"]))
        .with_columns(
            ci_low=pl.when(known).then(pl.min_horizontal(low.clip(lowest, highest), value)),
            ci_high=pl.when(known).then(pl.max_horizontal(high.clip(lowest, highest), value)),
        )
        .drop("t")
    )


def mean_of_intervals() -> dict[str, pl.Expr]:
    """Return value, ci_low and ci_high of the plain mean over the rows of a group, which are independent.

    The mean's distances to its limits are the root sums of squares of the rows' own distances: with symmetric
    intervals this is SE = sqrt(sum SE^2)/D, and one-sided ones stay one-sided. Null where any row has no interval.

    Source: Zou & Donner 2008, "Construction of confidence limits about effect measures" (their MOVER for a sum).
    """
    value, low, high = pl.col("value"), pl.col("ci_low"), pl.col("ci_high")
    known = low.is_not_null().all()
    distance_down = (value - low).pow(2).sum().sqrt() / pl.len()
    distance_up = (high - value).pow(2).sum().sqrt() / pl.len()
    return {
        "value": value.mean(),
        "ci_low": pl.when(known).then(value.mean() - distance_down),
        "ci_high": pl.when(known).then(value.mean() + distance_up),
    }


def _t_quantiles(degrees_of_freedom: pl.Series) -> pl.Series:
    # At least 1 degree of freedom: a single query has none, and its interval is null whatever stands here.
    return pl.Series(stdtrit(np.maximum(degrees_of_freedom.to_numpy(), 1), (1 + CONFIDENCE_LEVEL) / 2))
