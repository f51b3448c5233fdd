"""Metrics of in-context classification, with 95% intervals."""

from evaluator.metrics.classification import classification_metrics
from evaluator.metrics.diagnosed import diagnosed
from evaluator.metrics.registry import METRICS
from evaluator.metrics.reliability import confusion_table, label_spaces_table, reliability_table
from evaluator.metrics.table import metrics_table

__all__ = [
    "METRICS",
    "classification_metrics",
    "confusion_table",
    "diagnosed",
    "label_spaces_table",
    "metrics_table",
    "reliability_table",
]
