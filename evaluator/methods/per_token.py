"""Mean log-likelihood per token, so that long labels are not penalised for their length."""

import polars as pl

from evaluator.methods.base import Method, ScoredRequests, softmax
from evaluator.schemas import Definition


def label_probs(scored: ScoredRequests, _definition: Definition) -> pl.LazyFrame:
    """Return the softmax over labels of each label's log-likelihood divided by its number of tokens.

    Source: Yauney & Mimno 2024, appendix B ("the highest average log-likelihood per token"). Similar methods divide by
    bytes (per_byte), subtract the label's log-likelihood without the prompt (unconditional), or do neither (vanilla);
    all four are in Gao 2021, "Multiple Choice Normalization in LM Evaluation" (blog.eleuther.ai).
    """
    mean = pl.col("label_log_likelihoods") / pl.col("label_token_counts").cast(pl.List(pl.Float64))
    return scored.queries.with_columns(label_probs=softmax(mean))


PER_TOKEN = Method(
    summary="The label of the highest mean log-likelihood per token.", label_probs=label_probs, definitions=("paper",)
)
