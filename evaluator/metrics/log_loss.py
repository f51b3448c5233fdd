"""Log loss: the mean of minus the log-probability of the true label, in nats. A metric of ours, not StaICC's."""

import math

import polars as pl

from evaluator.metrics.base import N_REQUESTS, Limits, Metric


def _statistics(_n_labels: int) -> dict[str, pl.Expr]:
    # 0 - log p, because -log(1) would be shown as -0.
    return N_REQUESTS | {"log_loss_nats": 0.0 - pl.col("true_label_prob").log()}


def _value(_n_labels: int) -> pl.Expr:
    return pl.col("log_loss_nats") / pl.col("n")


def _limits(_n_labels: int) -> Limits:
    return 0.0, math.inf


LOG_LOSS = Metric(statistics=_statistics, value=_value, interval="log", limits=_limits)
"""Probabilities are over the label space; log(n_labels) for uniform predictions. Infinite where a true label has
probability 0; scikit-learn's `log_loss` replaces such a 0 by the smallest step of the dtype instead.

Under `released` and `published` it is the same formula on the probabilities that this definition measures.

Source: Good 1952, "Rational decisions", the logarithmic score, as in scikit-learn's user guide.
"""
