"""The queries of the suite pvi again, behind demonstrations that are chosen by the PVI of training rows.

Lu et al. 2023, section 5.6, choose the hardest training instance of each label, by its PVI behind one set of random
demonstrations. Training rows are asked behind the suite's own set 0 of each number of shots; once they are answered,
the queries are asked behind as many chosen sets as the suite has of its own.
"""

import math
from collections.abc import Callable

import polars as pl

from evaluator.methods.base import Answers, Asked, Method, softmax
from evaluator.schemas import Definition
from evaluator.suites.in_context_pvi.demonstration_sets import resolved_options
from evaluator.suites.in_context_pvi.prompts import NULL, as_queries, null_prompts, queries_behind
from evaluator.suites.in_context_pvi.ranked_sets import candidates_behind, first_sets, ranked_sets
from evaluator.suites.in_context_pvi.schema import PviOrder

TRAINING = "pvi_training"
"""The part that asks about training rows, by `training_row`; it has no query."""

CHOSEN: dict[str, PviOrder] = {
    "hardest_demonstrations": "hardest",
    "easiest_demonstrations": "easiest",
    "middle_demonstrations": "middle",
}
"""Method, and its part of queries -> what it chooses."""

_WORDS: dict[PviOrder, str] = {
    "hardest": "of the lowest PVI",
    "easiest": "of the highest PVI",
    "middle": "around the median PVI",
}


def null_part(method: str) -> str:
    """Return the part of a method's prompts without any input."""
    return f"{method}_null"


def requests(asked: Asked) -> list[pl.DataFrame]:
    """Ask the training rows that can be chosen behind set 0 of each number of shots; every order asks the same.

    `position` counts numbers of shots, then all training rows there are.

    Raises TemplateError or DatasetError, before anything is answered, where there are too few to choose among.
    """
    dataset, pvi = asked.classification, resolved_options(asked.config)
    n_rows = dataset.demonstration.height
    frames = []
    for place, first in enumerate(first_sets(dataset, pvi)):
        rows = queries_behind(dataset, [first], candidates_behind(dataset, pvi, first), part=TRAINING, n_rows=n_rows)
        frames.append(
            rows.with_columns(
                pl.col("position") + place * n_rows, training_row="query_id", query_id=pl.lit(None, pl.Int64)
            ).select(asked.rows.columns)
        )
    return frames


def training_pvi(answers: Answers) -> pl.DataFrame:
    """Measure the PVI of training rows behind set 0, over the whole vocabulary, from answers of the suite pvi.

    Returns dataset, n_shots, training_row, gold and pvi_bits, which is null where it is not finite; sorted by the first
    three.
    """
    scores = pl.col("label_log_likelihoods")
    nulls = answers.part(NULL).filter(demonstration_set=0).select("dataset", "n_shots", null_scores=scores)
    bits = gain_nats(scores.list.get(pl.col("gold")), pl.col("null_scores").list.get(pl.col("gold"))) / math.log(2)
    return (
        answers.part(TRAINING)
        .join(nulls, on=["dataset", "n_shots"], how="left", validate="m:1")
        .select("dataset", "n_shots", "training_row", "gold", pvi_bits=bits)
        .sort("dataset", "n_shots", "training_row")
        .collect()
    )


def gain_nats(given_input: pl.Expr, given_null: pl.Expr) -> pl.Expr:
    """Subtract log-likelihoods of a label in nats; null where one of the two is missing, NaN or infinite.

    Equation 1 of Lu et al. 2023, before it is divided by ln 2.
    """
    difference = given_input - given_null
    # Infinite less infinite is NaN, so that one check is of both.
    return pl.when(difference.is_finite()).then(difference)


def _follow_up(method: str, order: PviOrder) -> Callable[[Asked, Answers], pl.DataFrame]:
    def follow_up(asked: Asked, answers: Answers) -> pl.DataFrame:
        """Ask the queries of the part input behind the chosen sets, and a prompt without inputs a set.

        Raises TemplateError where too few training rows of a label have a PVI.
        """
        dataset, pvi = asked.classification, resolved_options(asked.config)
        measured = training_pvi(answers).filter(dataset=dataset.name).rename({"training_row": "query_id"})
        by_shots = measured.partition_by("n_shots", as_dict=True, maintain_order=True)
        sets = [
            each
            for (n_shots,), rows in by_shots.items()
            for each in ranked_sets(dataset, rows, order, int(n_shots), pvi)
        ]
        queries = as_queries(dataset, dataset.test).filter(pl.col("query_id").is_in(asked.rows["query_id"].implode()))
        inputs = queries_behind(dataset, sets, queries, part=method, n_rows=dataset.test.height)
        return pl.concat([inputs, null_prompts(dataset, sets, part=null_part(method))]).select(asked.rows.columns)

    return follow_up


def _label_probs(method: str) -> Callable[[Answers, Definition], pl.LazyFrame]:
    def label_probs(answers: Answers, _definition: Definition) -> pl.LazyFrame:
        """Return the part input as answered behind the chosen sets; probabilities as vanilla has them."""
        probs = softmax(pl.col("label_log_likelihoods"))
        return answers.part(method).with_columns(label_probs=probs)

    return label_probs


def _chosen_by_pvi(method: str) -> Method:
    order = CHOSEN[method]
    return Method(
        summary=f"Vanilla behind the training rows {_WORDS[order]} of each label.",
        label_probs=_label_probs(method),
        requests=requests,
        follow_up=_follow_up(method, order),
        part_kinds=("classification",),
        definitions=("paper",),
    )


CHOSEN_METHODS = {name: _chosen_by_pvi(name) for name in CHOSEN}
