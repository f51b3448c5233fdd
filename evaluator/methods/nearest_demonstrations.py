"""Retrieve the demonstrations with the hidden states nearest to that of each query."""

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from evaluator.arrays import Ints
from evaluator.errors import TemplateError
from evaluator.methods.base import MethodContext, ScoredRequests
from evaluator.methods.training_states import state_array
from evaluator.prompts.render import NO_SPANS
from evaluator.prompts.rows import ASKS_STATE, NOT_VARIED, PromptPlan, requests

DEMONSTRATION_TEXTS, QUERY_TEXTS = "demonstration_texts", "query_texts"
RELEASED_POOL = 512  # the toolkit uses only the first rows of the demonstration split (prompt_template_edit.py)


class Nearest(NamedTuple):
    """The nearest demonstrations of each query."""

    query_id: Ints  # [n_queries], rows of the test split, ascending
    demonstration_ids: Ints  # [n_queries, n_nearest], rows of the demonstration split, nearest first


def text_requests(context: MethodContext, n_nearest: int) -> Iterator[pl.DataFrame]:
    """Yield requests for the hidden states of the texts of the queries and of the demonstrations to choose from.

    `training_row` is the row of a demonstration, `query_id` that of a query. Several text fields are joined by a space;
    the toolkit takes datasets of one field only. An example without text has no request and is never chosen.
    The toolkit handles it differently: where the tokenizer adds no BOS token, it catches the error for the empty text
    and drops it, so that all later indices are off by one.

    Raises TemplateError, before anything is scored, where fewer than `n_nearest` demonstrations have a text.
    """
    dataset = context.classification
    pool = (
        dataset.demonstration if context.config.prompt_definition == "paper" else dataset.demonstration[:RELEASED_POOL]
    )
    no_row = pl.lit(None, pl.Int64)
    demonstrations = _texts(pool).filter(pl.col("prompt") != "")
    if demonstrations.height < n_nearest:
        raise TemplateError(
            f"{context.config.n_shots} shots need the {n_nearest} nearest demonstrations of {dataset.name}, but "
            f"{demonstrations.height} can be chosen from. Choose smaller --shots."
        )
    query_ids = context.rows.select(pl.col("query_id").unique().sort()).collect()["query_id"]
    queries = _texts(dataset.test)[query_ids]
    parts = [
        demonstrations.with_columns(
            part=pl.lit(DEMONSTRATION_TEXTS), training_row="position", query_id=no_row, gold=no_row
        ),
        queries.with_columns(
            part=pl.lit(QUERY_TEXTS),
            training_row=no_row,
            query_id="position",
            gold=dataset.test["gold"].gather(query_ids),
        ),
    ]
    rows = pl.concat(parts, how="vertical_relaxed").with_columns(
        **{name: value for name, value in NOT_VARIED.items() if name != "training_row"},
        **ASKS_STATE,
        spans=NO_SPANS,
        dataset=pl.lit(dataset.name),
        n_shots=pl.lit(0, pl.Int64),
        demonstration_ids=pl.lit([], pl.List(pl.Int64)),
        label_names=pl.lit(list(dataset.verbalizer.label_names)),
    )
    yield rows.select(context.columns)


def nearest_demonstrations(context: MethodContext, scored: ScoredRequests, n_nearest: int) -> Nearest:
    """Return the demonstrations whose last hidden states have the smallest Euclidean distances to each query's.

    Nearest first, and of equal distances the lower row; distances are computed in float64.
    """
    from scipy.spatial.distance import cdist  # imported here, because listing the methods should not load SciPy

    of_dataset = scored.of_dataset(context.classification.name)
    demonstrations = _states_by_row(of_dataset, DEMONSTRATION_TEXTS, "training_row")
    queries = _states_by_row(of_dataset, QUERY_TEXTS, "query_id")
    assert demonstrations.height >= n_nearest, "text_requests checked it"
    # Not by a matrix product: its rounding depends on the position of a row, and would order equal texts arbitrarily.
    distances = cdist(state_array(queries), state_array(demonstrations))
    order = distances.argsort(axis=1, kind="stable")[:, :n_nearest]
    return Nearest(queries["query_id"].to_numpy(), demonstrations["training_row"].to_numpy()[order])


def retrieved_requests(context: MethodContext, part: str, plan: PromptPlan) -> Iterator[pl.DataFrame]:
    """Yield the requests of a plan as rows of a method's part."""
    for rows in requests(context.classification, plan):
        yield rows.with_columns(part=pl.lit(part)).select(context.columns)


def _texts(split: pl.DataFrame) -> pl.DataFrame:
    return split.select(position=pl.int_range(pl.len()), prompt=pl.col("texts").list.join(" "))


def _states_by_row(scored: ScoredRequests, part: str, row: str) -> pl.DataFrame:
    rows = scored.states_of(part).select(row, "hidden_state")
    return rows.unique(row).sort(row).collect()  # the requests are the same in every suite
