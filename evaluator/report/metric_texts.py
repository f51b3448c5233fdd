"""Define the titles of metrics on a page, and which metrics are better low."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class MetricText(NamedTuple):
    """Title and direction of a metric on a page."""

    title: str
    lower_is_better: bool = False
    is_headline: bool = True  # False: shown in a folded table, and not compared between models


METRIC_TEXTS = {
    "accuracy": MetricText("Accuracy"),
    "true_label_probability": MetricText("True-label probability"),
    "macro_f1": MetricText("Macro-F1"),
    "expected_calibration_error": MetricText("Calibration error", lower_is_better=True),
    "brier_score": MetricText("Brier score", lower_is_better=True, is_headline=False),
    "brier_reliability": MetricText("Reliability (Brier)", lower_is_better=True, is_headline=False),
    "brier_resolution": MetricText("Resolution (Brier)", is_headline=False),
    "brier_uncertainty": MetricText("Uncertainty (Brier)", is_headline=False),
    "log_loss": MetricText("Log loss, nats", lower_is_better=True, is_headline=False),
    "log_loss_calibration": MetricText("Calibration (log loss), nats", lower_is_better=True, is_headline=False),
    "log_loss_refinement": MetricText("Refinement (log loss), nats", lower_is_better=True, is_headline=False),
    "label_mass_median": MetricText("Label mass, median", is_headline=False),
    "label_mass_5th_percentile": MetricText("Label mass, 5th percentile", is_headline=False),
}
"""The core metrics, in the order of their columns."""


@dataclass(frozen=True)
class MetricTexts:
    """Titles of core metrics and those of suites; a metric without title is shown by its name, after the others."""

    named: Mapping[str, MetricText] = field(default_factory=lambda: METRIC_TEXTS)

    def title(self, metric: str) -> str:
        return self.named[metric].title if metric in self.named else metric.replace("_", " ").capitalize()

    def lower_is_better(self, metric: str) -> bool:
        return metric.endswith(("_error", "_loss")) or (metric in self.named and self.named[metric].lower_is_better)

    def is_headline(self, metric: str) -> bool:
        return metric not in self.named or self.named[metric].is_headline

    def in_order(self, metrics: Iterable[str]) -> tuple[str, ...]:
        present = set(metrics)
        return (*(name for name in self.named if name in present), *sorted(present - self.named.keys()))
