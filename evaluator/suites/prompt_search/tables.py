"""Build the tables of a prompt search from its answers: prompts, best prompts, curves, held-out trials, total error.

`search_comparison` combines the searches of several models with the same prompts and queries, and counts the searches
in which the two random baselines disagree.

Source: Yauney & Mimno 2024, section 5.1, table 1 and figure 4; section 5.2, table 3.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from evaluator.arrays import Floats
from evaluator.compare.runs import ComparedRun
from evaluator.errors import ConfigError
from evaluator.metrics.guessing import majority_test, with_both_tests
from evaluator.metrics.total_error import crossed_tables
from evaluator.random_baselines.calculator import expected_curve, log_spaced
from evaluator.random_baselines.held_out import HELD_OUT_TRIALS, held_out_prediction, held_out_trials
from evaluator.random_baselines.max_random import (
    expected_maximum,
    expected_maximum_of_draws,
    max_random_accuracy,
    max_random_tail,
    verdict,
    verdict_counts,
)
from evaluator.schemas import declared
from evaluator.statistics.selective import proportion_interval
from evaluator.suites.prompt_search import schema

MAX_CURVE_POINTS = 200
"""Largest number of points of a curve. With more prompts, the points are evenly spaced on a logarithmic scale."""

CHANCE = pl.col("correct").list.len() / pl.col("n_choices")
"""Probability that a random choice is one of the correct choices, from the columns of SEARCH_EXAMPLES."""

IS_FIRST = pl.col("prompt_number") == pl.col("first_alike")
"""Whether a prompt is the representative of the prompts with its text, from the columns of schema.SEARCH_PROMPTS."""


EXPECTED_MAXIMA = {"paper": expected_maximum_of_draws, "distinct": expected_maximum}
"""Definition of a curve -> function that computes the expected best value of some of the prompts."""

HELD_OUT_TRIES = (1, 2, 5, 10, 20, 50, 100, 200)
"""Numbers of tried prompts in held-out searches; a search with all prompts is added (Yauney & Mimno 2024, figure 8)."""


class Search(NamedTuple):
    """The prompts of one search and the chance of each query."""

    key: dict[str, Any]  # values of schema.SEARCH_GROUP
    prompts: pl.DataFrame  # schema.SEARCH_PROMPTS of the search
    distinct: pl.DataFrame  # rows of `prompts` with different texts
    chances: Floats  # [n_queries], probability that a random choice is right


def prompts_table(answers: pl.DataFrame, tried: pl.LazyFrame, examples: pl.LazyFrame) -> pl.DataFrame:
    """Return schema.SEARCH_PROMPTS: a row for each candidate prompt and method, with its right answers.

    Args:
        answers: as returned by suite.answers.
        tried, examples: TRIED_PROMPTS and SEARCH_EXAMPLES of the store.
    """
    sums = {"n_correct": pl.col("is_correct").sum(), "n_ties": pl.col("is_tied").sum()}
    counts = answers.lazy().group_by(schema.SEARCH_PROMPTS_KEY).agg(n_queries=pl.len().cast(pl.Int64), **sums)
    sizes = examples.group_by("dataset").agg(n_all=pl.len().cast(pl.Int64))
    n_unscored = pl.col("n_all") - pl.col("n_queries")
    alike = [*schema.SEARCH_GROUP, "text"]
    # The highest number of right answers of a prompt that was scored on all queries.
    best = pl.when(n_unscored == 0).then(pl.col("n_correct")).max().over(schema.SEARCH_GROUP)
    joined = counts.join(tried, on=schema.TRIED_PROMPTS_KEY).join(sizes, on="dataset")
    rows = joined.with_columns(
        # Of prompts with the same text, the one that was scored on most queries: a seeded draw breaks ties of choices,
        # so that halving can stop one of two equal prompts.
        first_alike=pl.col("prompt_number").sort_by(n_unscored, "prompt_number").first().over(*alike),
        accuracy=pl.col("n_correct") / pl.col("n_queries"),
        is_stopped=n_unscored > 0,
        could_have_won=(n_unscored > 0) & (pl.col("n_correct") + n_unscored >= best),
    )
    return declared(rows.collect(), schema.SEARCH_PROMPTS, schema.SEARCH_PROMPTS_KEY)


def constant_answers(requests: pl.LazyFrame, examples: pl.DataFrame) -> pl.DataFrame:
    """List the constant answers (texts of choices) and the queries for which they are correct.

    Args:
        requests: REQUESTS of the store.
        examples: SEARCH_EXAMPLES.

    Returns dataset, answer and place (of the query), sorted.
    """
    choices = requests.select("dataset", "query_id", "label_names").unique().collect()
    rows = examples.select("dataset", "query_id", "place", "correct").join(choices, on=["dataset", "query_id"])
    answer = pl.col("label_names").list.get(pl.col("correct"))
    return rows.explode("correct").select("dataset", "place", answer=answer).unique().sort("dataset", "answer", "place")


def results_table(
    prompts: pl.DataFrame, examples: pl.DataFrame, answers: pl.DataFrame, constants: pl.DataFrame, total: pl.DataFrame
) -> pl.DataFrame:
    """Return schema.SEARCH_RESULTS: the best of the different prompts of each search, with its baselines and tests.

    Args:
        prompts: as returned by prompts_table.
        examples: SEARCH_EXAMPLES.
        answers: as returned by suite.answers.
        constants: as returned by constant_answers.
        total: schemas.TOTAL_ERROR of the mean accuracies, with queries and prompts as random samples.

    The chance of a query is its number of correct choices divided by its number of choices. `tries` is the number of
    different prompts, including stopped prompts (metrics/guessing.py has the rule). The best prompts of all searches of
    the run are tested against uniform guessing and against the best constant answer, with one correction for all tests.

    Source: Yauney & Mimno 2024, equations 8 to 11.
    """
    records = [_result(search) | _majority(search, answers, constants) for search in _searches(prompts, examples)]
    rows = pl.DataFrame(records, infer_schema_length=None)
    judged = rows.with_columns(verdict=verdict(pl.col("best_accuracy"), pl.col("chance"), pl.col("max_random")))
    tested = with_both_tests(judged.with_columns(n_right="best_correct", n_chosen_from="tries"))
    # Searches with stopped prompts have no total error, and so no interval of the mean.
    limits = total.select(*schema.SEARCH_GROUP, mean_low="total_low", mean_high="total_high")
    joined = tested.join(limits, on=schema.SEARCH_GROUP, how="left")
    return declared(joined, schema.SEARCH_RESULTS, schema.SEARCH_RESULTS_KEY)


def curves_table(prompts: pl.DataFrame, examples: pl.DataFrame) -> pl.DataFrame:
    """Return schema.SEARCH_CURVES: the expected best accuracy of prompts and random classifiers by number of tries.

    Source: Yauney & Mimno 2024, figures 3 and 4.
    """
    complete = (search for search in _searches(prompts, examples) if not search.prompts["is_stopped"].any())
    curves = [_curve(search, definition) for search in complete for definition in EXPECTED_MAXIMA]
    rows = pl.concat([schema.SEARCH_CURVES.to_frame(), *curves])
    return declared(rows, schema.SEARCH_CURVES, schema.SEARCH_CURVES_KEY)


def _searches(prompts: pl.DataFrame, examples: pl.DataFrame) -> Iterator[Search]:
    in_order = examples.sort(schema.SEARCH_EXAMPLES_KEY)
    chances = dict(in_order.group_by("dataset", maintain_order=True).agg(CHANCE).rows())
    for values, rows in prompts.partition_by(schema.SEARCH_GROUP, as_dict=True, maintain_order=True).items():
        key = dict(zip(schema.SEARCH_GROUP, values, strict=True))
        yield Search(key, rows, rows.filter(IS_FIRST), np.array(chances[key["dataset"]]))


def _result(search: Search) -> dict[str, Any]:
    n_queries, tries = len(search.chances), search.distinct.height
    complete = search.distinct.filter(~pl.col("is_stopped"))
    best = int(complete["n_correct"].to_numpy().max())
    low, high = simultaneous_limits(best, n_queries, tries)
    return search.key | {
        "n_queries": n_queries,
        "n_prompts": search.prompts.height,
        "tries": tries,
        "n_stopped": tries - complete.height,
        "n_could_have_won": search.distinct["could_have_won"].sum(),
        "n_ties": search.prompts["n_ties"].sum(),
        "mean_accuracy": search.distinct["accuracy"].mean() if complete.height == tries else None,
        "best_accuracy": best / n_queries,
        "best_low": low,
        "best_high": high,
        "best_correct": best,
        "best_prompt_numbers": complete.filter(n_correct=best)["prompt_number"].to_list(),
        # An exact sum, so that an accuracy that equals chance is not above it by a rounding error.
        "chance": math.fsum(search.chances) / n_queries,
        "max_random": float(max_random_accuracy(n_queries, search.chances, tries)),
        "log10_standard_tail": float(max_random_tail(best, n_queries, search.chances, log10=True)),
        "log10_tail": float(max_random_tail(best, n_queries, search.chances, tries, log10=True)),
    }


def _majority(search: Search, answers: pl.DataFrame, constants: pl.DataFrame) -> dict[str, float]:
    """Test the best prompt of a search (the first, if several are equally good) against the best constant answer."""
    best = search.distinct.filter(~pl.col("is_stopped")).sort("n_correct", "prompt_number", descending=[True, False])
    is_right = answers.filter(**search.key, prompt_number=best["prompt_number"][0]).sort("place")["is_correct"]
    of_dataset = constants.filter(dataset=search.key["dataset"])
    places = of_dataset.group_by("answer", maintain_order=True).agg("place")["place"]
    return majority_test(is_right.to_numpy(), np.array([np.isin(np.arange(len(is_right)), at) for at in places]))


def simultaneous_limits(n_correct: int, n_queries: int, tries: int) -> tuple[float, float]:
    """Return limits of a prompt's true accuracy, of at least 95% for all `tries` prompts of a search at once.

    They are exact binomial limits (Clopper & Pearson 1934) with an error probability of 0.025 / tries for each limit
    (Bonferroni). So they also hold for a prompt that was chosen because its accuracy is the highest.
    """
    low, high = proportion_interval(n_correct, n_queries, 0.025 / tries)
    return float(low), float(high)


def _curve(search: Search, definition: str) -> pl.DataFrame:
    n_queries, n_prompts = len(search.chances), search.distinct.height
    tries = log_spaced(1, n_prompts, MAX_CURVE_POINTS) if n_prompts > MAX_CURVE_POINTS else np.arange(1, n_prompts + 1)
    accuracies = search.distinct["accuracy"].to_numpy()
    curve = expected_curve(accuracies, n_queries, search.chances, tries, EXPECTED_MAXIMA[definition])
    key = search.key | {"definition": definition, "chance": math.fsum(search.chances) / n_queries}
    return curve.with_columns(
        *(pl.lit(value).alias(name) for name, value in key.items()),
        max_random=np.asarray(max_random_accuracy(n_queries, search.chances, tries.astype(np.float64))),
    ).select(pl.col(name).cast(dtype) for name, dtype in schema.SEARCH_CURVES.items())


def search_held_out(answers: pl.DataFrame, prompts: pl.DataFrame, examples: pl.DataFrame, seed: int) -> pl.DataFrame:
    """Test whether a prompt that is above a baseline in a search is also accurate on queries outside the search.

    The queries are split 100 times. In each split the search has 75% of the queries and tries some of the distinct
    prompts (HELD_OUT_TRIES) or all; its best prompt is evaluated on the other 25%. held_out_trials has the details.

    Args:
        answers, prompts: as returned by suite.answers and prompts_table.
        examples: SEARCH_EXAMPLES.
        seed: seed of the splits.

    Returns HELD_OUT_TRIALS for every search without stopped prompts; `experiment` is part/dataset/n_shots/method.
    """
    distinct = _complete_searches(prompts).filter(pl.col("n_queries") > 1)
    if distinct.is_empty():
        return pl.DataFrame(schema=HELD_OUT_TRIALS)
    experiment = pl.concat_str((pl.col(name).cast(pl.String) for name in schema.SEARCH_GROUP), separator="/")
    searched = answers.join(distinct, on=[*schema.SEARCH_GROUP, "prompt_number"], how="semi")
    columns = {"prompt": "prompt_number", "example": "place", "correct": "is_correct"}
    chances = examples.select("dataset", example="place", chance=CHANCE)
    experiments = distinct.select("dataset", experiment=experiment).unique()
    most = int(distinct.group_by(schema.SEARCH_GROUP).len()["len"].to_numpy().max())
    return held_out_trials(
        searched.lazy().select(experiment=experiment, **columns),
        experiments.join(chances, on="dataset").select("experiment", "example", "chance").sort("experiment", "example"),
        tries=[*(tries for tries in HELD_OUT_TRIES if tries < most), most],
        seed=seed,
    )


def search_total_error(answers: pl.DataFrame, prompts: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the tables variance_components, total_error and design_study of the mean accuracy over prompts.

    Queries and prompts are both taken as random samples. Searches with stopped prompts are left out, because their
    remaining prompts are no random sample: they were chosen by their answers.

    Args:
        answers, prompts: as returned by suite.answers and prompts_table.
    """
    key = [*schema.SEARCH_GROUP, "prompt_number"]
    rows = answers.join(_complete_searches(prompts), on=key, how="semi").rename({"place": "query_id"})
    shared = {"suite": "prompt-search", "definition": "paper"}
    names = {"query": "query", "level": "prompt", "interaction": "query x prompt and residual"}
    values = {"accuracy": ("is_correct", (0.0, 1.0))}
    return crossed_tables(rows, schema.SEARCH_GROUP, "prompt_number", values, names, shared)


