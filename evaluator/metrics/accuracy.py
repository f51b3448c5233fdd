"""Accuracy: the share of requests whose most probable label is the true one; ties go to the first label."""

import polars as pl

from evaluator.metrics.base import N_REQUESTS, Metric


def _statistics(_n_labels: int) -> dict[str, pl.Expr]:
    return N_REQUESTS | {"correct": pl.col("correct")}


def _value(_n_labels: int) -> pl.Expr:
    return pl.col("correct") / pl.col("n")


ACCURACY = Metric(statistics=_statistics, value=_value, interval="score")
"""Source: Cho & Inoue 2025 (StaICC), section 3.2."""
