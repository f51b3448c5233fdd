"""Log-likelihood per byte: like per_token, but with a length that does not depend on the tokenizer."""

import polars as pl

from evaluator.methods.base import Method, ScoredRequests, softmax
from evaluator.schemas import Definition


def label_probs(scored: ScoredRequests, _definition: Definition) -> pl.LazyFrame:
    """Return the softmax over labels of each label's log-likelihood divided by the bytes of its name in UTF-8.

    Source: Gao 2021, "Multiple Choice Normalization in LM Evaluation" (blog.eleuther.ai), "byte-length normalized". A
    space in front of a label is scored with it but not counted here; Gao 2021 counts every byte of its tokens.
    """
    n_bytes = pl.col("label_names").list.eval(pl.element().str.len_bytes().cast(pl.Float64))
    return scored.queries.with_columns(label_probs=softmax(pl.col("label_log_likelihoods") / n_bytes))


PER_BYTE = Method(
    summary="The label of the highest log-likelihood per byte of its name.",
    label_probs=label_probs,
    definitions=("paper",),
)
