"""Noisy channel: the label that makes the query likely, instead of the label that the query makes likely."""

import polars as pl

from evaluator.methods.base import Answers, Asked, Method, softmax
from evaluator.prompts.noisy_channel import noisy_channel_requests
from evaluator.schemas import Definition

PART = "noisy_channel"

_PROMPT = ["suite", "dataset", "query_id", "demonstration_set"]
"""Identifies a prompt of the part normal, which is asked once a label."""


def label_probs(answers: Answers, definition: Definition) -> pl.LazyFrame:
    """Return the part normal with the softmax over labels of how likely each makes the query.

    `paper`: log P(query | demonstrations, label), summed over the query's tokens (Min et al. 2022, "Noisy Channel
    Language Model Prompting"; labels are equally likely beforehand). `released` (`model_kernel.py`): minus the mean
    loss over the whole prompt, demonstrations included, which is nearly the same behind every label.

    `prompt_id` is that of the prompt with the first label. A query is tried with as many of them as demonstration sets.
    """
    score = pl.col("label_log_likelihoods").list.first()
    if definition == "released":
        score = score / pl.col("label_token_counts").list.first()
    of_labels = (
        answers.part(PART)
        .sort(*_PROMPT, "label_tried")
        .group_by(_PROMPT, maintain_order=True)
        .agg(pl.col("prompt_id").first(), score)
        .select(*_PROMPT, "prompt_id", label_probs=softmax(pl.col("label_log_likelihoods")))
    )
    return answers.queries.drop("prompt_id").join(of_labels, on=_PROMPT, maintain_order="left")


def requests(asked: Asked) -> list[pl.DataFrame]:
    """Turn every prompt of the part normal round, once a label."""
    dataset = asked.classification
    n_shots, definition = asked.config.n_shots, asked.config.prompt_definition
    return [noisy_channel_requests(dataset, asked.rows, part=PART, n_shots=n_shots, definition=definition)]


NOISY_CHANNEL = Method(
    summary="The label that makes the query likeliest.",
    label_probs=label_probs,
    requests=requests,
    part_kinds=("classification",),
    prompts_differ=True,
)
