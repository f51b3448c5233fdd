"""Register the classification metrics by their names in the tables."""

from evaluator.metrics.accuracy import ACCURACY
from evaluator.metrics.base import Metric
from evaluator.metrics.brier_score import BRIER_SCORE
from evaluator.metrics.calibration_error import EXPECTED_CALIBRATION_ERROR
from evaluator.metrics.f1 import MACRO_F1
from evaluator.metrics.likelihood import TRUE_LABEL_PROBABILITY
from evaluator.metrics.log_loss import LOG_LOSS

METRICS: dict[str, Metric] = {
    "accuracy": ACCURACY,
    "true_label_probability": TRUE_LABEL_PROBABILITY,
    "macro_f1": MACRO_F1,
    "expected_calibration_error": EXPECTED_CALIBRATION_ERROR,
    "brier_score": BRIER_SCORE,
    "log_loss": LOG_LOSS,
}

STAICC_METRICS = ("accuracy", "true_label_probability", "macro_f1", "expected_calibration_error")
"""Those of Cho & Inoue 2025; the others are ours."""

REQUEST_COLUMNS = {"accuracy": "correct", "true_label_probability": "true_label_prob"}
"""Metric that is a mean over requests -> the column of each request's value (per_request.py)."""
