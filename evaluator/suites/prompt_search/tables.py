"""Build the tables of a prompt search from its answers: all prompts, the best of each search, and its curve."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from evaluator.random_baselines.binomial import FloatArray
from evaluator.random_baselines.expected_max import expected_maximum
from evaluator.random_baselines.grid import log_spaced
from evaluator.random_baselines.max_random import max_random_accuracy, max_random_tail
from evaluator.random_baselines.verdicts import examples_needed, verdict
from evaluator.suites.prompt_search.answers import CHANCE
from evaluator.suites.prompt_search.schema import (
    SEARCH_CURVES,
    SEARCH_CURVES_KEY,
    SEARCH_EXAMPLES_KEY,
    SEARCH_GROUP,
    SEARCH_PROMPTS,
    SEARCH_PROMPTS_KEY,
    SEARCH_RESULTS,
    SEARCH_RESULTS_KEY,
    TRIED_PROMPTS_KEY,
)

MAX_CURVE_POINTS = 200
"""Most points of a curve; with more prompts than that, points are spaced evenly on a logarithmic scale."""


class Search(NamedTuple):
    """The prompts of one SEARCH_GROUP and the chance of each query."""

    key: dict[str, Any]
    all_tried: pl.DataFrame  # SEARCH_PROMPTS of the group
    different: pl.DataFrame  # of these, the first with each text
    chances: FloatArray  # [n_queries]

    @property
    def complete(self) -> pl.DataFrame:
        return self.different.filter(~pl.col("is_stopped"))


def prompts_table(answers: pl.DataFrame, tried: pl.LazyFrame, examples: pl.LazyFrame) -> pl.DataFrame:
    """Return SEARCH_PROMPTS: one row for each candidate prompt and method, with the number of queries it was scored on.

    Args:
        answers: as returned by answers.answers.
        tried, examples: TRIED_PROMPTS and SEARCH_EXAMPLES of the store.
    """
    counts = (
        answers.lazy()
        .group_by(SEARCH_PROMPTS_KEY)
        .agg(n_queries=pl.len().cast(pl.Int64), n_correct=pl.col("is_correct").sum(), n_ties=pl.col("is_tied").sum())
    )
    sizes = examples.group_by("dataset").agg(n_all=pl.len().cast(pl.Int64))
    n_unscored = pl.col("n_all") - pl.col("n_queries")
    # The best count of prompts that were scored on all queries.
    best = pl.when(n_unscored == 0).then(pl.col("n_correct")).max().over(SEARCH_GROUP)
    rows = (
        counts.join(tried, on=TRIED_PROMPTS_KEY)
        .join(sizes, on="dataset")
        .with_columns(
            first_alike=pl.col("prompt_number").min().over(*SEARCH_GROUP, "text"),
            accuracy=pl.col("n_correct") / pl.col("n_queries"),
            is_stopped=n_unscored > 0,
            could_have_won=(n_unscored > 0) & (pl.col("n_correct") + n_unscored >= best),
        )
    )
    return _as(rows.collect(), SEARCH_PROMPTS, SEARCH_PROMPTS_KEY)


def results_table(prompts: pl.DataFrame, examples: pl.DataFrame) -> pl.DataFrame:
    """Return SEARCH_RESULTS: the best of the different prompts of each search, with both random baselines.

    Args:
        prompts: as returned by prompts_table.
        examples: SEARCH_EXAMPLES.

    The chance of a query is its number of correct choices over its number of choices. Tries are the different prompts,
    stopped ones included.

    Source: Yauney & Mimno 2024, equations 8 to 11.
    """
    rows = pl.DataFrame([_result(search) for search in _searches(prompts, examples)], infer_schema_length=None)
    judged = rows.with_columns(verdict=verdict(pl.col("best_accuracy"), pl.col("chance"), pl.col("max_random")))
    needed = [
        examples_needed(row["best_accuracy"], row["chance"], row["tries"]) if row["verdict"] == "between" else None
        for row in judged.select("best_accuracy", "chance", "tries", "verdict").to_dicts()
    ]
    return _as(judged.with_columns(n_needed=pl.Series(needed, dtype=pl.Int64)), SEARCH_RESULTS, SEARCH_RESULTS_KEY)


def curves_table(prompts: pl.DataFrame, examples: pl.DataFrame) -> pl.DataFrame:
    """Return SEARCH_CURVES: the expected best accuracy of fewer tries, and that of as many random classifiers."""
    curves = [_curve(search) for search in _searches(prompts, examples) if not search.all_tried["is_stopped"].any()]
    return _as(pl.concat([pl.DataFrame(schema=SEARCH_CURVES), *curves]), SEARCH_CURVES, SEARCH_CURVES_KEY)


def _searches(prompts: pl.DataFrame, examples: pl.DataFrame) -> Iterator[Search]:
    chances = dict(examples.sort(SEARCH_EXAMPLES_KEY).group_by("dataset", maintain_order=True).agg(CHANCE).rows())
    for values, rows in prompts.partition_by(SEARCH_GROUP, as_dict=True, maintain_order=True).items():
        key = dict(zip(SEARCH_GROUP, values, strict=True))
        different = rows.filter(pl.col("prompt_number") == pl.col("first_alike"))
        yield Search(key, rows, different, np.array(chances[key["dataset"]]))


def _result(search: Search) -> dict[str, Any]:
    n_queries, tries = len(search.chances), search.different.height
    complete = search.complete
    best = int(complete["n_correct"].to_numpy().max())
    return search.key | {
        "n_queries": n_queries,
        "n_prompts": search.all_tried.height,
        "tries": tries,
        "n_stopped": tries - complete.height,
        "n_could_have_won": search.different["could_have_won"].sum(),
        "n_ties": search.all_tried["n_ties"].sum(),
        "mean_accuracy": search.different["accuracy"].mean() if complete.height == tries else None,
        "best_accuracy": best / n_queries,
        "best_correct": best,
        "best_prompt_numbers": complete.filter(n_correct=best)["prompt_number"].to_list(),
        # An exact sum, so that an accuracy equal to chance compares as equal.
        "chance": math.fsum(search.chances) / n_queries,
        "max_random": float(max_random_accuracy(n_queries, search.chances, tries)),
        "log10_standard_tail": float(max_random_tail(best, n_queries, search.chances, log10=True)),
        "log10_tail": float(max_random_tail(best, n_queries, search.chances, tries, log10=True)),
    }


def _curve(search: Search) -> pl.DataFrame:
    n_queries, n_prompts = len(search.chances), search.different.height
    every = np.arange(1, n_prompts + 1)
    tries = every if n_prompts <= MAX_CURVE_POINTS else log_spaced(1, n_prompts, MAX_CURVE_POINTS)
    best_counts = expected_maximum(search.different["n_correct"].to_numpy(), tries)
    return pl.DataFrame(
        {
            **{name: pl.Series([value]).new_from_index(0, len(tries)) for name, value in search.key.items()},
            "tries": tries,
            "expected_maximum": best_counts / n_queries,
            "max_random": max_random_accuracy(n_queries, search.chances, tries.astype(np.float64)),
            "chance": math.fsum(search.chances) / n_queries,
        },
        schema_overrides=dict(SEARCH_CURVES),
    ).select(SEARCH_CURVES.names())


def _as(frame: pl.DataFrame, schema: pl.Schema, key: list[str]) -> pl.DataFrame:
    return frame.select(pl.col(name).cast(dtype) for name, dtype in schema.items()).sort(key)
