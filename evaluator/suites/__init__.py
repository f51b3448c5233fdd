"""The suites: what a benchmark requests, measures and reports. Name -> suite."""

from collections.abc import Iterable
from typing import Any

from evaluator.config import LabelBoundary
from evaluator.errors import ConfigError
from evaluator.methods import METHODS
from evaluator.methods.base import Method
from evaluator.suites.base import Suite
from evaluator.suites.in_context_pvi.suite import IN_CONTEXT_PVI
from evaluator.suites.prompt_search.suite import PROMPT_SEARCH
from evaluator.suites.staicc.bias import STAICC_BIAS
from evaluator.suites.staicc.demonstrations import STAICC_DEMONSTRATIONS
from evaluator.suites.staicc.normal import STAICC_NORMAL
from evaluator.suites.staicc.robustness import STAICC_ROBUSTNESS

SUITES: dict[str, Suite[Any]] = {
    "staicc-normal": STAICC_NORMAL,
    "staicc-bias": STAICC_BIAS,
    "staicc-robustness": STAICC_ROBUSTNESS,
    "staicc-demonstrations": STAICC_DEMONSTRATIONS,
    "prompt-search": PROMPT_SEARCH,
    "pvi": IN_CONTEXT_PVI,
}

SUITE_GROUPS: dict[str, tuple[str, ...]] = {"staicc": ("staicc-normal", "staicc-bias", "staicc-robustness")}
"""Names that stand for several suites."""


def methods_of(suites: Iterable[str]) -> dict[str, Method]:
    """Return the methods that any suite can use, then those of these suites alone."""
    return METHODS | {name: method for suite in suites for name, method in SUITES[suite].own_methods.items()}


def default_label_boundary(suites: Iterable[str]) -> LabelBoundary:
    """Return where labels begin in a run that does not say so. Raises ConfigError where its suites differ."""
    boundaries = {name: SUITES[name].label_boundary for name in suites}
    if len(set(boundaries.values())) > 1:
        stated = ", ".join(f"{name}: {boundary}" for name, boundary in boundaries.items())
        raise ConfigError(f"These suites begin labels in different places ({stated}). Name one with --label-boundary.")
    return next(iter(boundaries.values()))
