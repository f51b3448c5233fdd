"""Noisy channel: predict the label under which the query is most likely, instead of the most likely label."""

from collections.abc import Iterator

import polars as pl

from evaluator.methods.base import Method, MethodContext, ScoredRequests, softmax
from evaluator.prompts.noisy_channel import noisy_channel_requests
from evaluator.schemas import Definition

PART = "noisy_channel"

_PROMPT = ["suite", "dataset", "query_id", "demonstration_set"]
"""Columns that identify a prompt of the classification part, for which there is one request a label."""


def label_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return the queries of the part with the softmax over labels of the query's log-likelihood under each label.

    `paper`: log P(query | demonstrations, label), summed over the query's tokens (Min et al. 2022, "Noisy Channel
    Language Model Prompting", with a uniform prior over labels). `released` (`model_kernel.py`): minus the mean
    loss over the whole prompt, demonstrations included, which is nearly the same for every label.

    `prompt_id` is that of the prompt with the first label: one for each demonstration set of a query.
    """
    score = pl.col("label_log_likelihoods").list.first()
    if definition == "released":
        score = score / pl.col("label_token_counts").list.first()
    of_labels = (
        scored.part(PART)
        .sort(*_PROMPT, "label_tried")
        .group_by(_PROMPT, maintain_order=True)
        .agg(pl.col("prompt_id").first(), score)
        .select(*_PROMPT, "prompt_id", label_probs=softmax(pl.col("label_log_likelihoods")))
    )
    return scored.queries.drop("prompt_id").join(of_labels, on=_PROMPT, maintain_order="left")


def requests(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Yield a request for each prompt of the classification part and each label; its prompt ends in the query."""
    dataset = context.classification
    n_shots, definition = context.config.n_shots, context.config.prompt_definition
    for rows in context.frames():
        yield noisy_channel_requests(dataset, rows, part=PART, n_shots=n_shots, definition=definition)


NOISY_CHANNEL = Method(
    summary="The label that makes the query likeliest.",
    label_probs=label_probs,
    requests=requests,
    part_kinds=("classification",),
    prompts_differ=True,
)
