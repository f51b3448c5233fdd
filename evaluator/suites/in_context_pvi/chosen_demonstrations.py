"""Define methods that classify the queries of the suite pvi after demonstrations chosen by the PVI of training rows.

Lu et al. 2023, section 5.6, choose the hardest training instance of each label, by its PVI after one set of random
demonstrations. Here training rows are scored after set 0 of the suite for each number of shots. Then as many sets are
chosen by these scores as the suite has for that number of shots, and the queries are scored after the chosen sets.
"""

import math
from collections.abc import Callable, Iterator
from itertools import chain

import polars as pl

from evaluator.methods.base import Method, MethodContext, MethodPrompts, ScoredRequests, label_score, softmax_of
from evaluator.suites.in_context_pvi.demonstration_sets import resolved_options
from evaluator.suites.in_context_pvi.prompts import NULL, as_queries, null_prompts, queries_after
from evaluator.suites.in_context_pvi.ranked_sets import candidates_for_set, first_sets, ranked_sets
from evaluator.suites.in_context_pvi.schema import PviOrder

TRAINING = "pvi_training"
"""The part with the prompts of training rows, numbered by `training_row`; it has no queries."""

CHOSEN: dict[str, PviOrder] = {
    "hardest_demonstrations": "hardest",
    "easiest_demonstrations": "easiest",
    "middle_demonstrations": "middle",
}
"""Name of a method, which is also the name of its part with queries -> the order in which it chooses."""

_DESCRIPTIONS: dict[PviOrder, str] = {
    "hardest": "of the lowest PVI",
    "easiest": "of the highest PVI",
    "middle": "around the median PVI",
}


def null_part(method: str) -> str:
    """Return the name of the part with a method's null prompts."""
    return f"{method}_null"


def requests(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Build prompts of the candidate training rows after set 0 of each number of shots; equal for every order.

    `position` enumerates numbers of shots, then all training rows.

    Raises TemplateError or DatasetError, before anything is scored, where there are too few candidates.
    """
    dataset, pvi = context.classification, resolved_options(context.config)
    n_rows = dataset.demonstration.height
    for shots_index, first in enumerate(first_sets(dataset, pvi)):
        training_rows = candidates_for_set(dataset, pvi, first)
        for rows in queries_after(dataset, [first], training_rows, part=TRAINING, n_rows=n_rows):
            yield rows.with_columns(
                pl.col("position") + shots_index * n_rows, training_row="query_id", query_id=pl.lit(None, pl.Int64)
            ).select(context.columns)


def training_pvi(scored: ScoredRequests) -> pl.DataFrame:
    """Compute the PVI of training rows after set 0, over the whole vocabulary.

    Returns dataset, n_shots, training_row, gold and pvi_bits, which is null where it is not finite; sorted by the first
    three.
    """
    scores, gold = pl.col("label_log_likelihoods"), pl.col("gold")
    # Each number of shots has one null prompt after set 0.
    nulls = scored.rows.filter(part=NULL).filter(demonstration_set=0).select("dataset", "n_shots", null_scores=scores)
    bits = gain_nats(scores.list.get(gold), pl.col("null_scores").list.get(gold)) / math.log(2)
    return (
        scored.rows.filter(part=TRAINING)
        .join(nulls, on=["dataset", "n_shots"], how="left", validate="m:1")
        .select("dataset", "n_shots", "training_row", "gold", pvi_bits=bits)
        .sort("dataset", "n_shots", "training_row")
        .collect()
    )


def gain_nats(given_input: pl.Expr, given_null: pl.Expr) -> pl.Expr:
    """Subtract log-likelihoods of a label in nats; null where one of the two is missing, NaN or infinite.

    Source: Lu et al. 2023, equation 1, before division by ln 2.
    """
    difference = given_input - given_null
    # The difference of two infinities is NaN or infinite, so that one check covers both.
    return pl.when(difference.is_finite()).then(difference)


def _follow_up(method: str, order: PviOrder) -> Callable[[MethodContext, ScoredRequests], Iterator[pl.DataFrame]]:
    def follow_up(context: MethodContext, scored: ScoredRequests) -> Iterator[pl.DataFrame]:
        """Build prompts of the suite's queries after the chosen sets, and one null prompt for each set.

        Raises TemplateError if too few training rows of a label have a PVI.
        """
        dataset, pvi = context.classification, resolved_options(context.config)
        measured = training_pvi(scored).filter(dataset=dataset.name).rename({"training_row": "query_id"})
        by_shots = measured.partition_by("n_shots", as_dict=True, maintain_order=True)
        sets = []
        for (n_shots,), rows in by_shots.items():
            sets += ranked_sets(dataset, rows, order, int(n_shots), pvi)
        # Only the queries of the suite, which leaves out those that are demonstrations.
        asked = context.rows.select(pl.col("query_id").unique()).collect()["query_id"]
        queries = as_queries(dataset, dataset.test).filter(pl.col("query_id").is_in(asked.implode()))
        inputs = queries_after(dataset, sets, queries, part=method, n_rows=dataset.test.height)
        for rows in chain(inputs, [null_prompts(dataset, sets, part=null_part(method))]):
            yield rows.select(context.columns)

    return follow_up


def _chosen_by_pvi(method: str) -> Method:
    order = CHOSEN[method]
    return Method(
        summary=f"Vanilla after demonstrations {_DESCRIPTIONS[order]} of each label.",
        label_probs=softmax_of(label_score, method),
        prompts=MethodPrompts(requests=requests, follow_up=_follow_up(method, order)),
        drawn_once="chosen demonstrations",
        part_kinds=("classification",),
        definitions=("paper",),
    )


CHOSEN_METHODS = {name: _chosen_by_pvi(name) for name in CHOSEN}
