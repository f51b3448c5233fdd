"""Register the classification metrics by their names in the tables."""

from evaluator.metrics.accuracy import ACCURACY
from evaluator.metrics.base import Metric
from evaluator.metrics.calibration_error import EXPECTED_CALIBRATION_ERROR
from evaluator.metrics.f1 import MACRO_F1
from evaluator.metrics.likelihood import TRUE_LABEL_PROBABILITY

METRICS: dict[str, Metric] = {
    "accuracy": ACCURACY,
    "true_label_probability": TRUE_LABEL_PROBABILITY,
    "macro_f1": MACRO_F1,
    "expected_calibration_error": EXPECTED_CALIBRATION_ERROR,
}
