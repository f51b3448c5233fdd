"""Contextual calibration: divide label probabilities by their mean over prompts of the task with empty queries."""

from collections.abc import Iterator

import polars as pl

from evaluator.methods.base import Method, MethodContext, ScoredRequests, softmax
from evaluator.methods.mean_label_probs import log_mean_label_probs
from evaluator.methods.vanilla import LABEL_SCORE
from evaluator.prompts.pseudo_queries import empty_queries
from evaluator.prompts.training_prompts import N_SAMPLES, training_demonstrations, training_requests
from evaluator.schemas import Definition

PART = "contextual_calibration"
TOOLKIT_OFFSET = 1e-5  # initial value of the toolkit's sums over training prompts

_TASK = ["suite", "dataset"]


def label_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
    """Return the queries, calibrated by the mean label probabilities after empty queries.

    Source: Zhao et al. 2021, "Calibrate Before Use": W = diag(p_cf)^-1. There p_cf comes from the demonstrations of the
    prompt that is calibrated, with three content-free inputs; here, as in Cho & Inoue 2025 (appendix B.2), from 128
    prompts with other demonstrations of the task and empty inputs, once a dataset.
    """
    return calibrated(scored, definition, PART)


def calibrated(scored: ScoredRequests, definition: Definition, part: str) -> pl.LazyFrame:
    """Return the queries with label probabilities p divided by A, their means in `part`.

    `paper`: p / A, normalised. `released` (`standard_calibration.py`): the softmax of p / A, where A is (1e-5 + sum) /
    128. Both rank labels alike, but the probabilities differ.
    """
    means = log_mean_label_probs(scored.part(part), _TASK, definition)
    queries = scored.queries.join(means, on=_TASK, how="left", maintain_order="left")
    score = pl.col(LABEL_SCORE[definition])
    scaled = score - pl.col("log_mean")
    if definition == "released":
        scaled = softmax(score) / pl.col("log_mean").list.eval(pl.element().exp() + TOOLKIT_OFFSET / N_SAMPLES)
    return queries.with_columns(label_probs=softmax(scaled)).drop("log_mean")


def requests(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Yield empty queries after demonstrations of the calibration split; raise DatasetError if that is empty."""
    dataset = context.classification
    shown = training_demonstrations(dataset, n_shots=context.config.n_shots)
    queries = empty_queries(N_SAMPLES, len(dataset.text_fields))
    yield training_requests(dataset, part=PART, queries=queries, demonstration_ids=shown)


CONTEXTUAL_CALIBRATION = Method(
    summary="The label that the query makes likelier than no query does, by the largest factor.",
    label_probs=label_probs,
    drawn_once="training prompts",
    requests=requests,
    part_kinds=("classification",),
    labelled_examples=lambda n_shots: N_SAMPLES * n_shots,
)
