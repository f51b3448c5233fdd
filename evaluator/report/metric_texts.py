"""Titles of metrics on a page, and which of them are better low."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class MetricText(NamedTuple):
    """Title and direction of a metric on a page."""

    title: str
    lower_is_better: bool = False


METRIC_TEXTS = {
    "accuracy": MetricText("Accuracy"),
    "true_label_probability": MetricText("True-label probability"),
    "macro_f1": MetricText("Macro-F1"),
    "expected_calibration_error": MetricText("Calibration error", lower_is_better=True),
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

    def in_order(self, metrics: Iterable[str]) -> tuple[str, ...]:
        present = set(metrics)
        return (*(name for name in self.named if name in present), *sorted(present - self.named.keys()))
