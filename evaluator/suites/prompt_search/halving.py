"""Successive halving: all prompts answer a few queries, the better half twice as many, and so on to all queries.

A stopped prompt stays a try. Most could not be known to lose when they were stopped: search_prompts says of each
whether its other queries could have made it the best.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.engine.base import Engine
from evaluator.methods import METHODS
from evaluator.methods.base import Answers
from evaluator.methods.predictions import predict
from evaluator.progress import Stage
from evaluator.run.build import PromptStore
from evaluator.scores.table import ScoreTable, score_prompts
from evaluator.suites.prompt_search.answers import TRY, answers, planned
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


def score_in_rounds(
    store: PromptStore, tokens: pl.DataFrame, engine: Engine, folder: Path, *, identity: dict[str, Any]
) -> Stage[ScoreTable]:
    """Score round by round what each round asks for; arguments as of score_prompts, of a store that is halved.

    Which rows a round has follows from the scores of those before it, so a run that was killed finds its shards again.
    """
    plan = _plan(store)
    beside = store.requests().filter(pl.col("query_id").is_null()).select("prompt_id").collect()  # asked by methods
    wanted = pl.concat([plan.filter(round=0).select("prompt_id"), beside])
    for number in range(_n_rounds(plan)):
        rows = tokens.filter(pl.col("prompt_id").is_in(wanted["prompt_id"].implode()))
        table = yield from score_prompts(rows, engine, folder, identity=identity, name=f"round-{number}")
        scores = table.scores()
        so_far = asked(plan, _answers(store, store.requests().join(scores, on="prompt_id"), plan))
        wanted = so_far.select("prompt_id").join(scores.select("prompt_id").collect(), on="prompt_id", how="anti")
    return table


def asked_requests(store: PromptStore, scored: pl.LazyFrame) -> pl.DataFrame:
    """The requests of a halved search that its rounds ask for, given what is scored; and what methods ask besides."""
    plan = _plan(store)
    so_far = asked(plan, _answers(store, scored, plan)).select("part", "dataset", "position")
    requests = store.requests().collect()
    answering = requests.join(so_far, on=["part", "dataset", "position"], how="semi", maintain_order="left")
    return pl.concat([answering, requests.filter(pl.col("query_id").is_null())])


def asked(plan: pl.DataFrame, answered: pl.DataFrame) -> pl.DataFrame:
    """Rows of `plan` up to the first round that is not answered whole, without those of stopped prompts.

    Args:
        plan: as answers.planned gives it, with the `round` in which each query is first asked.
        answered: answers.ANSWERS of one method, to any rows of the plan.
    """
    alive = plan.select(TRY).unique()
    n_queries = plan.group_by("dataset").agg(n_queries=pl.col("place").n_unique())
    rounds = []
    for number in range(_n_rounds(plan)):
        rounds.append(plan.filter(round=number).join(alive, on=TRY, how="semi", maintain_order="left"))
        known = answered.join(pl.concat(rounds), on=_ANSWER, how="semi").join(alive, on=TRY, how="semi")
        if rounds[-1].join(known, on=_ANSWER, how="anti").height:
            break
        alive = better_half(known, n_queries)
    return pl.concat(rounds)


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


def _answers(store: PromptStore, scored: pl.LazyFrame, plan: pl.DataFrame) -> pl.DataFrame:
    given = Answers(scored=scored, asked_parts=store.manifest["parts"])
    predictions = predict(given, {name: METHODS[name] for name in store.manifest["methods"]}, ("paper",)).collect()
    drawn = break_ties(predictions, store.manifest["search"]["seed"])
    return answers(drawn, plan, store.table("search_examples", SEARCH_EXAMPLES))


def _n_rounds(plan: pl.DataFrame) -> int:
    return int(plan["round"].to_numpy().max()) + 1
