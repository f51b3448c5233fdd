"""True-label probability: the mean probability given to the true label; 1 / n_labels for uniform predictions."""

import polars as pl

from evaluator.metrics.base import N_REQUESTS, Metric


def _statistics(_n_labels: int) -> dict[str, pl.Expr]:
    return N_REQUESTS | {"true_label_prob": pl.col("true_label_prob")}


def _value(_n_labels: int) -> pl.Expr:
    return pl.col("true_label_prob") / pl.col("n")


TRUE_LABEL_PROBABILITY = Metric(statistics=_statistics, value=_value, interval="score")
"""Source: Cho & Inoue 2025 (StaICC), section 3.2. A mean of probabilities, not the exponential of a mean logarithm."""
