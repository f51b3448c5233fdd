"""TopK: show each query the demonstrations that are nearest to it."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from evaluator.methods.base import Method, MethodContext, ScoredRequests, softmax
from evaluator.methods.nearest_demonstrations import (
    nearest_demonstrations,
    retrieved_requests,
    text_requests,
)
from evaluator.methods.vanilla import LABEL_SCORE
from evaluator.prompts.rows import PromptPlan
from evaluator.schemas import Definition

PART = "topk"


def label_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return one row a query, with vanilla's label probabilities after the nearest demonstrations."""
    probs = softmax(pl.col(LABEL_SCORE[definition]))
    return scored.part(PART).with_columns(label_probs=probs)


def requests(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Yield requests for the hidden states to compare. Raises as text_requests does."""
    return text_requests(context, context.config.n_shots)


def follow_up(context: MethodContext, scored: ScoredRequests) -> Iterator[pl.DataFrame]:
    """Yield one request a query, after its nearest demonstrations, nearest first; StaICC-Normal has two a query.

    Source: Liu et al. 2022 (arXiv 2101.06804), with the hidden states of the model that is evaluated in place of a
    sentence encoder's, as in the toolkit (prompt_template_edit.py, SA_ICL). Under `paper` demonstrations are
    chosen from the whole demonstration split, under `released` from its first 512 rows.
    """
    nearest = nearest_demonstrations(context, scored, context.config.n_shots)
    first_set = np.zeros_like(nearest.query_id)
    plan = PromptPlan(
        demonstration_set=first_set, query_id=nearest.query_id, demonstration_ids=nearest.demonstration_ids
    )
    yield from retrieved_requests(context, PART, plan)


TOPK = Method(
    summary="Vanilla after the demonstrations whose hidden states are nearest to the query's.",
    label_probs=label_probs,
    requests=requests,
    follow_up=follow_up,
    part_kinds=("classification",),
    needs_states=True,
    prompts_differ=True,
    chooses_demonstrations=True,
)
