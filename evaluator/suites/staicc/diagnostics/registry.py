"""What is measured of a part, besides the metrics of classification: part -> diagnostics."""

from collections.abc import Callable

from evaluator.metrics.per_request import PredictionGroup
from evaluator.metrics.values import Measured
from evaluator.suites.staicc.diagnostics.consistency import sampling_consistency, template_consistency
from evaluator.suites.staicc.diagnostics.label_bias import empirical_bias, prior_bias
from evaluator.suites.staicc.diagnostics.label_noise import gler
from evaluator.suites.staicc.diagnostics.template_accuracy import template_accuracy

Diagnostic = Callable[[PredictionGroup], dict[str, Measured]]
"""All predictions of one part and dataset by one method under `paper` or `released`, to metrics by name."""

DIAGNOSTICS: dict[str, tuple[Diagnostic, ...]] = {
    "normal": (empirical_bias,),
    "contextual": (prior_bias,),
    "domain": (prior_bias,),
    "gler": (gler,),
    "template": (template_consistency, template_accuracy),
    "sampling": (sampling_consistency,),
}
