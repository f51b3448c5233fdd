"""Measure how well "above the baseline" predicts that held-out accuracy is above chance, one row a predictor."""

from collections.abc import Sequence

import polars as pl

from evaluator.statistics.ranking import auroc, average_precision

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
    return {
        "accuracy": _ratio(int((predicted == outcome).sum()), len(outcome)),
        "precision": _ratio(hits, int(predicted.sum())),
        "recall": _ratio(hits, int(outcome.sum())),
    }


def _areas(score: pl.Series, outcome: pl.Series) -> dict[str, float]:
    scores, outcomes = score.to_numpy(), outcome.to_numpy()
    return {"auroc": auroc(scores, outcomes), "aupr": average_precision(scores, outcomes)}


def _ratio(count: int, of: int) -> float:
    return count / of if of else float("nan")
