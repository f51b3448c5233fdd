"""Describe the distribution of PVI over queries: histograms, accuracy by deciles, and the queries of lowest PVI.

A judged query is one that has both a PVI and a prediction (summary.py). Lists of queries are by the mean PVI over all
runs of a dataset (demonstration sets times numbers of shots), so that one bad draw lists no query. Lu et al. 2023,
section 5.5 and tables 6 and 17 to 19, list the queries of lowest PVI in one run.
"""

import polars as pl

from evaluator.metrics.intervals import with_intervals
from evaluator.suites.base import declared
from evaluator.suites.in_context_pvi import schema

N_INNER = 38
"""Number of bins of equal width; one more bin on either side extends to the lowest and the highest PVI."""

OUTER_SHARE = 0.005
"""Share of queries in each of the two outer bins."""

_CASE = ["dataset", "definition"]

N_HARDEST = 20
"""Number of queries listed for each gold label."""


def densities_table(judged: pl.DataFrame) -> pl.DataFrame:
    """Count right and wrong predictions by PVI: schema.PVI_DENSITIES, sorted by its key (Lu et al. 2023, figure 4).

    All runs of a dataset under one definition have the same bins, so that they can be drawn on one axis. Empty bins
    have rows as well, but a run without right (wrong) predictions has no rows for right (wrong) predictions.
    """
    spans = _spans(judged)
    value, low, high = pl.col("pvi_bits"), pl.col("low"), pl.col("high")
    # Bin 0 is below the inner bins, 1 to N_INNER are inner bins, N_INNER + 1 is above.
    inner = ((value - low) / (high - low) * N_INNER).floor().cast(pl.Int64).clip(0, N_INNER - 1) + 1
    bin_number = pl.when(value < low).then(0).when(value > high).then(N_INNER + 1).otherwise(inner)
    counts = judged.join(spans, on=_CASE).group_by(*schema.PVI_RUN, "correct", bin=bin_number).agg(n=pl.len())
    # Join counts to all bins, so that empty bins are kept.
    groups = judged.select(*schema.PVI_RUN, "correct").unique()
    rows = groups.join(_bins(spans), on=_CASE).join(counts, on=schema.PVI_DENSITIES_KEY, how="left")
    n, width = pl.col("n").fill_null(0), pl.col("bin_high") - pl.col("bin_low")
    share = n / n.sum().over(*schema.PVI_RUN, "correct")
    # An outer bin without queries may have no width.
    rows = rows.with_columns(n=n, density=pl.when(n > 0).then(share / width).otherwise(0.0))
    return declared(rows, schema.PVI_DENSITIES, schema.PVI_DENSITIES_KEY)


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
    rank = pl.col("pvi_bits").rank("average").over(schema.PVI_RUN)
    decile = ((rank - 0.5) * 10 / pl.len().over(schema.PVI_RUN)).floor().cast(pl.Int64) + 1
    n, value = pl.len().cast(pl.Float64), pl.col("correct").mean()
    means = judged.group_by(*schema.PVI_RUN, decile=decile).agg(
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
    return declared(table, schema.PVI_DECILES, schema.PVI_DECILES_KEY)


def runs_of_queries(pvi: pl.DataFrame) -> pl.DataFrame:
    """Summarise the PVIs and predictions of each query and definition over all runs of its dataset.

    Args:
        pvi: schema.PVI, of demonstrations of one source.
    """
    query, value = ["dataset", "definition", "query_id"], pl.col("pvi_bits")
    in_order = pvi.sort(*query, "n_shots", "demonstration_set")  # because the order of terms decides the last digit
    return in_order.group_by(query, maintain_order=True).agg(
        pl.col("gold").first(),
        mean_pvi=value.mean(),
        highest_pvi=value.max(),
        n_runs=pl.len(),
        n_missing=value.null_count(),
        n_right=pl.col("correct").sum(),
        n_wrong=(~pl.col("correct")).sum(),
        n_predicted=pl.col("pred").count(),
        # Equal where every run that predicts a label predicts the same one.
        predicted=pl.col("pred").min(),
        highest_predicted=pl.col("pred").max(),
    )


def hardest_table(over_runs: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
    """List the queries of lowest mean PVI of each gold label: schema.PVI_HARDEST, sorted by its key.

    Args:
        over_runs: the result of runs_of_queries.
        queries: schema.PVI_QUERIES; `row` and `text` are null for a query that is not in it.
    """
    means = over_runs.filter(pl.col("mean_pvi").is_not_null())
    listed = _ranked(means, queries, schema.PVI_HARDEST_KEY).filter(pl.col("rank") <= N_HARDEST)
    return declared(listed, schema.PVI_HARDEST, schema.PVI_HARDEST_KEY)


def mislabelled_table(over_runs: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
    """List queries whose label is likely wrong, from the lowest mean PVI up: schema.PVI_MISLABELLED, sorted by its key.

    In every run of the dataset the PVI is below 0, so that the query makes its gold label less likely than no query
    does, and every run predicts the same other label. A query without a PVI in some run is not listed. The list is for
    inspection, not a verdict: a model can be wrong about one kind of query in every run.

    Args:
        over_runs, queries: as for hardest_table.
    """
    always_negative = (pl.col("highest_pvi") < 0) & (pl.col("n_missing") == 0)
    is_one_label = (pl.col("n_predicted") == pl.col("n_runs")) & (pl.col("predicted") == pl.col("highest_predicted"))
    always_another = (pl.col("n_wrong") == pl.col("n_runs")) & is_one_label
    listed = _ranked(over_runs.filter(always_negative, always_another), queries, schema.PVI_MISLABELLED_KEY)
    return declared(listed, schema.PVI_MISLABELLED, schema.PVI_MISLABELLED_KEY)


def _ranked(means: pl.DataFrame, queries: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Add `rank`, the last column of the key, by mean PVI within its other columns, and the queries' rows and texts."""
    rank = pl.int_range(1, pl.len() + 1).over(key[:-1])
    ranked = means.sort(*key[:-1], "mean_pvi", "query_id").with_columns(rank=rank)
    return ranked.join(queries.select(*schema.PVI_QUERIES_KEY, "row", "text"), on=schema.PVI_QUERIES_KEY, how="left")
