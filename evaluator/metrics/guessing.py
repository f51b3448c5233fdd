"""Compare every accuracy with uniform guessing, and with the best constant answer.

Three rules define the random classifiers that an accuracy is compared with (Yauney & Mimno 2024, section 3: "an
experiment evaluates t different classifiers (or prompts, or hyperparameter settings)" on n examples, where each answer
is a uniform guess).

- n is the number of distinct queries. A query with two demonstration sets is one example: its answers depend on the
  same text, and counting two examples would make tail probabilities too small.
- The number of right answers is the mean over a query's prompts, summed over queries and rounded down to a whole count.
- tries is the number of prompts from which the best accuracy is chosen: 1 for a mean over a query's prompts, which is
  compared with one random classifier; for the best of several prompts, the number of different prompts (prompts_tried).
  Methods, datasets and parts are not tries of each other, so that additions to a run do not change the baseline of
  another row. A reader may still pick the best of them; the correction over all tests of the run allows for this.

The tail probability of an accuracy above chance is therefore never too small, provided that the guesses at one query's
prompts are independent or identical: a mean of several guesses is not far above chance more often than one guess.

A constant answer is better than uniform guessing where labels are unequally frequent. Every accuracy is therefore also
tested, by paired differences of queries, against the best constant answer, the majority label of the evaluated queries.
The verdict "better than guessing" needs both tests.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import betaincinv

from evaluator.arrays import Bools, Floats
from evaluator.errors import MetricError
from evaluator.random_baselines.max_random import (
    TAIL_TO_TELL,
    max_random_accuracy,
    max_random_tail,
    verdict,
    with_tests,
)
from evaluator.schemas import MEAN_OVER_DATASETS, TEST_OF_GUESSING, TEST_OF_MAJORITY, declare
from evaluator.statistics.paired import paired_test

VERDICTS = ("better than guessing", "better than uniform guessing", "not better than uniform guessing")
"""Verdicts, from best to worst. The first needs both tests, the second only the test against uniform guessing."""

MEAN = ["suite", "part", "method", "metric", "definition"]
"""Columns that identify a mean over datasets."""

GUESSES = declare(
    chance=pl.Float64(),
    majority=pl.Float64(),
    label_counts=pl.List(pl.Int64()),  # size of the label space; for a mean over datasets, one size a dataset
    n_correct=pl.Int64(),  # number of correct requests; null where queries differ in their number of requests
    tries=pl.Int64(),
    # A query's margin is the accuracy on its prompts minus the accuracy of the majority label on the same prompts:
    margins=pl.List(pl.Float64()),  # distinct margins
    margin_counts=pl.List(pl.Int64()),  # number of queries with each margin
)
"""Columns of an accuracy row from which its baselines are computed."""


def prompts_tried(rows: pl.DataFrame, choice: Sequence[str] = ()) -> pl.DataFrame:
    """Count the different prompts of a query: columns `choice` and `tries`, sorted by `choice`.

    All suites count tries by this function. Where queries differ in their number of prompts, `tries` is the largest.

    Args:
        rows: one row a prompt and query, with query_id and prompt_id.
        choice: columns that identify a reported accuracy; none if all rows belong to the same accuracy.

    Raises MetricError for a row without prompt_id.
    """
    if unknown := rows["prompt_id"].null_count():
        raise MetricError(
            f"{unknown} of {rows.height} predictions have no prompt_id, so the number of prompts of a query is "
            "unknown. Give each row the prompt_id of its prompt: any text that differs between prompts."
        )
    query = [*choice, "query_id"]
    tried = rows.select(*query, "prompt_id").unique().group_by(query).agg(tries=pl.len().cast(pl.Int64))
    most = pl.col("tries").max()
    return tried.group_by(*choice).agg(most).sort(*choice) if choice else tried.select(most)


def guesses(requests: pl.DataFrame, n_labels: int) -> dict[str, object]:
    """Return GUESSES of one dataset, method and definition from its per-request columns.

    Chance is one over the size of the label space, whatever the frequencies of labels (Yauney & Mimno 2024, appendix
    A). The majority share is the accuracy of always answering with the most frequent gold label, on the same requests.
    Where label names differ between rows (column gold_text), a constant answer is one position or one text, whichever
    is right more often.
    """
    requests_of_query = requests.group_by("query_id").len()["len"]
    columns = requests.select("^gold(_text)?$").columns
    counts = [(name, *row) for name in columns for row in requests[name].value_counts().rows()]
    most_frequent: int = max(n for *_, n in counts)
    margins = [_margins(requests, pl.col(name) == label) for name, label, n in counts if n == most_frequent]
    # Of equally frequent labels, use the constant answer with the largest sum of squared margins: the hardest to tell
    # apart from the method. The result does not depend on the order of the labels.
    hardest = max(margins, key=lambda table: (sum(margin**2 * n for margin, n in table.rows()), table.rows()))
    return {
        "chance": 1 / n_labels,
        "majority": most_frequent / requests.height,
        "label_counts": [n_labels],
        "n_correct": int(requests["correct"].sum()) if requests_of_query.n_unique() == 1 else None,
        "tries": 1,
        "margins": hardest["margin"].to_list(),
        "margin_counts": hardest["count"].to_list(),
    }


def _margins(requests: pl.DataFrame, is_right: pl.Expr) -> pl.DataFrame:
    """Count the queries by their accuracy minus that of a constant answer: columns margin and count."""
    margin = pl.col("correct").cast(pl.Float64) - is_right
    return requests.group_by("query_id").agg(margin=margin.mean())["margin"].value_counts().sort("margin")


def mean_guesses() -> dict[str, pl.Expr]:
    """Return expressions for GUESSES of the plain mean over datasets, to aggregate the rows of the datasets.

    Chance and majority are plain means. The mean accuracy is a share of correct answers only where all datasets have
    the same number of queries and of requests; otherwise n_correct is null, and with it the maximum random baseline,
    the tail and the verdict.
    """
    same_size = (pl.col("n_queries").n_unique() == 1) & (pl.col("n_requests").n_unique() == 1)
    is_count = same_size & pl.col("n_correct").is_not_null().all()
    return {
        "chance": pl.col("chance").mean(),
        "majority": pl.col("majority").mean(),
        **{name: pl.col(name).explode() for name in ("label_counts", "margins", "margin_counts")},
        "n_correct": pl.when(is_count).then(pl.col("n_correct").sum()),
        "tries": pl.col("tries").max(),
    }


def with_baselines(rows: pl.DataFrame) -> pl.DataFrame:
    """Add max_random, log10_tail, verdict and n_right to rows with GUESSES, value, n_queries and n_requests.

    They are null on rows without n_correct, and where a label space has a single label, which guessing always hits. The
    guesses of a mean over datasets with different label spaces have different chances: their distribution is a Poisson
    binomial (Yauney & Mimno 2024, appendix A). n_right is the share of correct requests of a query, summed over queries
    and rounded down.
    """
    has_baselines = pl.col("n_correct").is_not_null() & (pl.col("label_counts").list.min() > 1)
    indexed = rows.with_row_index()
    n_right = pl.col("n_correct") * pl.col("n_queries") // pl.col("n_requests")
    counted = indexed.filter(has_baselines).with_columns(n_right=n_right)
    sizes, tries, right = (counted[name].to_numpy() for name in ("n_queries", "tries", "n_right"))
    choices = [_choices(*row) for row in counted.select("label_counts", "n_queries").iter_rows()]
    baselines = counted.select(
        "index",
        "n_right",
        max_random=pl.Series(np.asarray(max_random_accuracy(sizes, choices, tries))),
        log10_tail=pl.Series(np.asarray(max_random_tail(right, sizes, choices, tries, log10=True))),
    )
    joined = indexed.join(baselines, on="index", how="left", maintain_order="left").drop("index")
    return joined.with_columns(verdict=verdict(pl.col("value"), pl.col("chance"), pl.col("max_random")))


def with_tests_of_run(measured: pl.DataFrame, *, independent: bool = True) -> pl.DataFrame:
    """Add the tests of schemas.METRICS, `verdict` and the credible interval to the metrics of a run.

    The p-values of both tests are corrected together over all accuracies of a definition: all suites, parts, datasets
    and methods, and the means over datasets. A mean over a single dataset repeats the test of that dataset and is not
    counted again. No accuracy of a run is the highest of several: each is the mean over a query's prompts. n_needed of
    a mean over independent datasets counts the queries of all of them together.

    Args:
        measured: rows of single datasets, and the means over them, as with_baselines returns.
        independent: whether datasets are independent. If not (questions about the same inputs), the test against the
            majority, the lower bound and the credible interval of a mean use the number of queries of one question.
    """
    # A mean over one dataset is left out of the correction, and copies the tests of its dataset.
    is_repeat = (pl.col("dataset") == MEAN_OVER_DATASETS) & pl.col("label_counts").list.len().eq_missing(1)
    # Number of questions that share their inputs and therefore count as one.
    n_together = pl.lit(1) if independent else pl.col("label_counts").list.len().fill_null(1)
    rows = measured.filter(~is_repeat).with_columns(n_chosen_from=1, n_together=n_together)
    tests = map(_test_of_mean, *rows["log10_tail", "margins", "margin_counts", "n_together"])
    p_majority = pl.Series(tests, dtype=pl.Float64)
    n_queries, n_counted = rows["n_queries"], rows["n_queries"] // rows["n_together"]
    counted = rows.with_columns(pl.col("n_right") // pl.col("n_together"), n_queries=n_counted, p_majority=p_majority)
    # The verdict is the first of VERDICTS whose condition holds; null without a test.
    has_test = pl.col("p_value").is_not_null()
    cases = (pl.col("better_than_guessing"), pl.col("better_than_uniform"), has_test)
    verdicts = (pl.when(holds).then(pl.lit(name)) for holds, name in zip(cases, VERDICTS, strict=True))
    low, high = jeffreys_interval((rows["value"] * n_counted).to_numpy(), n_counted.to_numpy())
    tested = with_both_tests(counted, ["definition"]).with_columns(
        n_queries,
        verdict=pl.coalesce(verdicts),
        credible_low=pl.when(has_test).then(pl.Series(low)),
        credible_high=pl.when(has_test).then(pl.Series(high)),
    )
    names = (*TEST_OF_GUESSING, *TEST_OF_MAJORITY, "verdict", "credible_low", "credible_high")
    repeats = measured.filter(is_repeat).drop("verdict").join(tested.select(*MEAN, *names), on=MEAN)
    return pl.concat([tested, repeats], how="diagonal_relaxed")


def with_both_tests(rows: pl.DataFrame, family: Sequence[str] = ()) -> pl.DataFrame:
    """Add TEST_OF_GUESSING and TEST_OF_MAJORITY to accuracies, with the p-values of both tests corrected together.

    Args:
        rows: the columns that max_random.with_tests reads, and p_majority: the p-value of the one prompt. It is
            multiplied by n_chosen_from (Bonferroni), so that the result holds for the best prompt as well.
        family: as for max_random.with_tests.
    """
    of_best = (pl.col("p_majority") * pl.col("n_chosen_from")).clip(upper_bound=1.0)
    tested = with_tests(rows.with_columns(p_majority=of_best), family, ["p_majority"])
    both = pl.col("better_than_uniform") & (pl.col("p_majority_holm") <= TAIL_TO_TELL)
    return tested.with_columns(better_than_guessing=both)


def majority_test(is_right: Bools, constants: Bools) -> dict[str, float]:
    """Test one prompt against the best constant answer: return its accuracy `majority` and the p-value `p_majority`.

    Of constant answers that are right equally often, the one that differs from the prompt in most queries is used: the
    hardest to tell apart from it, as in guesses().

    Args:
        is_right: [queries], whether the prompt's answer is right.
        constants: [answers, queries], whether each constant answer is right.
    """
    n_right = constants.sum(axis=1)
    most_frequent = constants[n_right == n_right.max()]
    hardest = most_frequent[(most_frequent != is_right).sum(axis=1).argmax()]
    p_value = paired_test(is_right - hardest.astype(np.float64), one_sided=True).p_value
    return {"majority": float(hardest.mean()), "p_majority": p_value}


def _test_of_mean(log10_tail: float | None, margins: pl.Series, counts: pl.Series, n_together: int) -> float | None:
    """Return the one-sided p-value against the best constant answer; None without a test against uniform guessing.

    The counts of margins do not say which inputs they belong to. Of `n_together` questions about the same inputs, the
    lowest margins of all questions are therefore averaged, then the next ones, and so on. No other pairing gives means
    that vary more.
    """
    if log10_tail is None:
        return None
    of_queries = np.repeat(margins.to_numpy(), counts.to_numpy()).reshape(n_together, -1)
    return paired_test(of_queries.mean(axis=0), one_sided=True).p_value


def _choices(label_counts: list[int], n_queries: int) -> dict[int, int]:
    """Count the queries by number of labels; all datasets of a mean have the same number of queries."""
    queries_of_dataset = n_queries // len(label_counts)
    return {n_labels: queries_of_dataset * datasets for n_labels, datasets in Counter(label_counts).items()}


def jeffreys_interval(successes: npt.ArrayLike, n: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return the equal-tailed 95% Bayesian credible interval of a proportion under Jeffreys' prior; broadcasts.

    The prior is Beta(1/2, 1/2), so the posterior is Beta(successes + 1/2, n - successes + 1/2). The lower limit is 0
    without successes, and the upper limit is 1 without failures. There is no normal approximation, so n may be small.

    Args:
        successes: from 0 to n; fractions are allowed, for queries with several answers of which some are correct.
        n: numbers of independent trials, 1 or more.

    Source: Brown, Cai & DasGupta 2001, "Interval estimation for a binomial proportion", Statistical Science 16.
    """
    count, size = np.asarray(successes, dtype=np.float64), np.asarray(n, dtype=np.float64)
    low, high = (betaincinv(count + 0.5, size - count + 0.5, tail) for tail in (0.025, 0.975))
    return np.where(count > 0, low, 0.0), np.where(count < size, high, 1.0)
