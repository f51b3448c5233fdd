"""Measure how well "above the baseline" predicts that held-out accuracy is above chance, one row a predictor.

ROC and precision-recall curves are implemented here because scikit-learn is only a development dependency; the tests
compare them with scikit-learn's.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.arrays import Floats

HELD_OUT_PREDICTION = pl.Schema(  # after the columns that rows are grouped by
    {
        "predictor": pl.String(),  # "standard" | "max": above that baseline; "standard tail" | "max tail": a score
        "n_trials": pl.Int64(),
        "held_out_share": pl.Float64(),  # of trials whose held-out accuracy is above the standard baseline
        "accuracy": pl.Float64(),  # this and the next two are null for scores, and NaN for 0 / 0
        "precision": pl.Float64(),
        "recall": pl.Float64(),
        "auroc": pl.Float64(),  # NaN where all trials have one outcome
        "aupr": pl.Float64(),  # average precision; NaN where no trial is above the baseline
    }
)

VERDICTS = {"standard": "above_standard_on_train", "max": "above_max_on_train"}
SCORES = {"standard tail": "log10_standard_tail", "max tail": "log10_max_tail"}
"""Predictor -> column of HELD_OUT_TRIALS; the smaller a tail, the stronger the evidence against guessing."""

OUTCOME = "above_standard_on_test"


def held_out_prediction(trials: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return accuracy, precision, recall, AUROC and AUPR of predicting that held-out accuracy is above chance.

    Args:
        trials: HELD_OUT_TRIALS; only the predictors' columns, the outcome and `by` are read.
        by: columns to group by; none for one row a predictor.

    Returns:
        The `by` columns and HELD_OUT_PREDICTION, groups in order of first appearance. Verdicts are predictions and,
        taken as scores of 0 and 1, have areas as well; tails are scores only. Scores by the distribution function would
        give the same areas, because it is monotone in the tail.

    Source: Yauney & Mimno 2024, section 5.2, figure 5 and tables 3 and 4.
    """
    groups = trials.partition_by(by, as_dict=True, maintain_order=True) if by else {(): trials}
    rows = [
        dict(zip(by, key, strict=True)) | row
        for key, group in groups.items()
        if group.height
        for row in _predictors(group)
    ]
    return pl.DataFrame(rows, schema={name: trials.schema[name] for name in by} | dict(HELD_OUT_PREDICTION))


def _predictors(trials: pl.DataFrame) -> list[dict[str, str | int | float | None]]:
    outcome = trials[OUTCOME].cast(pl.Boolean)
    shared = {"n_trials": trials.height, "held_out_share": float(outcome.sum()) / trials.height}
    rows: list[dict[str, str | int | float | None]] = []
    for predictor, column in VERDICTS.items():
        predicted = trials[column].cast(pl.Boolean)
        rows.append({"predictor": predictor, **shared, **_scores(predicted, outcome), **_areas(predicted, outcome)})
    for predictor, column in SCORES.items():
        undefined = dict.fromkeys(("accuracy", "precision", "recall"))
        rows.append({"predictor": predictor, **shared, **undefined, **_areas(-trials[column], outcome)})
    return rows


def _scores(predicted: pl.Series, outcome: pl.Series) -> dict[str, float]:
    hits = int((predicted & outcome).sum())
    counts = {"accuracy": (int((predicted == outcome).sum()), len(outcome))}
    counts |= {"precision": (hits, int(predicted.sum())), "recall": (hits, int(outcome.sum()))}
    return {name: count / total if total else float("nan") for name, (count, total) in counts.items()}


def _areas(score: pl.Series, outcome: pl.Series) -> dict[str, float]:
    scores, outcomes = score.to_numpy(), outcome.to_numpy()
    return {"auroc": auroc(scores, outcomes), "aupr": average_precision(scores, outcomes)}


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
