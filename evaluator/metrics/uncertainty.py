"""95% intervals, clustered by query: the requests of one query share its text and are no independent trials.

Everything here is deterministic: no resampling, no seed. An interval says what other queries of the same kind would
have given with the same model and protocol (Miller 2024, "Adding Error Bars to Evals", section on clustering).
"""

import math
from collections.abc import Mapping

import numpy as np
import polars as pl
from scipy.special import stdtrit

CONFIDENCE_LEVEL = 0.95
NO_VARIATION = 1e-12
"""A standard error below this is rounding: no two queries were seen to differ."""


def jackknife_standard_errors(per_query: pl.DataFrame, values: Mapping[str, pl.Expr]) -> dict[str, float | None]:
    """Standard error of each value when whole queries are left out in turn; None where there is but one query.

    Args:
        per_query: one row a query, columns of statistics that add up.
        values: expressions over the sums of these columns.

    SE^2 = (Q - 1)/Q x sum over queries of (value without it - mean of these)^2. For a mean with equally many requests
    a query this is the clustered standard error of Miller 2024. Source: SAS/STAT, PROC SURVEYMEANS, "Jackknife Method",
    with a query as the sampling unit and no strata.
    """
    n_queries = per_query.height
    if n_queries < 2:
        return dict.fromkeys(values)
    without_one = per_query.select(pl.all().sum() - pl.all()).select(**values)
    return {name: float(np.std(without_one[name].to_numpy())) * math.sqrt(n_queries - 1) for name in values}


def with_intervals(rows: pl.DataFrame) -> pl.DataFrame:
    """Columns value, standard_error, n_queries and interval (IntervalForm) in; ci_low and ci_high added.

    Both forms take t at n_queries - 1 degrees of freedom, lie within [0, 1] and hold the value.
    "symmetric" is value -+ t x SE, cut at 0 and 1. "score" is Wilson's interval for the effective sample size
    n* = value (1 - value) / SE^2, which keeps its coverage near 0 and 1, where the symmetric one loses it.
    Where no two queries differ, SE = 0 does not mean certainty: both forms are then Wilson's with n* = n_queries, the
    widest that numbers in [0, 1] with this mean can ask for, as their variance is at most value (1 - value).
    One query alone says nothing about others: its interval is null.

    Sources: Franco et al. 2019, "Comparative study of confidence intervals for proportions in complex sample surveys",
    who recommend Wilson's form with n*; Kott 2017, "A note on Wilson coverage intervals for proportions estimated from
    complex samples".
    """
    value, se, n_queries = pl.col("value"), pl.col("standard_error"), pl.col("n_queries")
    varies = se >= NO_VARIATION
    spread = (value * (1 - value)).clip(lower_bound=0)
    effective_n = pl.when(varies).then(spread / se.pow(2)).otherwise(n_queries)
    # n* is 0 where macro-F1 is 1 but hangs on one query of a label. Nothing is divided by n* alone: [0, 1] comes out.
    t = pl.col("t")
    centre = (effective_n * value + t.pow(2) / 2) / (effective_n + t.pow(2))
    half_width = t * (effective_n * spread + t.pow(2) / 4).sqrt() / (effective_n + t.pow(2))
    use_score = (pl.col("interval") == "score") | ~varies
    low = pl.when(use_score).then(centre - half_width).otherwise(value - t * se)
    high = pl.when(use_score).then(centre + half_width).otherwise(value + t * se)
    known = n_queries > 1
    return (
        rows.with_columns(t=_t_quantiles(rows["n_queries"]))
        .with_columns(
            ci_low=pl.when(known).then(pl.min_horizontal(low, value).clip(0, 1)),
            ci_high=pl.when(known).then(pl.max_horizontal(high, value).clip(0, 1)),
        )
        .drop("t")
    )


def mean_of_intervals() -> dict[str, pl.Expr]:
    """value, ci_low and ci_high of the plain mean over the rows of a group; the rows are independent of each other.

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


def _t_quantiles(n_queries: pl.Series) -> pl.Series:
    # At least 1 degree of freedom: a single query has none, and its interval is null whatever stands here.
    degrees_of_freedom = np.maximum(n_queries.to_numpy() - 1, 1)
    return pl.Series(stdtrit(degrees_of_freedom, (1 + CONFIDENCE_LEVEL) / 2))
