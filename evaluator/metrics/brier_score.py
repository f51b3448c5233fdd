"""Brier score: the mean squared distance of label probabilities from the true label. A metric of ours, not StaICC's."""

import polars as pl

from evaluator.metrics.base import N_REQUESTS, Limits, Metric


def _statistics(_n_labels: int) -> dict[str, pl.Expr]:
    return N_REQUESTS | {"squared_error": pl.col("squared_error")}


def _value(_n_labels: int) -> pl.Expr:
    return pl.col("squared_error") / pl.col("n")


def _limits(_n_labels: int) -> Limits:
    return 0.0, 2.0


BRIER_SCORE = Metric(statistics=_statistics, value=_value, interval="score", limits=_limits)
"""The sum over all labels of (probability - 1 for the true label, 0 for others)^2, averaged over requests: 0 to 2, and
(n_labels - 1) / n_labels for uniform predictions. With two labels it is twice the score of one label's probability
alone, which scikit-learn's `brier_score_loss` returns unless `scale_by_half=False`.

Under `released` and `published` it is the same formula on the probabilities that this definition measures.

Source: Brier 1950, "Verification of forecasts expressed in terms of probability", as in scikit-learn's user guide.
"""
