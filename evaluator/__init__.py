"""High-throughput evaluation of in-context classification. Importing this loads neither torch nor vllm."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluator.api.classifier import InContextClassifier as InContextClassifier
    from evaluator.api.runs import compare_runs as compare_runs
    from evaluator.api.runs import evaluate as evaluate
    from evaluator.api.runs import open_run as open_run
    from evaluator.metrics import classification_metrics as classification_metrics
    from evaluator.random_baselines import max_random_accuracy as max_random_accuracy
    from evaluator.random_baselines import max_random_tail as max_random_tail
    from evaluator.run.folder import read_requests as read_requests
    from evaluator.run.folder import read_scores as read_scores
    from evaluator.runs.threshold import apply_thresholds as apply_thresholds
    from evaluator.runs.threshold import threshold_report as threshold_report

__version__ = "0.1.0"
_NAMES = {
    "api.classifier": ("InContextClassifier",),
    "api.runs": ("compare_runs", "evaluate", "open_run"),
    "metrics": ("classification_metrics",),
    "random_baselines": ("max_random_accuracy", "max_random_tail"),
    "run.folder": ("read_requests", "read_scores"),
    "runs.threshold": ("apply_thresholds", "threshold_report"),
}
_MODULES = {name: f"evaluator.{module}" for module, names in _NAMES.items() for name in names}
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    # Loaded on first use, so that `evaluator --help` does not wait for Polars.
    if name in _MODULES:
        if sys.flags.optimize > 1:
            from evaluator.errors import ConfigError

            raise ConfigError(
                f"evaluator.{name}: Python's -OO takes docstrings away, which libraries of figures read. Start Python "
                "with -O, or with PYTHONOPTIMIZE=1."
            )
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'evaluator' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
