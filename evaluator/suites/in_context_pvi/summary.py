"""Summarise PVI: V-information and accuracies of each run, distributions over queries, and lists of hard queries.

A run is all queries of a dataset after one demonstration set, under one definition of PVI. A judged query has both a
PVI and a prediction.

Lu et al. 2023, section 5: accuracy in the lowest and highest fifth and half of queries by PVI, and mean PVI of right
and of wrong predictions. V-information is the mean PVI (Ethayarajh et al. 2022, arXiv 2110.08420).

Queries are listed by their mean PVI over all runs of a dataset (demonstration sets times numbers of shots), so that a
single bad demonstration set does not list a query. Lu et al. 2023, section 5.5 and tables 6 and 17 to 19, list the
queries of lowest PVI in one run.
"""

import math
from itertools import product

import numpy as np
import polars as pl

from evaluator.arrays import Bools, Floats
from evaluator.metrics.intervals import mean_over_queries, with_intervals
from evaluator.schemas import MEAN_OVER_DATASETS, declared
from evaluator.suites.in_context_pvi import schema

SHARES = {"fifth": 5, "half": 2}
"""Name of a share of the queries -> number of such shares."""

AVERAGED: dict[str, dict[str, str | None]] = {
    "sets": {},
    "sets and shots": {"n_shots": None},
    "sets, shots and datasets": {"n_shots": None, "dataset": MEAN_OVER_DATASETS},
}
"""Factors that a mean is over -> columns that no longer identify one value, with the value that they have instead; the
column demonstration_set is dropped in all of them."""


def summary_table(pvi: pl.DataFrame, judged: pl.DataFrame, *, seed: int = 0) -> pl.DataFrame:
    """Return schema.PVI_SUMMARY, a row for each run, sorted by its key.

    The lowest fifth of n queries are the floor(n / 5) queries of lowest PVI, at least one. If more queries tie at the
    border than fit in, each of them counts in part: the accuracy is the expectation for a random choice among them.
    Under `released` they are the queries strictly below a quantile (for the highest, strictly above), as in
    `accuracy_quantile` of the published utils.py; there may be none if many queries tie.

    Args:
        pvi: schema.PVI.
        judged: as returned by judged_queries for `pvi`.
        seed: seed of the drawn predictions under `released`.
    """
    # Counts and accuracy over all queries of a run.
    is_drawn = pl.col("definition").first() == "released"
    counts = pvi.group_by(schema.PVI_RUN).agg(
        n_queries=pl.len(),
        n_missing=pl.col("pvi_bits").null_count(),
        n_unpredicted=pl.col("correct").null_count(),
        n_tied=(pl.col("n_highest_labels") > 1).sum(),
        n_other_token=pl.when(is_drawn).then((pl.col("pred").is_null() & pl.col("correct").is_not_null()).sum()),
        seed=pl.when(is_drawn).then(seed),
        accuracy=pl.col("correct").mean(),
    )
    # Means, accuracies by PVI and the threshold over judged queries.
    value, correct = pl.col("pvi_bits"), pl.col("correct")
    means = {"right_pvi": value.filter(correct).mean(), "wrong_pvi": value.filter(~correct).mean()}
    by_pvi = judged.group_by(schema.PVI_RUN, maintain_order=True).agg(**means, **_ends())
    for table in (by_pvi, _v_information(pvi), thresholds(judged)):
        counts = counts.join(table, on=schema.PVI_RUN, how="left")
    counts = counts.with_columns(
        (pl.col(name) * math.log(2)).name.suffix("_nats") for name in ("right_pvi", "wrong_pvi", "v_information")
    )
    return declared(counts, schema.PVI_SUMMARY, schema.PVI_SUMMARY_KEY)


