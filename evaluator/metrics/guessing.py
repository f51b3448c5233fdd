"""Compare every accuracy with random classifiers.

Three rules define the random classifiers that an accuracy is compared with (Yauney & Mimno 2024, section 3: "an
experiment evaluates t different classifiers (or prompts, or hyperparameter settings)" on n examples, each guessed
uniformly).

- n is the number of distinct queries. A query with two demonstration sets is one example: its answers share its text,
  and to count them as two would make tails too small.
- The number of right answers is the mean over a query's prompts, summed over queries and rounded down to a whole count.
- tries is the number of distinct prompts of a query in the run, summed over the methods that were measured. With two
  demonstration sets that is 2; without demonstrations, where both prompts are the same text, 1; with ten methods ten
  times as many, because whoever runs ten may report the best. Definitions are not tries: they read the same answers
  differently.

So a tail is never too small, as long as guesses at one query's prompts are independent or identical: a mean over
prompts is at most the best of them, so guessing reaches it no more often than the best of `tries` independent guesses
does.
"""

from collections import Counter

import numpy as np
import polars as pl

from evaluator.errors import MetricError
from evaluator.metrics.per_request import MeasuredGroup
from evaluator.random_baselines.max_random import max_random_accuracy, max_random_tail
from evaluator.random_baselines.verdicts import examples_needed, verdict

DATASET = ["suite", "part", "dataset"]
"""Columns that identify a set of queries, which methods and definitions share."""

GUESSES = pl.Schema(
    {
        "chance": pl.Float64(),
        "majority": pl.Float64(),
        "label_counts": pl.List(pl.Int64()),  # size of the label space; of a mean over datasets, one size a dataset
        "n_correct": pl.Int64(),  # correct requests; null where queries differ in their number of requests
        "tries": pl.Int64(),
    }
)
"""Columns of an accuracy row that its baselines are computed from."""


def tries_by_dataset(predictions: pl.DataFrame) -> dict[tuple[str, ...], int]:
    """Count the distinct prompts of a query, summed over methods, for each suite, part and dataset.

    Takes PREDICTIONS; where queries differ in their number of prompts, the largest counts. Raises MetricError where a
    row has no prompt_id.
    """
    if unknown := predictions["prompt_id"].null_count():
        raise MetricError(
            f"{unknown} of {predictions.height} predictions have no prompt_id, so the number of prompts of a query is "
            "unknown. Give each row the prompt_id of its prompt: any text that differs between prompts."
        )
    by_query = predictions.group_by(*DATASET, "method", "query_id").agg(pl.col("prompt_id").n_unique())
    by_method = by_query.group_by(*DATASET, "method").agg(pl.col("prompt_id").max())
    return {
        (suite, part, dataset): tries
        for suite, part, dataset, tries in by_method.group_by(DATASET).agg(pl.col("prompt_id").sum()).rows()
    }


def guesses(group: MeasuredGroup, tries: int) -> dict[str, object]:
    """Return GUESSES of one dataset, method and definition.

    Chance is one over the size of the label space, whichever labels are frequent (Yauney & Mimno 2024, appendix A). The
    majority share is the accuracy of always answering with the most frequent gold label, on the same requests.
    """
    requests = group.requests
    is_balanced = requests.group_by("query_id").len()["len"].n_unique() == 1
    gold_counts = requests["gold"].value_counts()["count"].to_list()
    return {
        "chance": 1 / group.n_labels,
        "majority": max(gold_counts) / requests.height,
        "label_counts": [group.n_labels],
        "n_correct": requests["correct"].sum() if is_balanced else None,
        "tries": tries,
    }


def mean_guesses() -> dict[str, pl.Expr]:
    """Return GUESSES of the plain mean over datasets, from the rows of the datasets.

    Chance and majority are plain means. The mean accuracy is a share of correct answers only where all datasets have
    equally many queries and requests; otherwise n_correct is null, and so are the maximum random baseline, the tail and
    the verdict.
    """
    same_size = (pl.col("n_queries").n_unique() == 1) & (pl.col("n_requests").n_unique() == 1)
    is_count = same_size & pl.col("n_correct").is_not_null().all()
    return {
        "chance": pl.col("chance").mean(),
        "majority": pl.col("majority").mean(),
        "label_counts": pl.col("label_counts").explode(),
        "n_correct": pl.when(is_count).then(pl.col("n_correct").sum()),
        "tries": pl.col("tries").max(),
    }


def with_baselines(rows: pl.DataFrame) -> pl.DataFrame:
    """Add max_random, log10_tail, verdict and n_needed to rows with GUESSES, value, n_queries and n_requests.

    They are null on rows without n_correct, and where there is only one label, which guessing always hits. A mean over
    datasets of different label spaces is compared with guesses of different chances, a Poisson binomial (Yauney & Mimno
    2024, appendix A); its n_needed counts the queries of all datasets together.
    """
    has_baselines = pl.col("n_correct").is_not_null() & (pl.col("label_counts").list.min() > 1)
    indexed = rows.with_row_index()
    counted = indexed.filter(has_baselines)
    sizes, tries = counted["n_queries"].to_numpy(), counted["tries"].to_numpy()
    choices = [_choices(*row) for row in counted.select("label_counts", "n_queries").iter_rows()]
    # Mean number of correct requests a query, summed over queries and rounded down.
    correct = counted.select(pl.col("n_correct") * pl.col("n_queries") // pl.col("n_requests")).to_series()
    baselines = counted.select(
        "index",
        max_random=pl.Series(np.asarray(max_random_accuracy(sizes, choices, tries))),
        log10_tail=pl.Series(np.asarray(max_random_tail(correct.to_numpy(), sizes, choices, tries, log10=True))),
    )
    joined = indexed.join(baselines, on="index", how="left", maintain_order="left").drop("index")
    judged = joined.with_columns(verdict=verdict(pl.col("value"), pl.col("chance"), pl.col("max_random")))
    return judged.with_columns(n_needed=_n_needed(judged))


def _choices(label_counts: list[int], n_queries: int) -> dict[int, int]:
    """Count the queries by number of labels; the datasets of a mean have equally many queries."""
    queries_of_dataset = n_queries // len(label_counts)
    return {n_labels: queries_of_dataset * datasets for n_labels, datasets in Counter(label_counts).items()}


def _n_needed(judged: pl.DataFrame) -> pl.Series:
    rows = judged.select("verdict", "value", "chance", "tries").iter_rows()
    needed = [examples_needed(*row) if verdict_of_row == "between" else None for verdict_of_row, *row in rows]
    return pl.Series(needed, dtype=pl.Int64)
