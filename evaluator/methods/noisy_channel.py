"""Noisy channel: the label that makes the query likely, instead of the label that the query makes likely."""

import polars as pl

from evaluator.methods.base import Answers, Asked, Method, softmax
from evaluator.prompts.noisy_channel import noisy_channel_requests
from evaluator.schemas import Definition

PART = "noisy_channel"

_REQUEST = ["suite", "dataset", "position"]
_SHARED = ["query_id", "repeat", "demonstration_ids", "gold", "label_names"]  # by the prompts of one request


def label_probs(answers: Answers, definition: Definition) -> pl.LazyFrame:
    """The part normal, one row a request: the softmax over labels of how likely they make its query.

    `paper`: log P(query | demonstrations, label), summed over the query's tokens (Min et al. 2022, "Noisy Channel
    Language Model Prompting"; labels are equally likely beforehand). `released` (`model_kernel.py`): minus the mean
    loss over the whole prompt, demonstrations included, which is nearly the same behind every label.

    `prompt_id` is that of the prompt with the first label. A query is tried with as many of them as demonstration sets.
    """
    score = pl.col("label_log_likelihoods").list.first()
    if definition == "released":
        score = score / pl.col("label_token_counts").list.first()
    return (
        answers.part(PART)
        .sort("position")
        .with_columns(score=score, position=pl.col("position") // pl.col("label_names").list.len().cast(pl.Int64))
        .group_by(_REQUEST, maintain_order=True)
        .agg(pl.col("prompt_id", *_SHARED).first(), "score")
        .with_columns(part=pl.lit("normal"), variant=pl.lit(0, pl.Int64), label_probs=softmax(pl.col("score")))
        .drop("score")
    )


def requests(asked: Asked) -> list[pl.DataFrame]:
    """Every Normal prompt turned round, once a label."""
    dataset = asked.classification
    n_shots, definition = asked.config.n_shots, asked.config.prompt_definition
    return [noisy_channel_requests(dataset, asked.rows, part=PART, n_shots=n_shots, definition=definition)]


NOISY_CHANNEL = Method(
    summary="The label that makes the query likeliest.",
    label_probs=label_probs,
    requests=requests,
    parts=("normal",),
    prompts_differ=True,
)
