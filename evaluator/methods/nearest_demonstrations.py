"""Show each query the demonstrations with the hidden states nearest to its own: TopK and self-adaptive ICL."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, permutations

import numpy as np
import polars as pl

from evaluator.arrays import Ints
from evaluator.config import Definition
from evaluator.datasets.lcg import SEED
from evaluator.errors import TemplateError
from evaluator.methods import base
from evaluator.methods.training_states import state_array
from evaluator.prompts.demonstrations import demonstration_sequences
from evaluator.prompts.rows import ASKS_STATE, NO_SPANS, PromptPlan, asks_labels, requests

DEMONSTRATION_TEXTS, QUERY_TEXTS = "demonstration_texts", "query_texts"
TOPK_PART, SA_ICL_PART = "topk", "sa_icl"
N_ORDERINGS = 10
RELEASED_POOL = 512  # the toolkit uses only the first rows of the demonstration split (prompt_template_edit.py)

_QUERY = ["suite", "dataset", "query_id"]


def text_requests(context: base.MethodContext, n_nearest: int) -> Iterator[pl.DataFrame]:
    """Yield requests for the hidden states of the texts of the queries and of the demonstrations to choose from.

    `training_row` is the row of a demonstration, `query_id` that of a query. Several text fields are joined by a space;
    the toolkit takes datasets of one field only. An example without text has no request and is never chosen.
    The toolkit handles it differently: where the tokenizer adds no BOS token, it catches the error for the empty text
    and drops it, so that all later indices are off by one.

    Raises TemplateError, before anything is scored, where fewer than `n_nearest` demonstrations have a text.
    """
    dataset = context.classification
    pool = dataset.demonstration
    if context.config.prompt_definition == "released":
        pool = pool.head(RELEASED_POOL)
    demonstrations = _texts(pool).filter(pl.col("prompt") != "")
    if demonstrations.height < n_nearest:
        raise TemplateError(
            f"{context.config.n_shots} shots need the {n_nearest} nearest demonstrations of {dataset.name}, but "
            f"{demonstrations.height} can be chosen from. Choose smaller --shots."
        )
    query_ids = context.rows.select(pl.col("query_id").unique().sort()).collect()["query_id"]
    position, gold = pl.col("position"), pl.lit(dataset.test["gold"].gather(query_ids))
    shared = {**base.NO_QUERY, **asks_labels(dataset), **ASKS_STATE, "spans": NO_SPANS}
    parts = [
        demonstrations.with_columns(**shared | {"part": pl.lit(DEMONSTRATION_TEXTS), "training_row": position}),
        _texts(dataset.test)[query_ids].with_columns(
            **shared | {"part": pl.lit(QUERY_TEXTS), "query_id": position, "gold": gold}
        ),
    ]
    yield pl.concat(parts, how="vertical_relaxed").select(context.columns)


def nearest_demonstrations(
    context: base.MethodContext, scored: base.ScoredRequests, n_nearest: int
) -> tuple[Ints, Ints]:
    """Return the demonstrations whose last hidden states have the smallest Euclidean distances to each query's.

    Returns:
        Rows of the test split, [n_queries], ascending; and rows of the demonstration split, [n_queries, n_nearest],
        nearest first, and of equal distances the lower row. Distances are computed in float64.
    """
    from scipy.spatial.distance import cdist  # imported here, because listing the methods should not load SciPy

    states = scored.states.filter(dataset=context.classification.name)
    demonstrations = _states_by_row(states, DEMONSTRATION_TEXTS, "training_row")
    queries = _states_by_row(states, QUERY_TEXTS, "query_id")
    assert demonstrations.height >= n_nearest, "text_requests checked it"
    # Not by a matrix product: its rounding depends on the position of a row, and would order equal texts arbitrarily.
    distances = cdist(state_array(queries), state_array(demonstrations))
    order = distances.argsort(axis=1, kind="stable")[:, :n_nearest]
    return queries["query_id"].to_numpy(), demonstrations["training_row"].to_numpy()[order]


def retrieved_requests(context: base.MethodContext, part: str, plan: PromptPlan) -> Iterator[pl.DataFrame]:
    """Yield the requests of a plan as rows of a method's part."""
    for rows in requests(context.classification, plan):
        yield rows.with_columns(part=pl.lit(part)).select(context.columns)


def _texts(split: pl.DataFrame) -> pl.DataFrame:
    return split.select(position=pl.int_range(pl.len()), prompt=pl.col("texts").list.join(" "))


def _states_by_row(states: pl.LazyFrame, part: str, row: str) -> pl.DataFrame:
    rows = states.filter(part=part).select(row, "hidden_state")
    return rows.unique(row).sort(row).collect()  # the requests are the same in every suite