def _complete_searches(prompts: pl.DataFrame) -> pl.DataFrame:
    """Return the different prompts of every search without stopped prompts."""
    return prompts.filter(~pl.col("is_stopped").any().over(schema.SEARCH_GROUP)).filter(IS_FIRST)


PROMPT = [*schema.SEARCH_PROMPTS_KEY, "text", "demonstrations", "n_all", "chance"]
"""Columns that must be equal for one prompt of a search in all runs."""

QUERY = ["dataset", "query_id", "gold", "label_names"]
"""Columns of schemas.PREDICTIONS that must be equal for one query of a search in all runs."""


class SearchComparison(NamedTuple):
    """Tables of the searches that all runs have."""

    models: pl.DataFrame  # schema.SEARCH_MODELS
    totals: pl.DataFrame  # schema.SEARCH_TOTALS
    curves: pl.DataFrame  # schema.SEARCH_CURVES and `model`, under the definition paper
    # number, model, tries and HELD_OUT_PREDICTION, for held-out searches that tried all prompts. Searches with stopped
    # prompts have no trials.
    held_out: pl.DataFrame


def search_comparison(runs: Sequence[ComparedRun]) -> SearchComparison:
    """Combine the searches that all runs have.

    Raises ConfigError if the runs have no search in common, or different prompts or queries in one.
    """
    results = _of_all(runs, "search_results", schema.SEARCH_GROUP)
    if results.is_empty():
        raise ConfigError(
            f"No search is in all of {', '.join(str(run.folder) for run in runs)}. Search the same datasets, shots and "
            "methods."
        )
    sizes = results.select("number", *schema.SEARCH_GROUP, "chance", n_all="n_queries")
    prompts = _of_all(runs, "search_prompts", schema.SEARCH_GROUP).join(sizes, on=["number", *schema.SEARCH_GROUP])
    for run in runs[1:]:
        if not _is_same_search(runs[0], run, prompts):
            raise ConfigError(
                f"{runs[0].folder} and {run.folder} have different prompts or queries in their searches. Search with "
                "equal --seed, --tries, --queries, --candidates and data."
            )
    models = declared(results, schema.SEARCH_MODELS, schema.SEARCH_MODELS_KEY)
    # Count the searches of each model at each number of shots, and at all numbers of shots (null).
    by_shots = pl.concat([models, models.with_columns(n_shots=pl.lit(None, pl.Int64))])
    counted = by_shots.group_by(schema.SEARCH_TOTALS_KEY).agg(n_searches=pl.len(), **verdict_counts())
    totals = declared(counted, schema.SEARCH_TOTALS, schema.SEARCH_TOTALS_KEY)
    curves, trials = _of_all(runs, "search_curves", []), _of_all(runs, "search_held_out", ["experiment"])
    curves = curves.join(results, on=schema.SEARCH_GROUP, how="semi").filter(definition="paper")
    # The trials with the highest number of tries searched all prompts.
    of_all_prompts = trials.filter(pl.col("tries") == pl.col("tries").max().over("number"))
    held_out = of_all_prompts.with_columns(tries=pl.col("n_prompts").max())
    return SearchComparison(models, totals, curves, held_out_prediction(held_out, ["number", "model", "tries"]))


