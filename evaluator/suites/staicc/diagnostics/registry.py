"""List the diagnostics of StaICC, the six of the paper in its order."""

from evaluator.metrics.diagnostic import Diagnostic, Reading
from evaluator.report.metric_texts import MetricText
from evaluator.suites.staicc.diagnostics.consistency import sampling_consistency, template_consistency
from evaluator.suites.staicc.diagnostics.label_bias import empirical_bias, prior_bias
from evaluator.suites.staicc.diagnostics.label_noise import gler
from evaluator.suites.staicc.diagnostics.template_accuracy import template_accuracy

_MORE_BIAS, _LESS_BIAS = Reading("nats", "more is more bias"), Reading("nats", "less is more bias")
_STEADIER = Reading("share", "more is steadier")
_LABELS_READ = "above 0 where labels are read"

DIAGNOSTICS: tuple[Diagnostic, ...] = (
    Diagnostic(
        part="contextual",
        measure=prior_bias,
        metric="contextual_bias",
        title="Contextual bias",
        readings={"paper": _MORE_BIAS, "released": _LESS_BIAS},
    ),
    Diagnostic(
        part="domain",
        measure=prior_bias,
        metric="domain_bias",
        title="Domain bias",
        readings={"paper": _MORE_BIAS, "released": _LESS_BIAS},
    ),
    Diagnostic(
        part="normal",
        measure=empirical_bias,
        metric="empirical_bias",
        title="Empirical bias",
        lower_is_better=True,
        readings={"paper": _MORE_BIAS, "released": _MORE_BIAS},
    ),
    Diagnostic(
        part="template",
        measure=template_consistency,
        metric="template_consistency",
        title="Template consistency",
        readings={"paper": _STEADIER, "released": _STEADIER},
        varies="template",
    ),
    Diagnostic(part="template", measure=template_accuracy, varies="template"),
    Diagnostic(
        part="sampling",
        measure=sampling_consistency,
        metric="sampling_consistency",
        title="Sampling consistency",
        readings={"paper": _STEADIER, "released": _STEADIER},
        varies="demonstration_set",
    ),
    Diagnostic(
        part="gler",
        measure=gler,
        metric="gler",
        title="GLER",
        readings={
            "paper": Reading("accuracy per unit of noise", _LABELS_READ),
            "released": Reading("accuracy per unit of the toolkit's axis", _LABELS_READ),
        },
        titles={"gler_macro_f1": "GLER of macro-F1", "gler_true_label_probability": "GLER of true-label probability"},
        varies="noise_rate",
    ),
)
"""Signs and units differ between definitions; diagnostics/__init__.py lists them."""

DIAGNOSTIC_PARTS = tuple(dict.fromkeys(diagnostic.part for diagnostic in DIAGNOSTICS if diagnostic.part != "normal"))
"""Parts whose prompts are altered on purpose, so that no classification metric is measured on them."""

HEADLINES = {diagnostic.metric: diagnostic for diagnostic in DIAGNOSTICS if diagnostic.metric}
"""Metric -> diagnostic, for the six diagnostics of the paper."""

METRIC_TEXTS = {
    metric: MetricText(diagnostic.title, lower_is_better=diagnostic.lower_is_better)
    for metric, diagnostic in HEADLINES.items()
} | {metric: MetricText(title) for diagnostic in DIAGNOSTICS for metric, title in diagnostic.titles.items()}
"""Titles of the diagnostics' metrics on a page."""
