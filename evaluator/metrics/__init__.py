"""Metrics of in-context classification, with 95% intervals."""

from evaluator.metrics.classification import METRICS, classification_metrics
from evaluator.metrics.groups import label_spaces_table, measured_groups
from evaluator.metrics.table import confusion_table, group_metrics_table, metrics_table, reliability_table

__all__ = [
    "METRICS",
    "classification_metrics",
    "confusion_table",
    "group_metrics_table",
    "label_spaces_table",
    "measured_groups",
    "metrics_table",
    "reliability_table",
]
