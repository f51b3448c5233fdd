"""Arrange paired differences as tables for a page. Nothing is computed here."""

from collections.abc import Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import polars as pl

from evaluator.methods import REFERENCE_METHOD
from evaluator.metrics.classification import REQUEST_COLUMNS
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.statistics.paired import LEVEL

JUDGED_BY = "accuracy"

MAX_PAIRS = 15
"""Largest number of pairs of models for which differences by dataset are shown: the pairs of six models."""


class Difference(NamedTuple):
    """A paired difference with its 95% interval and test."""

    value: float
    ci_low: float | None
    ci_high: float | None
    n_queries: int
    p_value: float
    p_holm: float
    n_tests: int
    test: str
    min_detectable: float

    @property
    def sign(self) -> Literal["positive", "negative", "unclear"]:
        """Return the sign of the difference, or "unclear" where it could be 0 at the 5% level after correction."""
        if self.p_holm > LEVEL:
            return "unclear"
        return "positive" if self.value > 0 else "negative"


class Side(NamedTuple):
    """One side of a difference: a model under a method."""

    model: str
    method: str


Row = tuple[str, list[Difference | None]]
"""A model or a dataset, and its differences in the order of the table's columns."""


class DifferenceTable(NamedTuple):
    """Differences of methods to vanilla, [model, method], or between two models, [dataset, metric]."""

    columns: list[str]
    rows: list[Row]


class Pair(NamedTuple):
    """The differences between two models under vanilla."""

    a: str
    b: str
    mean: Difference
    datasets: DifferenceTable  # the mean over them last


class Differences:
    """The differences of one part under one definition, looked up by both sides."""

    def __init__(self, differences: pl.DataFrame) -> None:
        columns = ["dataset", "metric", "model_a", "method_a", "model_b", "method_b"]
        numbers = ("difference", *Difference._fields[1:])
        rows = differences.select(*columns, *numbers).iter_rows()
        self._differences = {
            (dataset, metric, Side(*between[:2]), Side(*between[2:4])): Difference(*between[4:])
            for dataset, metric, *between in rows
        }

    def between(
        self, a: Side, b: Side, *, metric: str = JUDGED_BY, dataset: str = MEAN_OVER_DATASETS
    ) -> Difference | None:
        """Return `a` minus `b`, or None where it was not computed in this order."""
        return self._differences.get((dataset, metric, a, b))

    def is_best(self, model: str, method: str, models: Sequence[str]) -> bool:
        """Return whether the model's mean accuracy is significantly above that of every other model."""
        place = list(models).index(model)
        side = Side(model, method)
        # Differences are stored as earlier minus later model.
        to_earlier = [self.between(Side(name, method), side) for name in models[:place]]
        to_later = [self.between(side, Side(name, method)) for name in models[place + 1 :]]
        earlier = {difference.sign for difference in to_earlier if difference}
        later = {difference.sign for difference in to_later if difference}
        return bool(earlier or later) and earlier <= {"negative"} and later <= {"positive"}


def against_vanilla(differences: Differences, models: Sequence[str], methods: Sequence[str]) -> DifferenceTable:
    """Return the gain in accuracy of each method over vanilla, within each model."""
    others = [method for method in methods if method != REFERENCE_METHOD]
    rows = [
        (model, [differences.between(Side(model, method), Side(model, REFERENCE_METHOD)) for method in others])
        for model in models
    ]
    return DifferenceTable(others, rows)


def pairs_of_models(differences: Differences, models: Sequence[str], datasets: Sequence[str]) -> list[Pair]:
    """Return the differences of every two models that were both measured, in the order of `models`."""
    pairs = [(a, b, differences.between(*_sides(a, b))) for a, b in combinations(models, 2)]
    return [Pair(a, b, mean, _by_dataset(differences, a, b, datasets)) for a, b, mean in pairs if mean]


def _by_dataset(differences: Differences, a: str, b: str, datasets: Sequence[str]) -> DifferenceTable:
    rows = [
        (dataset, [differences.between(*_sides(a, b), metric=metric, dataset=dataset) for metric in REQUEST_COLUMNS])
        for dataset in (*datasets, MEAN_OVER_DATASETS)
    ]
    return DifferenceTable(list(REQUEST_COLUMNS), [row for row in rows if any(row[1])])


def _sides(a: str, b: str) -> tuple[Side, Side]:
    return Side(a, REFERENCE_METHOD), Side(b, REFERENCE_METHOD)
