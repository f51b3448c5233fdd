"""Describe a diagnostic as a record: the part it measures, its metrics, and how their values read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from evaluator.metrics.per_request import PredictionGroup
from evaluator.metrics.values import Measured
from evaluator.schemas import Definition


class Reading(NamedTuple):
    """Unit and direction of a diagnostic's value, for a reader."""

    unit: str
    meaning: str  # what a higher value, or its sign, means


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """A measure of one part, other than the classification metrics."""

    part: str
    measure: Callable[[PredictionGroup], dict[str, Measured]]
    """Returns metrics by name of the predictions on one dataset by one method, under `paper` or `released`."""

    metric: str = ""  # the headline among these metrics; empty without one
    title: str = ""  # of the headline
    lower_is_better: bool = False
    readings: Mapping[Definition, Reading] = field(default_factory=dict)  # of the headline
    titles: Mapping[str, str] = field(default_factory=dict)  # of other metrics
    varies: str | None = None  # column of schemas.GROUP_METRICS that the part varies
