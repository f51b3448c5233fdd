"""Choose prompts by successive halving: score all on a few queries, the better half on twice as many, and so on.

A stopped prompt still counts as a try. Most stopped prompts could in principle have won: the column `could_have_won` of
SEARCH_PROMPTS says whether a prompt would have reached the best accuracy with all its remaining queries right.
"""

import math
from collections.abc import Iterator

import numpy as np
import polars as pl

from evaluator.methods.predictions import predict
from evaluator.suites.base import ScoredRun
from evaluator.suites.prompt_search.answers import answers, break_ties, planned
from evaluator.suites.prompt_search.options import SearchOptions
from evaluator.suites.prompt_search.schema import SEARCH_EXAMPLES, TRIED_PROMPTS_KEY

MIN_QUERIES = 16
"""Smallest number of queries of the first round: with fewer, a good prompt is too often in the worse half."""


def round_sizes(n_queries: int) -> list[int]:
    """Return the number of queries a prompt is scored on up to each round: half of the next number, rounded up."""
    sizes = [n_queries]
    while (half := math.ceil(sizes[0] / 2)) >= MIN_QUERIES:
        sizes.insert(0, half)
    return sizes


def rounds(run: ScoredRun) -> Iterator[pl.DataFrame]:
    """Yield prompt_id of the requests of each round, given the scores of earlier rounds.

    Without halving there is one round with all requests. Requests that methods add belong to the first round.
    """
    options, requests = run.config.options_of(SearchOptions), run.store.requests()
    if not options.halving:
        yield requests.select("prompt_id").collect()
        return
    examples = run.store.table("search_examples", SEARCH_EXAMPLES)
    plan = _with_rounds(planned(requests, examples))
    untied = break_ties(predict(run.scored, run.methods, ("paper",)).collect(), options.seed)
    for number, rows in enumerate(rows_of_rounds(plan, answers(untied, plan, examples))):
        prompts = rows.select("prompt_id")
        if not number:
            of_methods = requests.filter(pl.col("query_id").is_null()).select("prompt_id").collect()
            prompts = pl.concat([prompts, of_methods])
        yield prompts


def rows_of_rounds(plan: pl.DataFrame, answers_so_far: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Yield the rows of `plan` of each round, without rows of prompts that earlier rounds stopped.

    The rows of a round depend only on the answers of earlier rounds, so that an interrupted run chooses the same
    prompts when it is resumed.

    Args:
        plan: as returned by answers.planned, with the `round` in which each query is first scored.
        answers_so_far: answers.ANSWERS of one method, with all rows of the rounds before the yielded round.
    """
    n_queries = plan.group_by("dataset").agg(n_queries=pl.col("place").n_unique())
    remaining = plan.select(TRIED_PROMPTS_KEY).unique()
    for number in range(int(plan["round"].to_numpy().max()) + 1):
        yield plan.filter(round=number).join(remaining, on=TRIED_PROMPTS_KEY, how="semi", maintain_order="left")
        scored = plan.filter(pl.col("round") <= number).join(remaining, on=TRIED_PROMPTS_KEY, how="semi")
        so_far = answers_so_far.join(scored, on=[*TRIED_PROMPTS_KEY, "place"], how="semi")
        remaining = better_half(so_far, n_queries)


def better_half(answers_so_far: pl.DataFrame, n_queries: pl.DataFrame) -> pl.DataFrame:
    """Keep the better half of each search (rounded up, ties included), minus prompts that can no longer be the best.

    A prompt can no longer be the best if it would have fewer right answers than the currently best one even with all
    its remaining answers right.

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


def _with_rounds(plan: pl.DataFrame) -> pl.DataFrame:
    """Add `round`, in which each query is first scored, to the rows of answers.planned."""
    frames = []
    for rows in plan.partition_by("dataset", maintain_order=True):
        places = rows["place"].to_numpy()
        number = np.searchsorted(round_sizes(len(np.unique(places))), places, side="right")
        frames.append(rows.with_columns(round=pl.Series(number)))
    return pl.concat(frames).sort(*TRIED_PROMPTS_KEY, "place")
