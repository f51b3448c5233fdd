"""Choose prompts by successive halving: score all on a few queries, the better half on twice as many, and so on.

A stopped prompt still counts as a try. Most stopped prompts could in principle have won: the column `could_have_won` of
SEARCH_PROMPTS says whether a prompt would have reached the best accuracy with all its remaining queries right.
"""

import math

import numpy as np
import polars as pl

from evaluator.methods.predictions import predict
from evaluator.store.prompt_store import PromptStore
from evaluator.suites.base import ScoredRun
from evaluator.suites.prompt_search.answers import answers, planned
from evaluator.suites.prompt_search.options import SearchOptions
from evaluator.suites.prompt_search.schema import SEARCH_EXAMPLES, SEARCH_EXAMPLES_KEY, TRIED_PROMPTS_KEY
from evaluator.suites.prompt_search.ties import break_ties

MIN_QUERIES = 16
"""Smallest number of queries of the first round: with fewer, a good prompt is too often in the worse half."""

_ANSWER_KEY = [*TRIED_PROMPTS_KEY, "place"]


def round_sizes(n_queries: int) -> list[int]:
    """Return the number of queries a prompt is scored on up to each round: half of the next number, rounded up."""
    sizes = [n_queries]
    while (half := math.ceil(sizes[0] / 2)) >= MIN_QUERIES:
        sizes.insert(0, half)
    return sizes


def next_round(run: ScoredRun, number: int) -> pl.DataFrame | None:
    """Return prompt_id of the requests of round `number`, given the scores of earlier rounds; None after the last.

    Without halving there is one round with all requests. Requests that methods add belong to the first round.
    """
    if not run.config.options_of(SearchOptions).halving:
        return run.store.requests().select("prompt_id").collect() if number == 0 else None
    plan = _plan(run.store)
    if number > int(plan["round"].to_numpy().max()):
        return None
    rows = rows_of_round(plan, _answers_so_far(run, plan), number).select("prompt_id")
    if number:
        return rows
    requests_of_methods = run.store.requests().filter(pl.col("query_id").is_null()).select("prompt_id").collect()
    return pl.concat([rows, requests_of_methods])


def rows_of_round(plan: pl.DataFrame, answers_so_far: pl.DataFrame, number: int) -> pl.DataFrame:
    """Return the rows of `plan` of one round, without those of prompts that earlier rounds stopped.

    They depend only on the answers of earlier rounds, so that an interrupted run chooses the same prompts when it is
    resumed.

    Args:
        plan: as returned by answers.planned, with the `round` in which each query is first scored.
        answers_so_far: answers.ANSWERS of one method, with all rows of earlier rounds whose prompts were not stopped.
    """
    remaining = plan.select(TRIED_PROMPTS_KEY).unique()
    n_queries = plan.group_by("dataset").agg(n_queries=pl.col("place").n_unique())
    # Replay the earlier rounds: after each, only the better half of the prompts is left.
    for earlier in range(number):
        rows = plan.filter(pl.col("round") <= earlier).join(remaining, on=TRIED_PROMPTS_KEY, how="semi")
        remaining = better_half(answers_so_far.join(rows, on=_ANSWER_KEY, how="semi"), n_queries)
    return plan.filter(round=number).join(remaining, on=TRIED_PROMPTS_KEY, how="semi", maintain_order="left")


def better_half(answers_so_far: pl.DataFrame, n_queries: pl.DataFrame) -> pl.DataFrame:
    """Keep the better half of each search (rounded up, ties included), minus prompts that can no longer be the best.

    These are the prompts that would have fewer right answers than the currently best one even if all their remaining
    answers were right.

    Args:
        answers_so_far: answers.ANSWERS of the prompts that were not stopped, all with equally many queries.
        n_queries: `dataset` and `n_queries`, the number of queries of the full search.

    Returns TRIED_PROMPTS_KEY of the prompts that are kept.
    """
    search = TRIED_PROMPTS_KEY[:-1]
    counts = answers_so_far.group_by(TRIED_PROMPTS_KEY).agg(n_correct=pl.col("is_correct").sum(), n_answered=pl.len())
    half = (pl.len() + 1) // 2
    # The count of the last prompt in the better half; others with the same count are kept as well.
    threshold = pl.col("n_correct").sort(descending=True).get(half - 1).over(search)
    highest_count = pl.col("n_correct") + pl.col("n_queries") - pl.col("n_answered")
    is_kept = (pl.col("n_correct") >= threshold) & (highest_count >= pl.col("n_correct").max().over(search))
    return counts.join(n_queries, on="dataset").filter(is_kept).select(TRIED_PROMPTS_KEY)


def _plan(store: PromptStore) -> pl.DataFrame:
    """Return every request of the search with the round in which its query is first scored."""
    examples = store.table("search_examples", SEARCH_EXAMPLES)
    plan = planned(store.requests(), examples)
    sizes = examples.group_by("dataset").agg(pl.len()).sort("dataset").collect().rows()
    frames = []
    for dataset, n_queries in sizes:
        places = np.arange(n_queries)
        rounds = np.searchsorted(round_sizes(n_queries), places, side="right")
        frames.append(pl.DataFrame({"place": places, "round": rounds}).with_columns(dataset=pl.lit(dataset)))
    return plan.join(pl.concat(frames), on=SEARCH_EXAMPLES_KEY, maintain_order="left")


def _answers_so_far(run: ScoredRun, plan: pl.DataFrame) -> pl.DataFrame:
    predictions = predict(run.scored, run.methods, ("paper",)).collect()
    untied = break_ties(predictions, run.config.options_of(SearchOptions).seed)
    return answers(untied, plan, run.store.table("search_examples", SEARCH_EXAMPLES))
