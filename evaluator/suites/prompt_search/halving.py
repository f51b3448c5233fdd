"""Successive halving: all prompts answer a few queries, the better half twice as many, and so on to all queries.

A stopped prompt stays a try. Most could not be known to lose when they were stopped: search_prompts says of each
whether its other queries could have made it the best.
"""

import math

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.methods.predictions import predict
from evaluator.store.prompt_store import PromptStore
from evaluator.suites.base import ScoredRun
from evaluator.suites.prompt_search.answers import TRY, answers, planned
from evaluator.suites.prompt_search.options import SearchOptions
from evaluator.suites.prompt_search.schema import SEARCH_EXAMPLES, SEARCH_EXAMPLES_KEY
from evaluator.suites.prompt_search.ties import break_ties

LEAST_QUERIES = 16
"""Of the first round: on fewer, the worse half is too often the better one."""

_ANSWER = [*TRY, "place"]


def round_sizes(n_queries: int) -> list[int]:
    """How many queries have been asked at the end of each round: half, rounded up, of those of the next round."""
    sizes = [n_queries]
    while (half := math.ceil(sizes[0] / 2)) >= LEAST_QUERIES:
        sizes.insert(0, half)
    return sizes


def next_round(run: ScoredRun, number: int) -> pl.DataFrame | None:
    """Return prompt_id of the requests of round `number`, given the scores of earlier rounds; None after the last.

    Without halving there is one round, which has all requests. What methods request besides is in the first.
    """
    if not run.config.options_of(SearchOptions).halving:
        return run.store.requests().select("prompt_id").collect() if number == 0 else None
    plan = _plan(run.store)
    if number >= _n_rounds(plan):
        return None
    rows = rows_of_round(plan, _answers(run, plan), number).select("prompt_id")
    if number:
        return rows
    besides = run.store.requests().filter(pl.col("query_id").is_null()).select("prompt_id").collect()
    return pl.concat([rows, besides])


def rows_of_round(plan: pl.DataFrame, answered: pl.DataFrame, number: int) -> pl.DataFrame:
    """Return the rows of `plan` of one round, without those of prompts that earlier rounds stopped.

    They follow from the answers to earlier rounds alone: what a stopped process left of this round changes nothing.

    Args:
        plan: as answers.planned gives it, with the `round` in which each query is first asked.
        answered: answers.ANSWERS of one method, to all rows of earlier rounds that were not stopped.
    """
    alive = plan.select(TRY).unique()
    n_queries = plan.group_by("dataset").agg(n_queries=pl.col("place").n_unique())
    for earlier in range(number):
        rows = plan.filter(pl.col("round") <= earlier).join(alive, on=TRY, how="semi")
        alive = better_half(answered.join(rows, on=_ANSWER, how="semi"), n_queries)
    return plan.filter(round=number).join(alive, on=TRY, how="semi", maintain_order="left")


def better_half(answered: pl.DataFrame, n_queries: pl.DataFrame) -> pl.DataFrame:
    """TRY of the prompts that go on: half of each search, rounded up, and all that are as good as the last of these;
    but none that could no longer reach the best of them, were all its other answers right.

    Args:
        answered: answers.ANSWERS of the prompts that were not stopped, to as many queries each.
        n_queries: `dataset` and `n_queries`, how many there are in all.
    """
    search = TRY[:-1]
    counts = answered.group_by(TRY).agg(n_correct=pl.col("is_correct").sum(), n_answered=pl.len())
    half = (pl.len() + 1) // 2
    least = pl.col("n_correct").sort(descending=True).get(half - 1).over(search)
    reachable = pl.col("n_correct") + pl.col("n_queries") - pl.col("n_answered")
    goes_on = (pl.col("n_correct") >= least) & (reachable >= pl.col("n_correct").max().over(search))
    return counts.join(n_queries, on="dataset").filter(goes_on).select(TRY)


def _plan(store: PromptStore) -> pl.DataFrame:
    """Every request of the search, with the round in which its query is first asked."""
    examples = store.table("search_examples", SEARCH_EXAMPLES)
    plan = planned(store.requests(), examples)
    sizes = examples.group_by("dataset").agg(pl.len()).sort("dataset").collect().rows()
    rounds = [
        pl.DataFrame({"place": np.arange(n_queries), "round": _rounds(n_queries)}).with_columns(dataset=pl.lit(dataset))
        for dataset, n_queries in sizes
    ]
    return plan.join(pl.concat(rounds), on=SEARCH_EXAMPLES_KEY, maintain_order="left")


def _rounds(n_queries: int) -> npt.NDArray[np.int64]:
    return np.searchsorted(round_sizes(n_queries), np.arange(n_queries), side="right")


def _answers(run: ScoredRun, plan: pl.DataFrame) -> pl.DataFrame:
    predictions = predict(run.answers, run.methods, ("paper",)).collect()
    drawn = break_ties(predictions, run.config.options_of(SearchOptions).seed)
    return answers(drawn, plan, run.store.table("search_examples", SEARCH_EXAMPLES))


def _n_rounds(plan: pl.DataFrame) -> int:
    return int(plan["round"].to_numpy().max()) + 1
