"""Average the label probabilities of groups of scored requests, which several calibration methods use as the bias."""

from collections.abc import Sequence

import polars as pl

from evaluator.methods.vanilla import LABEL_SCORE
from evaluator.schemas import Definition


def log_mean_label_probs(scored: pl.LazyFrame, by: Sequence[str], definition: Definition) -> pl.LazyFrame:
    """Return the columns `by` and `log_mean`: List[f64] by label, the log of the mean vanilla probability, nats.

    A mean that float64 would round to zero stays finite. The requests of a group share one label space.
    """
    log_probs = log_softmax(pl.col(LABEL_SCORE[definition]))
    each_label = (
        scored.sort("position")
        .select(*by, log_prob=log_probs, label=pl.int_ranges(pl.col("label_names").list.len()))
        .explode("log_prob", "label")
    )
    # The log of the mean of exp(log_prob); less the largest, or all terms could underflow to zero.
    largest, summed = pl.element().max(), (pl.element() - pl.element().max()).exp().sum()
    log_mean = pl.col("log_prob").list.eval(largest + (summed / pl.element().len()).log()).list.first()
    # Collected as lists first: a list is summed in order, but a group in parts that depend on the number of cores.
    of_label = each_label.group_by(*by, "label", maintain_order=True).agg("log_prob").with_columns(log_mean=log_mean)
    return of_label.sort(*by, "label").group_by(by, maintain_order=True).agg("log_mean")


def log_softmax(scores: pl.Expr) -> pl.Expr:
    """Normalise each list of log-likelihoods into log-probabilities, nats; shape is kept."""
    scaled = pl.element() - pl.element().max()
    return scores.list.eval(scaled - scaled.exp().sum().log())
