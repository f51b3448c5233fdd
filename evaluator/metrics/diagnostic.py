"""What a diagnostic is: one record says what is measured of a part, how its groups differ, and how its numbers read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from evaluator.metrics.per_request import PredictionGroup
from evaluator.metrics.values import Measured
from evaluator.schemas import Definition


class Reading(NamedTuple):
    """What a reader needs next to a diagnostic's number."""

    unit: str
    meaning: str  # what more of it, or its sign, says


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """A measure of one part that accuracy alone does not show."""

    part: str
    measure: Callable[[PredictionGroup], dict[str, Measured]]
    """All predictions of the part and one dataset by one method, under `paper` or `released`, to metrics by name."""

    metric: str = ""  # the headline among these metrics; empty: none of them is
    title: str = ""  # of the headline
    lower_is_better: bool = False
    readings: Mapping[Definition, Reading] = field(default_factory=dict)  # of the headline
    titles: Mapping[str, str] = field(default_factory=dict)  # of other metrics
    varies: str | None = None  # column of schemas.GROUP_METRICS that tells the part's groups apart
