"""Compute histograms of the PVI of right and wrong predictions, and accuracy by PVI deciles.

A judged query is one that has both a PVI and a prediction (summary.py).
"""

import polars as pl

from evaluator.metrics.intervals import with_intervals
from evaluator.suites.in_context_pvi.schema import (
    PVI_DECILES,
    PVI_DECILES_KEY,
    PVI_DENSITIES,
    PVI_DENSITIES_KEY,
    PVI_RUN,
)

N_INNER = 38
"""Number of bins of equal width; one more bin on either side extends to the lowest and the highest PVI."""

OUTER_SHARE = 0.005
"""Share of queries in each of the two outer bins."""

_CASE = ["dataset", "definition"]


def densities_table(judged: pl.DataFrame) -> pl.DataFrame:
    """Count right and wrong predictions by PVI: schema.PVI_DENSITIES, sorted by its key (Lu et al. 2023, figure 4).

    All runs of a dataset under one definition have the same bins, so that they can be drawn on one axis. Empty bins
    have rows as well, but a run without right predictions has no rows for these; likewise for wrong ones.
    """
    spans = _spans(judged)
    value, low, high = pl.col("pvi_bits"), pl.col("low"), pl.col("high")
    # Bin 0 is below the inner bins, 1 to N_INNER are the inner ones, N_INNER + 1 is above.
    inner = ((value - low) / (high - low) * N_INNER).floor().cast(pl.Int64).clip(0, N_INNER - 1) + 1
    bin_number = pl.when(value < low).then(0).when(value > high).then(N_INNER + 1).otherwise(inner)
    counts = judged.join(spans, on=_CASE).group_by(*PVI_RUN, "correct", bin=bin_number).agg(n=pl.len())
    # Join counts to all bins, so that empty ones are kept.
    groups = judged.select(*PVI_RUN, "correct").unique()
    rows = groups.join(_bins(spans), on=_CASE).join(counts, on=PVI_DENSITIES_KEY, how="left")
    n, width = pl.col("n").fill_null(0), pl.col("bin_high") - pl.col("bin_low")
    share = n / n.sum().over(*PVI_RUN, "correct")
    # An outer bin without queries may have no width.
    rows = rows.with_columns(n=n, density=pl.when(n > 0).then(share / width).otherwise(0.0))
    return rows.select(PVI_DENSITIES.names()).cast(PVI_DENSITIES).sort(PVI_DENSITIES_KEY)


def _spans(judged: pl.DataFrame) -> pl.DataFrame:
    """Return the limits of each case: `low` and `high` of the inner bins, `lowest` and `highest` of the outer ones."""
    value = pl.col("pvi_bits")
    spans = judged.group_by(_CASE, maintain_order=True).agg(
        lowest=value.min(), low=value.quantile(OUTER_SHARE), high=value.quantile(1 - OUTER_SHARE), highest=value.max()
    )
    # Where nearly all PVIs are equal, the inner bins are one unit wide around them.
    margin = pl.when(pl.col("low") == pl.col("high")).then(0.5).otherwise(0.0)
    spans = spans.with_columns(low=pl.col("low") - margin, high=pl.col("high") + margin)
    return spans.with_columns(lowest=pl.min_horizontal("lowest", "low"), highest=pl.max_horizontal("highest", "high"))


def _bins(spans: pl.DataFrame) -> pl.DataFrame:
    """Return bin, bin_low and bin_high of each case."""
    step = (pl.col("high") - pl.col("low")) / N_INNER
    inner = [pl.col("low") + number * step for number in range(N_INNER)]
    # N_INNER + 3 edges: all but the last are lower ends, all but the first upper ends.
    edges = pl.concat_list("lowest", *inner, "high", "highest")
    numbered = spans.select(
        *_CASE,
        bin=pl.int_ranges(N_INNER + 2),
        bin_low=edges.list.head(N_INNER + 2),
        bin_high=edges.list.tail(N_INNER + 2),
    )
    return numbered.explode("bin", "bin_low", "bin_high")


def deciles_table(judged: pl.DataFrame) -> pl.DataFrame:
    """Compute accuracy by deciles of PVI, with Wilson's interval: schema.PVI_DECILES, sorted by its key."""
    # Average ranks, so that queries of equal PVI are in one decile.
    rank = pl.col("pvi_bits").rank("average").over(PVI_RUN)
    decile = ((rank - 0.5) * 10 / pl.len().over(PVI_RUN)).floor().cast(pl.Int64) + 1
    n, value = pl.len().cast(pl.Float64), pl.col("correct").mean()
    means = judged.group_by(*PVI_RUN, decile=decile).agg(
        value=value,
        mean_pvi=pl.col("pvi_bits").mean(),
        standard_error=pl.when(n > 1).then((value * (1 - value) / (n - 1)).sqrt()),
        degrees_of_freedom=n - 1,
        n_queries=n,
        interval=pl.lit("score"),
        lowest=pl.lit(0.0),
        highest=pl.lit(1.0),
    )
    table = with_intervals(means).rename({"value": "accuracy", "n_queries": "n"})
    return table.select(PVI_DECILES.names()).cast(PVI_DECILES).sort(PVI_DECILES_KEY)
