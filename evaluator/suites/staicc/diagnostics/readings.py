"""Titles, units and directions of the six diagnostics of StaICC.

Definitions differ in signs and units: diagnostics/__init__.py says in which.
"""

from typing import NamedTuple

from evaluator.report.metric_texts import MetricText


class Reading(NamedTuple):
    """What a reader needs beside a diagnostic's number."""

    unit: str
    meaning: str  # what more of it, or its sign, says


METRIC_TEXTS = {
    "contextual_bias": MetricText("Contextual bias"),
    "domain_bias": MetricText("Domain bias"),
    "empirical_bias": MetricText("Empirical bias", lower_is_better=True),
    "template_consistency": MetricText("Template consistency"),
    "sampling_consistency": MetricText("Sampling consistency"),
    "gler": MetricText("GLER"),
    "gler_macro_f1": MetricText("GLER of macro-F1"),
    "gler_true_label_probability": MetricText("GLER of true-label probability"),
}
"""How the metrics of disturbed prompts are called on a page."""

SIX = (
    "contextual_bias",
    "domain_bias",
    "empirical_bias",
    "template_consistency",
    "sampling_consistency",
    "gler",
)
"""The diagnostics of the paper, by their names in the tables."""

_BIAS, _CONSISTENCY = Reading("nats", "more is more bias"), Reading("share", "more is steadier")
_READINGS = {
    "contextual_bias": _BIAS,
    "domain_bias": _BIAS,
    "empirical_bias": _BIAS,
    "template_consistency": _CONSISTENCY,
    "sampling_consistency": _CONSISTENCY,
    "gler": Reading("accuracy per unit of noise", "above 0 where labels are read"),
}
_RELEASED = _READINGS | {
    "contextual_bias": Reading("nats", "less is more bias"),
    "domain_bias": Reading("nats", "less is more bias"),
    "gler": Reading("accuracy per unit of the toolkit's axis", "above 0 where labels are read"),
}


def reading(metric: str, definition: str) -> Reading:
    """Return the unit and direction of a diagnostic, one of SIX, under a definition."""
    return (_RELEASED if definition == "released" else _READINGS)[metric]
