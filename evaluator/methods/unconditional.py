"""Unconditional normalisation: how much likelier the prompt makes a label than it is by itself."""

import polars as pl

from evaluator.methods.base import NO_QUERY, Answers, Asked, Method, softmax
from evaluator.schemas import Definition

PART = "unconditional"
CONTEXT = "Answer:"
"""What stands before a label that answers nothing in particular."""

_SPACE = ["suite", "dataset", "label_names"]


def label_probs(answers: Answers, _definition: Definition) -> pl.LazyFrame:
    """Return the softmax over the label space of log P(label | prompt) - log P(label | "Answer:").

    Source: Gao 2021, "Multiple Choice Normalization in LM Evaluation" (blog.eleuther.ai), "unconditional likelihood
    normalized", after Brown et al. 2020. One context for all labels, so the end of a prompt, which differs from
    template to template, is not what stands before them.
    """
    own = answers.part(PART).select(*_SPACE, unconditional="label_log_likelihoods")
    asked = answers.queries.join(own, on=_SPACE, how="left", maintain_order="left")
    gain = pl.col("label_log_likelihoods") - pl.col("unconditional")
    return asked.with_columns(label_probs=softmax(gain)).drop("unconditional")


def requests(asked: Asked) -> list[pl.DataFrame]:
    """Ask once a distinct label space; the row answers no query, so query_id and gold are null."""
    spaces = asked.rows.select("dataset", "label_names", "continuations").unique(maintain_order=True)
    spaced = pl.col("continuations").list.first().str.starts_with(" ")
    own = spaces.with_columns(
        part=pl.lit(PART),
        position=pl.int_range(pl.len()),
        **NO_QUERY,
        prompt=pl.when(spaced).then(pl.lit(CONTEXT)).otherwise(pl.lit(f"{CONTEXT} ")),
        ask=pl.lit("labels"),
    )
    return [own.select(asked.rows.columns)]


UNCONDITIONAL = Method(
    summary='The label that the prompt makes likelier than "Answer:" alone does, by the largest factor.',
    label_probs=label_probs,
    definitions=("paper",),
    requests=requests,
)