def means_table(summary: pl.DataFrame) -> pl.DataFrame:
    """Return schema.PVI_MEANS: means of schema.PVI_SUMMARY over sets, over sets and shots, and over datasets too."""
    values = [name for name in schema.PVI_MEANS if name in summary.columns and name not in schema.PVI_RUN]
    frames = []
    for over, gone in AVERAGED.items():
        rows = summary.with_columns(pl.lit(value).alias(name) for name, value in gone.items())
        means = rows.group_by(schema.PVI_MEANS_KEY[1:]).agg(pl.col(values).mean(), n_runs=pl.len())
        frames.append(means.with_columns(over=pl.lit(over)))
    return declared(pl.concat(frames, how="vertical_relaxed"), schema.PVI_MEANS, schema.PVI_MEANS_KEY)


def judged_queries(pvi: pl.DataFrame) -> pl.DataFrame:
    """Return the queries that have both a PVI and a prediction, in ascending order of PVI in each run."""
    return pvi.drop_nulls(["pvi_bits", "correct"]).sort(*schema.PVI_RUN, "pvi_bits")


def thresholds(judged: pl.DataFrame) -> pl.DataFrame:
    """Return `threshold`, the PVI above which predictions are mostly right, and `threshold_accuracy` for each run.

    Lu et al. 2023, section 5.3, read the threshold from a plot of densities. Here accuracy is fitted as a
    non-decreasing function of PVI by least squares (isotonic regression; Barlow et al. 1972, "Statistical Inference
    under Order Restrictions"), and the threshold is where the fit reaches one half. No shape is assumed, and nothing is
    random.

    The threshold follows without computing the fit. Call all queries from some PVI upwards an upper set. The fit is at
    least one half exactly on the upper set with the highest sum of (correct - 1/2); if several have the same sum, on
    the largest of them. So no other threshold makes the rule "right from the threshold upwards" wrong for fewer
    queries.

    The threshold is halfway between the PVIs on its two sides. It is -inf if the fit is never below one half, and inf
    if the fit is always below one half.

    Args:
        judged: PVI_RUN, `pvi_bits` and `correct` without nulls, in ascending order of PVI in each run.
    """
    runs = judged.group_by(schema.PVI_RUN, maintain_order=True)
    rows = [(*key, *_threshold(run["pvi_bits"].to_numpy(), run["correct"].to_numpy())) for key, run in runs]
    names = (*schema.PVI_RUN, "threshold", "threshold_accuracy")
    return pl.DataFrame(rows, {name: schema.PVI_SUMMARY[name] for name in names}, orient="row")


def _threshold(values: Floats, correct: Bools) -> tuple[float, float]:
    """Return the threshold of one run and its accuracy.

    Args:
        values: [query], PVI in ascending order.
        correct: [query].
    """
    # Queries of equal PVI are on the same side of the threshold, so that an upper set can only begin at a new value.
    cuts = np.flatnonzero(np.diff(values, prepend=-np.inf) != 0)
    # Sum of (correct - 1/2) over each upper set that is not empty; the sum over the empty set is 0.
    gains = np.cumsum((correct - 0.5)[::-1])[::-1][cuts]
    cut, gain = cuts[gains.argmax()], float(gains.max())  # argmax is the first, which is the largest upper set
    between = -math.inf if cut == 0 else float(values[cut] + values[cut - 1]) / 2
    # Queries that the rule judges correctly:
    # right above + wrong below = all wrong + (right above - wrong above) = all wrong + 2 * gain.
    return math.inf if gain < 0 else between, float((~correct).sum() + 2 * max(gain, 0.0)) / len(values)


