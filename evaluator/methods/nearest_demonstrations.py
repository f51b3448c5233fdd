"""Retrieval: which demonstrations a model's own hidden states place nearest to each query.

Requests for the states of bare texts leave; once they are answered, row numbers of the demonstration split leave.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator.datasets.lcg import Ints
from evaluator.datasets.staicc import SIZES
from evaluator.errors import TemplateError
from evaluator.methods.base import Answers, Asked
from evaluator.methods.training_states import NO_CONTINUATIONS, state_array
from evaluator.prompts.rows import requests

DEMONSTRATION_TEXTS, QUERY_TEXTS = "demonstration_texts", "query_texts"
RELEASED_POOL = 512  # the toolkit looks at the first of the demonstration split alone (prompt_template_edit.py)


class Nearest(NamedTuple):
    """For each query the nearest demonstrations."""

    query_id: Ints  # [n_queries], rows of the test split, ascending
    demonstration_ids: Ints  # [n_queries, n_nearest], rows of the demonstration split, nearest first


def text_requests(asked: Asked) -> list[pl.DataFrame]:
    """The states of the bare texts of the demonstrations to choose from and of the queries, each text once a split.

    `position` is the row of the split. Several text fields are joined by a space; the toolkit takes datasets of one
    field only. An example without any text is not asked about and so never chosen. The toolkit does ask: where the
    tokenizer adds no BOS it gets an error, drops the text, and takes every later one for the one before it.
    """
    dataset = asked.classification
    pool = dataset.demonstration if asked.config.prompt_definition == "paper" else dataset.demonstration[:RELEASED_POOL]
    demonstrations = _texts(pool).filter(pl.col("prompt") != "").with_columns(part=pl.lit(DEMONSTRATION_TEXTS))
    queries = _texts(dataset.test)[_query_ids(asked)].with_columns(
        part=pl.lit(QUERY_TEXTS), query_id="position", gold=dataset.test["gold"].gather(_query_ids(asked))
    )
    rows = pl.concat([demonstrations, queries], how="diagonal_relaxed").with_columns(
        dataset=pl.lit(dataset.name),
        repeat=pl.lit(0, pl.Int64),
        variant=pl.lit(0, pl.Int64),
        demonstration_ids=pl.lit([], pl.List(pl.Int64)),
        label_names=pl.lit(list(dataset.verbalizer.label_names)),
        continuations=NO_CONTINUATIONS,
    )
    return [rows.select(asked.rows.columns)]


def nearest_demonstrations(asked: Asked, answers: Answers, n_nearest: int) -> Nearest:
    """The demonstrations whose last hidden states have the smallest Euclidean distances to each query's.

    Nearest first, the lower row first of equals; distances are added up in float64.

    Raises TemplateError where fewer demonstrations have a text.
    """
    from scipy.spatial.distance import cdist  # here, because whoever only lists methods should not wait for SciPy

    texts = {part: _answered(answers, part, asked) for part in (DEMONSTRATION_TEXTS, QUERY_TEXTS)}
    demonstrations, queries = texts[DEMONSTRATION_TEXTS], texts[QUERY_TEXTS]
    if demonstrations.height < n_nearest:
        raise TemplateError(
            f"{asked.config.n_shots} shots need the {n_nearest} nearest demonstrations of {asked.classification.name}, "
            f"but {demonstrations.height} can be chosen from. Choose smaller --shots."
        )
    # Not by a matrix product: its rounding depends on where a row stands, and would order equal texts at random.
    distances = cdist(state_array(queries), state_array(demonstrations))
    order = distances.argsort(axis=1, kind="stable")[:, :n_nearest]
    return Nearest(queries["position"].to_numpy(), demonstrations["position"].to_numpy()[order])


def retrieved_requests(asked: Asked, part: str, *, query_id: Ints, demonstration_ids: Ints) -> pl.DataFrame:
    """Rows of a method's own part, one a prompt, from rows of the test split [n] and the demonstration split [n, k]."""
    rows = requests(
        asked.classification, repeat=np.zeros_like(query_id), query_id=query_id, demonstration_ids=demonstration_ids
    )
    return rows.with_columns(part=pl.lit(part)).select(asked.rows.columns)


def labelled_examples(_n_shots: int) -> int:
    """What is chosen from: StaICC's demonstration split, though two datasets and `released` have fewer examples."""
    return SIZES.demonstration


def _query_ids(asked: Asked) -> pl.Series:
    return asked.rows["query_id"].unique().sort()


def _texts(split: pl.DataFrame) -> pl.DataFrame:
    return split.select(position=pl.int_range(pl.len()), prompt=pl.col("texts").list.join(" "))


def _answered(answers: Answers, part: str, asked: Asked) -> pl.DataFrame:
    rows = answers.of_dataset(asked.classification.name).states_of(part).select("position", "hidden_state")
    return rows.unique("position").sort("position").collect()  # every suite that asks, asks the same
