"""Self-adaptive in-context learning: choose the ordering of the nearest demonstrations with the lowest entropy."""

from collections.abc import Iterator
from itertools import islice, permutations

import numpy as np
import polars as pl

from evaluator.arrays import Ints
from evaluator.datasets.lcg import SEED
from evaluator.methods.base import Method, MethodContext, ScoredRequests, softmax
from evaluator.methods.nearest_demonstrations import (
    nearest_demonstrations,
    retrieved_requests,
    text_requests,
)
from evaluator.methods.vanilla import LABEL_SCORE
from evaluator.prompts.demonstration_sequences import demonstration_sequences
from evaluator.prompts.rows import PromptPlan
from evaluator.schemas import Definition

PART = "sa_icl"
N_ORDERINGS = 10

_QUERY = ["suite", "dataset", "query_id"]


def label_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return one row a query: vanilla's label probabilities after the ordering of lowest entropy; the first of equals.

    `prompt_id` is that of the chosen prompt: up to ten are scored, but as the choice does not use gold labels, a
    query's answer counts as one try, not as the best of ten.

    Source: Wu et al. 2023 (arXiv 2212.10375) as Cho & Inoue 2025 use it, by the entropy of the label
    probabilities. The toolkit's function (functional.py, entropy) applies another softmax to rows whose sum differs
    from one by rounding.
    """
    probs = softmax(pl.col(LABEL_SCORE[definition]))
    rows = scored.part(PART).sort(*_QUERY, "ordering").with_columns(label_probs=probs)
    lowest_entropy = entropy_nats(pl.col("label_probs")).arg_min().over(_QUERY)
    return rows.filter(pl.int_range(pl.len()).over(_QUERY) == lowest_entropy).with_columns(position="query_id")


def entropy_nats(probs: pl.Expr) -> pl.Expr:
    """Return the Shannon entropy of each list of probabilities, nats; 0 log 0 is 0."""
    p = pl.element()
    return -probs.list.eval(pl.when(p > 0).then(p * p.log()).otherwise(0.0)).list.sum()


def requests(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Yield requests for the hidden states to compare. Raises as text_requests does."""
    return text_requests(context, context.config.n_shots + 1)


def follow_up(context: MethodContext, scored: ScoredRequests) -> Iterator[pl.DataFrame]:
    """Yield requests for each query after up to ten orderings of k of its k + 1 nearest demonstrations.

    The toolkit does so for k = 4. `position` is 10 x query + ordering.
    """
    n_shots = context.config.n_shots
    nearest = nearest_demonstrations(context, scored, n_shots + 1)
    ranks = orderings(n_shots, context.config.prompt_definition)
    # A request for each pair of a query and an ordering.
    query, ordering = (index.ravel() for index in np.indices((len(nearest.query_id), len(ranks))))
    query_id = nearest.query_id[query]
    plan = PromptPlan(
        demonstration_set=ordering,
        query_id=query_id,
        demonstration_ids=nearest.demonstration_ids[query[:, None], ranks[ordering]],
    )
    for rows in retrieved_requests(context, PART, plan):
        number = pl.col("demonstration_set")
        yield rows.with_columns(
            ordering=number, position=pl.col("query_id") * N_ORDERINGS + number, demonstration_set=pl.lit(0, pl.Int64)
        )


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


SA_ICL = Method(
    summary="Vanilla after the ordering of the nearest demonstrations with the lowest entropy.",
    label_probs=label_probs,
    requests=requests,
    follow_up=follow_up,
    part_kinds=("classification",),
    needs_states=True,
    prompts_differ=True,
    chooses_demonstrations=True,
)
