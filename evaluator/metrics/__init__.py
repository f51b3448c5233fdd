"""Metrics of in-context classification, with 95% intervals."""

from evaluator.metrics.classification import METRICS, classification_metrics

__all__ = ["METRICS", "classification_metrics"]