def _is_same_search(first: ComparedRun, run: ComparedRun, prompts: pl.DataFrame) -> bool:
    """Return whether two runs tried the same prompts on the same queries; texts of queries are compared by digest."""
    both = (first, run)
    tried = [prompts.filter(number=each.number).select(PROMPT).sort(schema.SEARCH_PROMPTS_KEY) for each in both]
    answered = (each.table("predictions").join(prompts, on="dataset", how="semi") for each in both)
    asked = [rows.select(QUERY).unique().sort("dataset", "query_id") for rows in answered]
    texts, others = (each.record.prompts.query_fingerprints for each in both)
    known = {*prompts["dataset"]} & texts.keys() & others.keys()
    return all(a.equals(b) for a, b in (tried, asked)) and all(texts[name] == others[name] for name in known)


def _of_all(runs: Sequence[ComparedRun], table: str, search: Sequence[str]) -> pl.DataFrame:
    """Join a table of all runs, with number, model and n_parameters of each run.

    Args:
        table: name of the table.
        search: columns that identify a search. Only rows of searches that all runs have are kept; all rows, if empty.
    """
    rows = pl.concat(
        run.table(table).with_columns(
            number=pl.lit(run.number, pl.Int64),
            model=pl.lit(run.model),
            n_parameters=pl.lit(run.record.model.n_parameters, pl.Int64),
        )
        for run in runs
    )
    return rows.filter(pl.col("number").n_unique().over(search) == len(runs)) if search else rows
