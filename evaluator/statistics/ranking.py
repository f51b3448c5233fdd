"""Compute ROC and precision-recall curves of a score that predicts one of two outcomes, and the areas under them.

These are implemented here because scikit-learn is only a development dependency. The tests compare them with
scikit-learn's.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evaluator.arrays import Floats


class Curves(NamedTuple):
    """Points of both curves: one for a threshold above all scores, then one for each score, from the highest down."""

    false_positive_rate: Floats
    true_positive_rate: Floats  # also the recall
    precision: Floats  # 1 at the first point, where no trial is predicted to have outcome 1


def auroc(score: npt.ArrayLike, outcome: npt.ArrayLike) -> float:
    """Return the probability that a trial of outcome 1 scores higher than one of outcome 0; equal scores count half.

    Args:
        score: [trials], higher for trials that are predicted to have outcome 1. A prediction of 0 or 1 is a score too.
        outcome: [trials], 0 or 1, or booleans.

    Returns:
        The area, NaN where all trials have one outcome. Source: Hanley & McNeil 1982.
    """
    curves = ranking_curves(score, outcome)
    return float(np.trapezoid(curves.true_positive_rate, curves.false_positive_rate))


def average_precision(score: npt.ArrayLike, outcome: npt.ArrayLike) -> float:
    """Return the mean precision over thresholds, weighted by the increase in recall: AUPR without interpolation.

    The arguments are those of `auroc`. NaN where no trial has outcome 1. This is the sum over steps of scikit-learn's
    `average_precision_score`, which Yauney & Mimno 2024 report; linear interpolation would be too optimistic.
    """
    curves = ranking_curves(score, outcome)
    return float(np.sum(np.diff(curves.true_positive_rate) * curves.precision[1:]))


def ranking_curves(score: npt.ArrayLike, outcome: npt.ArrayLike) -> Curves:
    """Compute the ROC and the precision-recall curve, one point for equal scores. Rates 0 / 0 are NaN."""
    scores, outcomes = np.asarray(score, dtype=np.float64), np.asarray(outcome, dtype=np.bool_)
    assert scores.shape == outcomes.shape, "one score a trial"
    assert not np.isnan(scores).any(), "a score that is not a number has no rank"
    # Equal scores form one group; groups are numbered from the highest score down.
    _, group = np.unique(-scores, return_inverse=True)
    n_groups = int(group.max()) + 1 if len(group) else 0
    # Trials, and trials of outcome 1, at or above each threshold.
    positives = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=n_groups))])
    true_positives = np.concatenate([[0.0], np.cumsum(np.bincount(group, weights=outcomes, minlength=n_groups))])
    with np.errstate(invalid="ignore"):
        return Curves(
            false_positive_rate=(positives - true_positives) / np.float64(len(scores) - true_positives[-1]),
            true_positive_rate=true_positives / true_positives[-1],
            precision=np.concatenate([[1.0], true_positives[1:] / positives[1:]]),
        )
