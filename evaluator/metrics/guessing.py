"""Compare every accuracy with what guessing would have got.

Three rules say which random classifiers an accuracy is compared with (Yauney & Mimno 2024, section 3: "an experiment
evaluates t different classifiers (or prompts, or hyperparameter settings)" on n examples, each guessed uniformly).

- n is the number of distinct queries. A query asked behind two demonstration sets is one example: its answers share its
  text, and to count them as two would make tails too small.
- The number of right answers is the mean over a query's prompts, summed over queries and rounded down to a whole count.
- tries is the number of distinct prompts a query was asked with in the run, summed over the methods that were measured.
  Behind two demonstration sets that is 2, without demonstrations, where both prompts are the same text, 1; with ten
  methods ten times as many, because whoever runs ten may report the best. The definitions read the same answers
  differently and are no tries.

So a tail is never too small, as long as guesses at one query's prompts are independent or alike: a mean over prompts is
at most the best of them, so guessing gets that far no more often than the best of `tries` independent guesses does.
"""

from collections import Counter

import numpy as np
import polars as pl

from evaluator.errors import MetricError
from evaluator.metrics.per_request import MeasuredGroup
from evaluator.random_baselines.max_random import max_random_accuracy, max_random_tail
from evaluator.random_baselines.verdicts import examples_needed, verdict

ASKED = ["suite", "part", "dataset"]
"""What queries belong to; methods and definitions share them."""

GUESSES = pl.Schema(
    {
        "chance": pl.Float64(),
        "majority": pl.Float64(),
        "label_counts": pl.List(pl.Int64()),  # size of the label space; of a mean over datasets, one size a dataset
        "n_correct": pl.Int64(),  # requests answered right; null where no count of right queries can be made of them
        "tries": pl.Int64(),
    }
)
"""What an accuracy row brings along until its baselines are known."""


def tries_by_dataset(predictions: pl.DataFrame) -> dict[tuple[str, ...], int]:
    """Count the prompts a query was asked with, summed over methods, for each suite, part and dataset.

    Takes PREDICTIONS; of queries with different numbers of prompts the largest counts. Raises MetricError where a row
    does not say which prompt it answers.
    """
    if unknown := predictions["prompt_id"].null_count():
        raise MetricError(
            f"{unknown} of {predictions.height} predictions have no prompt_id, so nothing tells how many prompts a "
            "query was tried with. Give each row the prompt_id of its prompt: any text that differs between prompts."
        )
    of_query = predictions.group_by(*ASKED, "method", "query_id").agg(pl.col("prompt_id").n_unique())
    of_method = of_query.group_by(*ASKED, "method").agg(pl.col("prompt_id").max())
    return {
        (suite, part, dataset): tries
        for suite, part, dataset, tries in of_method.group_by(ASKED).agg(pl.col("prompt_id").sum()).rows()
    }


def guesses(group: MeasuredGroup, tries: int) -> dict[str, object]:
    """Return GUESSES of one dataset, method and definition.

    Chance is one over the size of the label space, whichever labels are frequent (Yauney & Mimno 2024, appendix A). The
    majority share is what answering with the most frequent gold label gets, on the same requests.
    """
    requests = group.requests
    asked_equally_often = requests.group_by("query_id").len()["len"].n_unique() == 1
    of_each_label = requests["gold"].value_counts()["count"].to_list()
    return {
        "chance": 1 / group.n_labels,
        "majority": max(of_each_label) / requests.height,
        "label_counts": [group.n_labels],
        "n_correct": requests["correct"].sum() if asked_equally_often else None,
        "tries": tries,
    }


def mean_guesses() -> dict[str, pl.Expr]:
    """Return GUESSES of the plain mean over datasets, from the rows of the datasets.

    Chance and majority are plain means. The mean accuracy is a share of right answers only where all datasets have as
    many queries and requests; elsewhere no count of right answers belongs to it, n_correct is null, and so are its
    maximum random baseline, tail and verdict.
    """
    same_size = (pl.col("n_queries").n_unique() == 1) & (pl.col("n_requests").n_unique() == 1)
    known = same_size & pl.col("n_correct").is_not_null().all()
    return {
        "chance": pl.col("chance").mean(),
        "majority": pl.col("majority").mean(),
        "label_counts": pl.col("label_counts").explode(),
        "n_correct": pl.when(known).then(pl.col("n_correct").sum()),
        "tries": pl.col("tries").max(),
    }


def with_baselines(rows: pl.DataFrame) -> pl.DataFrame:
    """Add max_random, log10_tail, verdict and n_needed to rows with GUESSES, value, n_queries and n_requests.

    They are null on rows without n_correct, and where there is only one label, which guessing cannot miss. A mean over
    datasets of different label spaces is compared with guesses of different chances, a Poisson binomial (Yauney & Mimno
    2024, appendix A); its n_needed counts the queries of all datasets together.
    """
    counted = pl.col("n_correct").is_not_null() & (pl.col("label_counts").list.min() > 1)
    indexed = rows.with_row_index()
    known = indexed.filter(counted)
    sizes, tries = known["n_queries"].to_numpy(), known["tries"].to_numpy()
    choices = [_choices(*row) for row in known.select("label_counts", "n_queries").iter_rows()]
    correct = known.select(pl.col("n_correct") * pl.col("n_queries") // pl.col("n_requests")).to_series()
    baselines = known.select(
        "index",
        max_random=pl.Series(np.asarray(max_random_accuracy(sizes, choices, tries))),
        log10_tail=pl.Series(np.asarray(max_random_tail(correct.to_numpy(), sizes, choices, tries, log10=True))),
    )
    joined = indexed.join(baselines, on="index", how="left", maintain_order="left").drop("index")
    judged = joined.with_columns(verdict=verdict(pl.col("value"), pl.col("chance"), pl.col("max_random")))
    return judged.with_columns(n_needed=_n_needed(judged))


def _choices(label_counts: list[int], n_queries: int) -> dict[int, int]:
    """Count the queries of each number of labels; the datasets of a mean have equally many queries."""
    of_each = n_queries // len(label_counts)
    return {n_labels: of_each * datasets for n_labels, datasets in Counter(label_counts).items()}


def _n_needed(judged: pl.DataFrame) -> pl.Series:
    between = judged.select("verdict", "value", "chance", "tries").iter_rows()
    needed = [examples_needed(*row) if is_between == "between" else None for is_between, *row in between]
    return pl.Series(needed, dtype=pl.Int64)
