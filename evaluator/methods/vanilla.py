"""Vanilla in-context inference: the label the model finds most likely after the prompt."""

import polars as pl

from evaluator.methods.base import Answers, Method, softmax
from evaluator.schemas import Definition


def label_probs(answers: Answers, definition: Definition) -> pl.LazyFrame:
    """Label probabilities, normalised over the label space (Cho & Inoue 2025, equation 1).

    `paper` scores all tokens of a label. `released` scores the last token alone, right after the prompt, as the toolkit
    does (`model_kernel.py`); the two differ only where a label has several tokens.
    """
    score = {"paper": "label_log_likelihoods", "released": "last_token_log_probs"}[definition]
    return answers.asked.with_columns(label_probs=softmax(pl.col(score)))


VANILLA = Method(summary="The label the model finds most likely after the prompt.", label_probs=label_probs)
