"""Unconditional normalisation: how much more likely a label is after the prompt than without it (PMI)."""

from collections.abc import Iterator

import polars as pl

from evaluator.methods.base import NO_QUERY, Method, MethodContext, ScoredRequests, softmax
from evaluator.prompts.render import with_query_span
from evaluator.schemas import PROMPTS, Definition

PART = "unconditional"
CONTEXT = "Answer:"
"""Context of the unconditional log-likelihood of a label."""

_SPACE = ["suite", "dataset", "label_names"]


def label_probs(scored: ScoredRequests, _definition: Definition) -> pl.LazyFrame:
    """Return the softmax over the label space of log P(label | prompt) - log P(label | "Answer:").

    Source: Gao 2021, "Multiple Choice Normalization in LM Evaluation" (blog.eleuther.ai), "unconditional likelihood
    normalized", after Brown et al. 2020. The context is the same for all templates, although their
    prompts end differently.
    """
    spaces = scored.part(PART).select(*_SPACE, unconditional="label_log_likelihoods")
    queries = scored.queries.join(spaces, on=_SPACE, how="left", maintain_order="left")
    gain = pl.col("label_log_likelihoods") - pl.col("unconditional")
    return queries.with_columns(label_probs=softmax(gain)).drop("unconditional")


def requests(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Yield one request for each distinct label space; query_id and gold are null, because it has no query."""
    spaces = context.rows.select("dataset", "label_names", "continuations").unique(maintain_order=True).collect()
    spaced = pl.col("continuations").list.first().str.starts_with(" ")
    prompt = pl.when(spaced).then(pl.lit(CONTEXT)).otherwise(pl.lit(f"{CONTEXT} "))
    rows = spaces.with_columns(
        part=pl.lit(PART),
        position=pl.int_range(pl.len()),
        **NO_QUERY,
        prompt=prompt,
        spans=with_query_span(pl.lit([], PROMPTS["spans"]), pl.lit(""), prompt, prompt),
        ask=pl.lit("labels"),
    )
    yield rows.select(context.columns)


UNCONDITIONAL = Method(
    summary='The label that the prompt makes likelier than "Answer:" alone does, by the largest factor.',
    label_probs=label_probs,
    definitions=("paper",),
    requests=requests,
)
