"""Vanilla in-context inference: predict the most likely label after the prompt."""

import polars as pl

from evaluator.methods.base import Method, ScoredRequests, softmax
from evaluator.schemas import Definition

LABEL_SCORE: dict[Definition, str] = {"paper": "label_log_likelihoods", "released": "last_token_log_probs"}
"""Column of scores that label probabilities are computed from, by definition."""


def label_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return label probabilities, normalised over the label space (Cho & Inoue 2025, equation 1).

    `paper` scores all tokens of a label. `released` scores only the last token, directly after the prompt, as the
    toolkit does (`model_kernel.py`). They differ only for labels of several tokens.
    """
    return scored.queries.with_columns(label_probs=softmax(pl.col(LABEL_SCORE[definition])))


VANILLA = Method(summary="The label the model finds most likely after the prompt.", label_probs=label_probs)
