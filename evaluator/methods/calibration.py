"""Calibrate label probabilities by their mean over prompts without a real query, or over a batch of queries."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl

from evaluator.methods.base import (
    LabelProbs,
    Method,
    MethodContext,
    MethodPrompts,
    ScoredRequests,
    label_score,
    softmax,
)
from evaluator.prompts.method_prompts import (
    N_SAMPLES,
    domain_queries,
    empty_queries,
    training_draws,
    training_requests,
)
from evaluator.schemas import Definition

CONTEXTUAL, DOMAIN = "contextual_calibration", "domain_calibration"
"""Names of the methods, and the parts with their training prompts."""

N_WORDS = 64  # "we fix the sample length to 64" (Cho & Inoue 2025, appendix B.2)
BATCH_SIZE = 128  # "we fix the batch size to 128" (Cho & Inoue 2025, appendix B.2)
TOOLKIT_OFFSET = 1e-5  # initial value of the toolkit's sums over training prompts

_TASK, _BATCH = ["suite", "dataset"], ["suite", "dataset", "batch"]


def log_softmax(scores: pl.Expr) -> pl.Expr:
    """Normalise each list of log-likelihoods into log-probabilities, nats; shape is kept."""
    scaled = pl.element() - pl.element().max()
    return scores.list.eval(scaled - scaled.exp().sum().log())


def log_mean_label_probs(scored: pl.LazyFrame, by: Sequence[str], definition: Definition) -> pl.LazyFrame:
    """Return the columns `by` and `log_mean`: List[f64] by label, the log of the mean vanilla probability, nats.

    A mean that float64 would round to zero stays finite. The requests of a group share one label space.
    """
    each_label = (
        scored.sort("position")
        .select(
            *by,
            log_prob=log_softmax(label_score(definition)),
            label=pl.int_ranges(pl.col("label_names").list.len()),
        )
        .explode("log_prob", "label")
    )
    # The log of the mean of exp(log_prob); less the largest, or all terms could underflow to zero.
    largest, summed = pl.element().max(), (pl.element() - pl.element().max()).exp().sum()
    log_mean = pl.col("log_prob").list.eval(largest + (summed / pl.element().len()).log()).list.first()
    # Collected as lists first: a list is summed in order, but a group in parts that depend on the number of cores.
    by_label = each_label.group_by(*by, "label", maintain_order=True).agg("log_prob").with_columns(log_mean=log_mean)
    return by_label.sort(*by, "label").group_by(by, maintain_order=True).agg("log_mean")


def calibrated(part: str) -> LabelProbs:
    """Return a function for Method.label_probs: label probabilities p divided by A, their means in `part`.

    `paper`: p / A, normalised. `released` (`standard_calibration.py`): the softmax of p / A, where A is (1e-5 + sum) /
    128. Both rank labels alike, but the probabilities differ.
    """

    def label_probs(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
        means = log_mean_label_probs(scored.rows.filter(part=part), _TASK, definition)
        queries = scored.queries.join(means, on=_TASK, how="left", maintain_order="left")
        score = label_score(definition)
        scaled = score - pl.col("log_mean")
        if definition == "released":
            scaled = softmax(score) / pl.col("log_mean").list.eval(pl.element().exp() + TOOLKIT_OFFSET / N_SAMPLES)
        return queries.with_columns(label_probs=softmax(scaled)).drop("log_mean")

    return label_probs


def contextual_requests(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Yield empty queries after demonstrations of the calibration split; raise DatasetError if that is empty.

    Source: Zhao et al. 2021, "Calibrate Before Use": W = diag(p_cf)^-1. There p_cf comes from the demonstrations of the
    prompt that is calibrated, with three content-free inputs; here, as in Cho & Inoue 2025 (appendix B.2), from 128
    prompts with other demonstrations of the task and empty inputs, once a dataset.
    """
    dataset = context.classification
    shown = training_draws(dataset, n_draws=context.config.n_shots)
    queries = empty_queries(N_SAMPLES, len(dataset.text_fields))
    yield training_requests(dataset, part=CONTEXTUAL, queries=queries, demonstration_ids=shown)


def domain_requests(context: MethodContext) -> Iterator[pl.DataFrame]:
    """Yield queries of random words after demonstrations of the calibration split; DatasetError if it is empty.

    Source: Fei et al. 2023, "Mitigating Label Biases for In-context Learning" (domain-context calibration). Formulas
    are those of contextual calibration; number and length of the queries are those of Cho & Inoue 2025, appendix B.2.
    """
    dataset = context.classification
    shown = training_draws(dataset, n_draws=context.config.n_shots)
    queries = domain_queries(
        dataset.calibration,
        n_queries=N_SAMPLES,
        n_words=N_WORDS,
        definition=context.config.prompt_definition,
        source_name=f"The calibration split of {dataset.name}",
    )
    yield training_requests(dataset, part=DOMAIN, queries=queries, demonstration_ids=shown)


CONTEXTUAL_CALIBRATION = Method(
    summary="The label that the query makes likelier than no query does, by the largest factor.",
    label_probs=calibrated(CONTEXTUAL),
    prompts=MethodPrompts(requests=contextual_requests),
    part_kinds=("classification",),
    drawn_once="training prompts",
    labelled_examples=lambda n_shots: N_SAMPLES * n_shots,
)

DOMAIN_CALIBRATION = replace(
    CONTEXTUAL_CALIBRATION,
    summary="The label that the query makes likelier than random words of its kind do, by the largest factor.",
    label_probs=calibrated(DOMAIN),
    prompts=MethodPrompts(requests=domain_requests, differ=True),
)


def batch_calibrated(scored: ScoredRequests, definition: Definition) -> pl.LazyFrame:
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
    score = label_score(definition)
    shifted = score - pl.col("log_mean")
    if definition == "released":
        shifted = softmax(score) - pl.col("log_mean").list.eval(pl.element().exp())
    joined = queries.join(means, on=_BATCH, how="left", maintain_order="left")
    return joined.with_columns(label_probs=softmax(shifted)).drop("log_mean", "batch")


BATCH_CALIBRATION = Method(
    summary="The label that the query makes likelier than the queries of its batch do on average.",
    label_probs=batch_calibrated,
    part_kinds=("classification",),
)
