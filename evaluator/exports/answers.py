"""Join predictions with their prompts, for formats that have a row for each request."""

from collections.abc import Iterator

import polars as pl

from evaluator.exports.base import AnsweredGroup
from evaluator.metrics.per_request import per_request_columns, prediction_groups
from evaluator.report.terminal import first_definition

ANSWERS = pl.Schema(
    {
        "position": pl.Int64(),  # as in schemas.PREDICTIONS
        "query_id": pl.Int64(),
        "demonstration_set": pl.Int64(),
        "label_names": pl.List(pl.String()),
        "gold": pl.Int64(),
        "pred": pl.Int64(),
        "correct": pl.Boolean(),
        "true_label_prob": pl.Float64(),  # null, as the two lists below, where only labels are known
        "label_probs": pl.List(pl.Float64()),  # as the definition measures them
        "prompt": pl.String(),
        # One text and one number of nats for each label; null where the prompt is not scored on the labels, because the
        # method predicts from hidden states or from the likelihood of texts.
        "continuations": pl.List(pl.String()),
        "label_log_likelihoods": pl.List(pl.Float64()),
    }
)


PROBABILITIES = ("true_label_prob", "label_probs", "label_log_likelihoods")
"""Columns that are null where only labels are known."""


def answered_groups(predictions: pl.DataFrame, metrics: pl.DataFrame, prompts: pl.DataFrame) -> Iterator[AnsweredGroup]:
    """Yield the answers of every part that has an accuracy, under the first measured definition.

    Args:
        predictions: schemas.PREDICTIONS.
        metrics: schemas.METRICS.
        prompts: prompt_id, prompt, continuations and label_log_likelihoods, one row a prompt.
    """
    judged = first_definition(metrics.filter(metric="accuracy"))
    # Imported labels come without probabilities.
    unknown = [] if "true_label_probability" in metrics["metric"] else [*PROBABILITIES]
    rows = predictions.join(judged.select("suite", "part").unique(), on=["suite", "part"], how="semi")
    for definition in judged["definition"].unique():
        for group in prediction_groups(rows, definition):
            measured = per_request_columns(group.rows, group.n_labels, definition, group.where)
            label_probs = pl.concat_list(f"p{label}" for label in range(group.n_labels))
            answers = (
                group.rows.select("position", "query_id", "demonstration_set", "label_names", "prompt_id")
                .hstack(measured.select("gold", "pred", "correct", "true_label_prob", label_probs=label_probs))
                .join(prompts, on="prompt_id", how="left", maintain_order="left")
            )
            of_labels = (pl.col("label_log_likelihoods").list.len() == group.n_labels) & (
                pl.col("continuations").list.len() == group.n_labels
            )
            scored = [pl.when(of_labels).then(pl.col(name)) for name in ("continuations", "label_log_likelihoods")]
            answers = answers.with_columns(scored).with_columns(pl.lit(None).alias(name) for name in unknown)
            yield AnsweredGroup(group.key, answers.select(ANSWERS.names()).cast(ANSWERS))