def _ends() -> dict[str, pl.Expr]:
    """Return aggregations of judged queries: accuracy, ties and size of the lowest and highest fifth and half."""
    is_released, correct, columns = pl.col("definition").first() == "released", pl.col("correct"), dict[str, pl.Expr]()
    for (name, parts), (end, sign) in product(SHARES.items(), {"lowest": 1, "highest": -1}.items()):
        # With sign -1 the highest PVIs are the lowest values.
        value, size = sign * pl.col("pvi_bits"), pl.max_horizontal(pl.len() // parts, 1).cast(pl.Int64)
        # Queries below the border all count; queries that tie at the border share the remaining ranks.
        border = value.sort().get(size - 1)
        inside, tied = value < border, value == border
        places_left = size - inside.sum()
        n_right = correct.filter(inside).sum() + places_left * correct.filter(tied).mean()
        by_rank = (n_right / size, pl.when(tied.sum() > places_left).then(tied.sum()).otherwise(0), size)
        # Under `released`: the queries strictly beyond the quantile.
        quantile = sign * pl.col("pvi_bits").quantile(1 / parts if sign > 0 else 1 - 1 / parts, "linear")
        beyond = value < quantile
        by_quantile = (correct.filter(beyond).mean(), (value == quantile).sum(), beyond.sum())
        for column, ranked, released in zip(("accuracy", "tied", "n"), by_rank, by_quantile, strict=True):
            columns[f"{end}_{name}_{column}"] = pl.when(is_released).then(released).otherwise(ranked)
    return columns


def _v_information(pvi: pl.DataFrame) -> pl.DataFrame:
    """Return v_information of each run, the mean PVI over independent queries, with Student's interval."""
    measured = pvi.drop_nulls("pvi_bits").group_by(schema.PVI_RUN, maintain_order=True)
    means = measured.agg(**mean_over_queries("pvi_bits", "symmetric", (-math.inf, math.inf)))
    return with_intervals(means).select(*schema.PVI_RUN, "ci_low", "ci_high", v_information="value")


N_INNER = 38
"""Number of inner bins, which have equal width. An outer bin on each side extends to the lowest or highest PVI."""

OUTER_SHARE = 0.005
"""Share of queries in each outer bin."""

N_HARDEST = 20
"""Number of queries in the list of each gold label."""


def densities_table(judged: pl.DataFrame) -> pl.DataFrame:
    """Return schema.PVI_DENSITIES: histograms of right and of wrong predictions by PVI (Lu et al. 2023, figure 4).

    All runs of a dataset under one definition have the same bins, so that they can be drawn on one axis. Empty bins
    have rows too, but a run without right (or wrong) predictions has no rows for them. Sorted by key.
    """
    frames = [schema.PVI_DENSITIES.to_frame()]
    for _, queries in judged.group_by("dataset", "definition", maintain_order=True):
        edges = _edges(queries["pvi_bits"])
        low, high = edges[1], edges[-2]
        for key, run in queries.group_by(*schema.PVI_RUN, "correct", maintain_order=True):
            values = run["pvi_bits"].to_numpy()
            # Bin 0 is the lower outer bin, 1 to N_INNER are the inner bins, N_INNER + 1 is the upper outer bin.
            inner = np.clip(np.floor((values - low) / (high - low) * N_INNER), 0, N_INNER - 1).astype(np.int64) + 1
            number = np.where(values < low, 0, np.where(values > high, N_INNER + 1, inner))
            n = np.bincount(number, minlength=N_INNER + 2)
            # An outer bin without queries can have width 0.
            density = np.divide(n / len(values), np.diff(edges), out=np.zeros(len(n)), where=n > 0)
            bins = {"bin": range(len(n)), "bin_low": edges[:-1], "bin_high": edges[1:], "n": n, "density": density}
            named = {name: pl.lit(value) for name, value in zip((*schema.PVI_RUN, "correct"), key, strict=True)}
            frames.append(pl.DataFrame(bins).select(pl.all(), **named).select(frames[0].columns).cast(frames[0].schema))
    return pl.concat(frames).sort(schema.PVI_DENSITIES_KEY)


def _edges(values: pl.Series) -> Floats:
    """Return the edges of the lower outer bin, the inner bins and the upper outer bin, [N_INNER + 3]."""
    low, high = (values.quantile(share) or 0.0 for share in (OUTER_SHARE, 1 - OUTER_SHARE))
    # If nearly all PVIs are equal, the inner bins together cover one unit around them.
    margin = 0.5 if low == high else 0.0
    low, high = low - margin, high + margin
    inner = low + np.arange(N_INNER) * ((high - low) / N_INNER)
    ends = values.to_numpy()
    return np.array([min(ends.min(), low), *inner, high, max(ends.max(), high)])


def deciles_table(judged: pl.DataFrame) -> pl.DataFrame:
    """Return schema.PVI_DECILES: accuracy in each decile of PVI, with Wilson's interval; sorted by key."""
    # Average ranks put queries of equal PVI into the same decile.
    rank = pl.col("pvi_bits").rank("average").over(schema.PVI_RUN)
    decile = ((rank - 0.5) * 10 / pl.len().over(schema.PVI_RUN)).floor().cast(pl.Int64) + 1
    accuracy = mean_over_queries("correct", "score", (0.0, 1.0))
    means = judged.group_by(*schema.PVI_RUN, decile=decile).agg(mean_pvi=pl.col("pvi_bits").mean(), **accuracy)
    table = with_intervals(means).rename({"value": "accuracy", "n_queries": "n"})
    return declared(table, schema.PVI_DECILES, schema.PVI_DECILES_KEY)


def runs_of_queries(pvi: pl.DataFrame) -> pl.DataFrame:
    """Summarise the PVIs and predictions of each query over all runs of its dataset, under each definition.

    Args:
        pvi: schema.PVI with demonstrations of one source.
    """
    query, value = ["dataset", "definition", "query_id"], pl.col("pvi_bits")
    in_order = pvi.sort(*query, "n_shots", "demonstration_set")  # the order of terms decides the last digit of a mean
    return in_order.group_by(query, maintain_order=True).agg(
        pl.col("gold").first(),
        mean_pvi=value.mean(),
        highest_pvi=value.max(),
        n_runs=pl.len(),
        n_missing=value.null_count(),
        n_right=pl.col("correct").sum(),
        n_wrong=(~pl.col("correct")).sum(),
        # The predicted label if all predictions are the same; null is a drawn token that is no label.
        predicted=pl.when(pl.col("pred").n_unique() == 1).then(pl.col("pred").first()),
    )


def hardest_table(over_runs: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
    """Return schema.PVI_HARDEST: for each gold label, the queries of lowest mean PVI; sorted by key.

    Args:
        over_runs: as returned by runs_of_queries.
        queries: schema.PVI_QUERIES; `row` and `text` are null for a query that is not in it.
    """
    means = over_runs.drop_nulls("mean_pvi")
    listed = _ranked(means, queries, schema.PVI_HARDEST_KEY).filter(pl.col("rank") <= N_HARDEST)
    return declared(listed, schema.PVI_HARDEST, schema.PVI_HARDEST_KEY)


def mislabelled_table(over_runs: pl.DataFrame, queries: pl.DataFrame) -> pl.DataFrame:
    """Return schema.PVI_MISLABELLED: queries whose gold label is likely wrong, by ascending mean PVI; sorted by key.

    A query is listed if in all runs of its dataset its PVI is below 0 (the input makes the gold label less probable
    than the null prompt does), and the same other label is predicted. A query without a PVI in some run is not listed.
    The list is for inspection, not a verdict: a model can be wrong about one kind of query in every run.

    Args:
        over_runs, queries: as for hardest_table.
    """
    always_negative = (pl.col("highest_pvi") < 0) & (pl.col("n_missing") == 0)
    always_another = (pl.col("n_wrong") == pl.col("n_runs")) & pl.col("predicted").is_not_null()
    listed = _ranked(over_runs.filter(always_negative, always_another), queries, schema.PVI_MISLABELLED_KEY)
    return declared(listed, schema.PVI_MISLABELLED, schema.PVI_MISLABELLED_KEY)


def _ranked(means: pl.DataFrame, queries: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Add `rank` by mean PVI, and the rows and texts of queries.

    Args:
        key: columns of a group within which queries are ranked, then `rank`.
    """
    rank = pl.int_range(1, pl.len() + 1).over(key[:-1])
    ranked = means.sort(*key[:-1], "mean_pvi", "query_id").with_columns(rank=rank)
    return ranked.join(queries.select(*schema.PVI_QUERIES_KEY, "row", "text"), on=schema.PVI_QUERIES_KEY, how="left")
