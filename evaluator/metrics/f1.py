"""Macro-F1: the plain mean of each label's F1."""

import polars as pl

from evaluator.metrics.base import Metric, sum_in_order


def _statistics(n_labels: int) -> dict[str, pl.Expr]:
    gold, pred = pl.col("gold"), pl.col("pred")
    return {
        name: statistic
        for label in range(n_labels)
        for name, statistic in (
            (f"true_positive_{label}", (gold == label) & (pred == label)),
            (f"predicted_{label}", pred == label),
            (f"gold_{label}", gold == label),
        )
    }


def _label_f1(label: int) -> pl.Expr:
    """Return the F1 of a label, 2PR / (P + R) = 2TP / (predicted + gold); 0 where it is neither predicted nor true."""
    predicted_and_gold = pl.col(f"predicted_{label}") + pl.col(f"gold_{label}")
    f1 = 2 * pl.col(f"true_positive_{label}") / predicted_and_gold
    return pl.when(predicted_and_gold > 0).then(f1).otherwise(0.0)


def _value(n_labels: int) -> pl.Expr:
    return sum_in_order(_label_f1(label) for label in range(n_labels)) / n_labels


MACRO_F1 = Metric(statistics=_statistics, value=_value, interval="score")
"""Mean over every label of the space, also those that no request has; scikit-learn omits these without `labels`.

Source: Cho & Inoue 2025 (StaICC), section 3.2: the mean of F1, not F1 of mean precision and mean recall.
"""
