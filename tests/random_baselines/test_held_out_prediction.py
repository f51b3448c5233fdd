"""How well a baseline on one part of the examples foretells what is above chance on the other, from made-up trials."""

import math

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    precision_score,
    recall_score,
    roc_auc_score,
)

from evaluator.random_baselines.held_out import HELD_OUT_PREDICTION, held_out_prediction


def made_trials(n: int = 400) -> pl.DataFrame:
    rng = np.random.default_rng(3)
    tail = np.round(rng.normal(-2, 1, n), 1)  # with ties
    return pl.DataFrame(
        {
            "group": rng.choice(["a", "b"], n),
            "above_standard_on_train": tail < -1,
            "above_max_on_train": tail < -2,
            "log10_standard_tail": tail,
            "log10_max_tail": tail / 2 + rng.normal(0, 0.3, n),
            "above_standard_on_test": rng.random(n) < 1 / (1 + np.exp(tail + 2)),
        }
    )


def test_prediction_is_scored_as_scikit_learn_scores_it() -> None:
    made = made_trials()
    found = held_out_prediction(made, ["group"])
    assert dict(found.schema) == {"group": pl.String()} | dict(HELD_OUT_PREDICTION)
    for (group,), own in made.partition_by("group", as_dict=True).items():
        outcome = own["above_standard_on_test"].to_numpy()
        rows = {row["predictor"]: row for row in found.filter(group=group).iter_rows(named=True)}
        for predictor in ("standard", "max"):
            guess, row = own[f"above_{predictor}_on_train"].to_numpy(), rows[predictor]
            assert row["n_trials"] == len(own)
            assert row["held_out_share"] == pytest.approx(outcome.mean())
            assert row["accuracy"] == pytest.approx(accuracy_score(outcome, guess))
            assert row["precision"] == pytest.approx(precision_score(outcome, guess))
            assert row["recall"] == pytest.approx(recall_score(outcome, guess))
            assert row["auroc"] == pytest.approx(roc_auc_score(outcome, guess))
            assert row["aupr"] == pytest.approx(average_precision_score(outcome, guess))
            score, row = -own[f"log10_{predictor}_tail"].to_numpy(), rows[f"{predictor} tail"]
            assert (row["accuracy"], row["precision"], row["recall"]) == (None, None, None)
            assert row["auroc"] == pytest.approx(roc_auc_score(outcome, score))
            assert row["aupr"] == pytest.approx(average_precision_score(outcome, score))


def test_what_is_nothing_over_nothing_is_not_a_number() -> None:
    made = made_trials().with_columns(above_max_on_train=pl.lit(False), above_standard_on_test=pl.lit(False))
    row = held_out_prediction(made).filter(predictor="max").row(0, named=True)
    assert all(math.isnan(row[name]) for name in ("precision", "recall", "auroc", "aupr"))
    assert row["accuracy"] == 1
