"""How well a score tells two outcomes apart: ROC and precision-recall curves, and the areas under them.

Written out here because scikit-learn is a development dependency, absent where the evaluator is merely installed. The
tests compare these functions with scikit-learn's.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


class Curves(NamedTuple):
    """One point a threshold, from the strictest to the laxest; both curves start before any trial is taken."""

    false_positive_rate: FloatArray
    true_positive_rate: FloatArray  # also the recall
    precision: FloatArray  # 1 at the first point, where nothing is taken


def auroc(score: npt.ArrayLike, outcome: npt.ArrayLike) -> float:
    """Probability that a trial of outcome 1 has a higher score than one of outcome 0, equal scores counting half.

    Args:
        score: [trials], higher for trials that are thought to have outcome 1. A prediction of 0 or 1 is a score too.
        outcome: [trials], 0 or 1, or booleans.

    Returns:
        The area, NaN where all trials have one outcome. Source: Hanley & McNeil 1982.
    """
    curves = ranking_curves(score, outcome)
    return float(np.trapezoid(curves.true_positive_rate, curves.false_positive_rate))


def average_precision(score: npt.ArrayLike, outcome: npt.ArrayLike) -> float:
    """Precision at each threshold, weighted by the recall that is gained there: AUPR without interpolation.

    Arguments as for `auroc`. NaN where no trial has outcome 1. The same step sum as scikit-learn's
    `average_precision_score`, which Yauney & Mimno 2024 report; joining the points by lines would be too optimistic.
    """
    curves = ranking_curves(score, outcome)
    return float(np.sum(np.diff(curves.true_positive_rate) * curves.precision[1:]))


def ranking_curves(score: npt.ArrayLike, outcome: npt.ArrayLike) -> Curves:
    """The ROC curve and the precision-recall curve; trials of equal score are taken together. Rates 0 / 0 are NaN."""
    scores, outcomes = np.asarray(score, dtype=np.float64), np.asarray(outcome, dtype=np.bool_)
    assert scores.shape == outcomes.shape, "one score a trial"
    assert not np.isnan(scores).any(), "a score that is not a number has no rank"
    _, group = np.unique(-scores, return_inverse=True)
    n_groups = int(group.max()) + 1 if len(group) else 0
    taken = np.concatenate([[0], np.cumsum(np.bincount(group, minlength=n_groups))])
    right = np.concatenate([[0.0], np.cumsum(np.bincount(group, weights=outcomes, minlength=n_groups))])
    with np.errstate(invalid="ignore"):
        return Curves(
            false_positive_rate=(taken - right) / np.float64(len(scores) - right[-1]),
            true_positive_rate=right / right[-1],
            precision=np.concatenate([[1.0], right[1:] / taken[1:]]),
        )
