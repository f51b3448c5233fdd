"""How right and wrong predictions spread over PVI: judged queries go in, histograms and deciles come out.

A judged query has both a PVI and a prediction (pvi/summary.py).
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
"""Bins of equal width; one more on either side reaches as far as there are queries."""

OUTER = 0.005
"""Share of queries beyond the inner bins, on either side."""

_CASE = ["dataset", "definition"]


def densities_table(judged: pl.DataFrame) -> pl.DataFrame:
    """schemas.pvi.PVI_DENSITIES of right and of wrong predictions, sorted by its key (Lu et al. 2023, figure 4).

    All runs of a dataset under one definition have the same bins, so that they can be drawn on one axis. The bins that
    a run has no query in are there as well; a correctness that it has no query of is not.
    """
    spans = _spans(judged)
    value, low, high = pl.col("pvi_bits"), pl.col("low"), pl.col("high")
    inner = ((value - low) / (high - low) * N_INNER).floor().cast(pl.Int64).clip(0, N_INNER - 1) + 1
    place = pl.when(value < low).then(0).when(value > high).then(N_INNER + 1).otherwise(inner)
    counts = judged.join(spans, on=_CASE).group_by(*PVI_RUN, "correct", bin=place).agg(n=pl.len())
    groups = judged.select(*PVI_RUN, "correct").unique()
    rows = groups.join(_bins(spans), on=_CASE).join(counts, on=PVI_DENSITIES_KEY, how="left")
    n, width = pl.col("n").fill_null(0), pl.col("bin_high") - pl.col("bin_low")
    share = n / n.sum().over(*PVI_RUN, "correct")
    # An outer bin without queries may have no width.
    rows = rows.with_columns(n=n, density=pl.when(n > 0).then(share / width).otherwise(0.0))
    return rows.select(PVI_DENSITIES.names()).cast(PVI_DENSITIES).sort(PVI_DENSITIES_KEY)


def _spans(judged: pl.DataFrame) -> pl.DataFrame:
    """Where the bins of each case begin and end: `least`, `low`, `high` and `most`."""
    value = pl.col("pvi_bits")
    spans = judged.group_by(_CASE, maintain_order=True).agg(
        least=value.min(), low=value.quantile(OUTER), high=value.quantile(1 - OUTER), most=value.max()
    )
    # Where nearly all PVIs are one number, the bins are a unit around it.
    around = pl.when(pl.col("low") == pl.col("high")).then(0.5).otherwise(0.0)
    spans = spans.with_columns(low=pl.col("low") - around, high=pl.col("high") + around)
    return spans.with_columns(least=pl.min_horizontal("least", "low"), most=pl.max_horizontal("most", "high"))


def _bins(spans: pl.DataFrame) -> pl.DataFrame:
    """bin, bin_low and bin_high of each case."""
    step = (pl.col("high") - pl.col("low")) / N_INNER
    inner = [pl.col("low") + place * step for place in range(N_INNER)]
    edges = pl.concat_list("least", *inner, "high", "most")
    numbered = spans.select(
        *_CASE,
        bin=pl.int_ranges(N_INNER + 2),
        bin_low=edges.list.head(N_INNER + 2),
        bin_high=edges.list.tail(N_INNER + 2),
    )
    return numbered.explode("bin", "bin_low", "bin_high")


def deciles_table(judged: pl.DataFrame) -> pl.DataFrame:
    """schemas.pvi.PVI_DECILES: accuracy with Wilson's interval, from the lowest tenth of PVIs up; sorted by its key."""
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
