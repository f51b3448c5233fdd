"""Batch calibration: label probabilities over their own mean in a batch of queries; no model is asked anything more."""

import polars as pl

from evaluator.methods.base import Answers, Method, softmax
from evaluator.methods.mean_label_probs import log_mean_label_probs
from evaluator.methods.vanilla import LABEL_SCORE
from evaluator.schemas import Definition

BATCH_SIZE = 128  # "we fix the batch size to 128" (Cho & Inoue 2025, appendix B.2)

_BATCH = ["suite", "dataset", "batch"]


def label_probs(answers: Answers, definition: Definition) -> pl.LazyFrame:
    """Return the queries with each batch calibrated by its mean.

    `paper` (Zhou et al. 2024, "Batch Calibration"): log-probabilities less the log of the batch's mean probabilities,
    which is p / mean(p), normalised. `released` (`standard_calibration.py`): the softmax of p - mean(p); no two labels
    end up more than a factor of e^2 apart, however sure the model is.

    Batches are 128 requests in the benchmark's order, which goes through all queries before it shows any with other
    demonstrations. They are made of the requests there are: with fewer queries a query has other neighbours, and other
    probabilities, than in the full benchmark. A last batch of fewer is calibrated by its own mean like any other, so
    that one of a single request gets equal probabilities, whatever the model says.
    """
    place = pl.col("position").rank("ordinal").over("suite", "dataset").cast(pl.Int64) - 1
    asked = answers.queries.with_columns(batch=place // BATCH_SIZE)
    means = log_mean_label_probs(asked, _BATCH, definition)
    score = pl.col(LABEL_SCORE[definition])
    shifted = score - pl.col("log_mean")
    if definition == "released":
        shifted = softmax(score) - pl.col("log_mean").list.eval(pl.element().exp())
    joined = asked.join(means, on=_BATCH, how="left", maintain_order="left")
    return joined.with_columns(label_probs=softmax(shifted)).drop("log_mean", "batch")


BATCH_CALIBRATION = Method(
    summary="The label that the query makes likelier than the queries of its batch do on average.",
    label_probs=label_probs,
    part_kinds=("classification",),
)
