"""High-throughput evaluation of in-context classification. Importing this loads neither torch nor vllm."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "classification_metrics",
    "max_random_accuracy",
    "max_random_tail",
    "read_requests",
    "read_scores",
]

if TYPE_CHECKING:
    from evaluator.metrics import classification_metrics
    from evaluator.random_baselines import max_random_accuracy, max_random_tail
    from evaluator.run.folder import read_requests, read_scores


def __getattr__(name: str) -> Any:
    # Loaded on first use, so that `evaluator --help` does not wait for Polars.
    if name == "classification_metrics":
        from evaluator.metrics import classification_metrics

        return classification_metrics
    if name in ("max_random_accuracy", "max_random_tail"):
        from evaluator import random_baselines

        return getattr(random_baselines, name)
    if name in ("read_requests", "read_scores"):
        from evaluator.run import folder

        return getattr(folder, name)
    raise AttributeError(f"module 'evaluator' has no attribute {name!r}")
