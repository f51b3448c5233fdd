"""Batch calibration: divide label probabilities by their mean over a batch of queries, without further requests."""

import polars as pl

from evaluator.methods.base import Method, ScoredRequests, softmax
from evaluator.methods.mean_label_probs import log_mean_label_probs
from evaluator.methods.vanilla import LABEL_SCORE
from evaluator.schemas import Definition

BATCH_SIZE = 128  # "we fix the batch size to 128" (Cho & Inoue 2025, appendix B.2)

_BATCH = ["suite", "dataset", "batch"]


def label_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return the queries with each batch calibrated by its mean.

    `paper` (Zhou et al. 2024, "Batch Calibration"): log-probabilities minus the log of the batch's mean probabilities,
    which is p / mean(p), normalised. `released` (`standard_calibration.py`): the softmax of p - mean(p), in which two
    probabilities differ at most by a factor of e^2, however confident the model is.

    A batch is 128 requests in the order of the benchmark, which has all queries with their first demonstrations, then
    all with their second. With fewer queries than in the full benchmark, batches and probabilities are different. The
    last batch may be smaller; a batch of a single request gets equal probabilities.
    """
    index = pl.col("position").rank("ordinal").over("suite", "dataset").cast(pl.Int64) - 1
    queries = scored.queries.with_columns(batch=index // BATCH_SIZE)
    means = log_mean_label_probs(queries, _BATCH, definition)
    score = pl.col(LABEL_SCORE[definition])
    shifted = score - pl.col("log_mean")
    if definition == "released":
        shifted = softmax(score) - pl.col("log_mean").list.eval(pl.element().exp())
    joined = queries.join(means, on=_BATCH, how="left", maintain_order="left")
    return joined.with_columns(label_probs=softmax(shifted)).drop("log_mean", "batch")


BATCH_CALIBRATION = Method(
    summary="The label that the query makes likelier than the queries of its batch do on average.",
    label_probs=label_probs,
    part_kinds=("classification",),
)