def topk_follow_up(context: base.MethodContext, scored: base.ScoredRequests) -> Iterator[pl.DataFrame]:
    """Yield one request a query, after its nearest demonstrations, nearest first; StaICC-Normal has two a query.

    Source: Liu et al. 2022 (arXiv 2101.06804), with the hidden states of the model that is evaluated in place of a
    sentence encoder's, as in the toolkit (prompt_template_edit.py, SA_ICL). Under `paper` demonstrations are
    chosen from the whole demonstration split, under `released` from its first 512 rows.
    """
    query_id, demonstration_ids = nearest_demonstrations(context, scored, context.config.n_shots)
    plan = PromptPlan(demonstration_set=np.zeros_like(query_id), query_id=query_id, demonstration_ids=demonstration_ids)
    yield from retrieved_requests(context, TOPK_PART, plan)


TOPK = base.Method(
    summary="Vanilla after the demonstrations whose hidden states are nearest to the query's.",
    label_probs=base.softmax_of(base.label_score, TOPK_PART),
    prompts=base.MethodPrompts(
        requests=lambda context: text_requests(context, context.config.n_shots),
        follow_up=topk_follow_up,
        need_states=True,
        differ=True,
    ),
    part_kinds=("classification",),
    labelled_examples=lambda _n_shots: math.inf,
)


def lowest_entropy_probs(scored: base.ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return one row a query: vanilla's label probabilities after the ordering of lowest entropy; the first of equals.

    `prompt_id` is that of the chosen prompt: up to ten are scored, but as the choice does not use gold labels, a
    query's answer counts as one try, not as the best of ten.

    Source: Wu et al. 2023 (arXiv 2212.10375) as Cho & Inoue 2025 use it, by the entropy of the label
    probabilities. The toolkit's function (functional.py, entropy) applies another softmax to rows whose sum differs
    from one by rounding.
    """
    probs = base.softmax(base.label_score(definition))
    rows = scored.rows.filter(part=SA_ICL_PART).sort(*_QUERY, "ordering").with_columns(label_probs=probs)
    lowest_entropy = entropy_nats(pl.col("label_probs")).arg_min().over(_QUERY)
    return rows.filter(pl.int_range(pl.len()).over(_QUERY) == lowest_entropy).with_columns(position="query_id")


def entropy_nats(probs: pl.Expr) -> pl.Expr:
    """Return the Shannon entropy of each list of probabilities, nats; 0 log 0 is 0."""
    p = pl.element()
    return -probs.list.eval(pl.when(p > 0).then(p * p.log()).otherwise(0.0)).list.sum()


def sa_icl_follow_up(context: base.MethodContext, scored: base.ScoredRequests) -> Iterator[pl.DataFrame]:
    """Yield requests for each query after up to ten orderings of k of its k + 1 nearest demonstrations.

    The toolkit does so for k = 4. `position` is 10 x query + ordering.
    """
    n_shots = context.config.n_shots
    asked, nearest = nearest_demonstrations(context, scored, n_shots + 1)
    ranks = orderings(n_shots, context.config.prompt_definition)
    # A request for each pair of a query and an ordering.
    query, ordering = (index.ravel() for index in np.indices((len(asked), len(ranks))))
    ids = nearest[query[:, None], ranks[ordering]]
    plan = PromptPlan(demonstration_set=ordering, query_id=asked[query], demonstration_ids=ids)
    for rows in retrieved_requests(context, SA_ICL_PART, plan):
        number = pl.col("demonstration_set")
        position, first_set = pl.col("query_id") * N_ORDERINGS + number, pl.lit(0, pl.Int64)
        yield rows.with_columns(ordering=number, position=position, demonstration_set=first_set)


def orderings(n_shots: int, definition: Definition) -> Ints:
    """Return orderings of the n_shots + 1 nearest, 0 for the nearest: shape [10, or fewer if not possible; n_shots].

    `paper`: drawn at random without repetition by the seed, the same for every query. `released`: the first in
    lexicographic order, because the toolkit shuffles a copy and drops it (prompt_template_edit.py), so that with four
    shots the nearest always comes first.
    """
    if definition == "paper":
        return demonstration_sequences(n_pool=n_shots + 1, n_shots=n_shots, n_sequences=N_ORDERINGS, seed=SEED)
    first = list(islice(permutations(range(n_shots + 1), n_shots), N_ORDERINGS))
    return np.array(first, np.int64).reshape(len(first), n_shots)


SA_ICL = replace(
    TOPK,
    summary="Vanilla after the ordering of the nearest demonstrations with the lowest entropy.",
    label_probs=lowest_entropy_probs,
    prompts=replace(
        TOPK.prompts,
        requests=lambda context: text_requests(context, context.config.n_shots + 1),
        follow_up=sa_icl_follow_up,
    ),
)
