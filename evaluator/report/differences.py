"""Paired differences to the tables a reader sees. Numbers are laid out here, never computed."""

from collections.abc import Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import polars as pl

from evaluator.methods import REFERENCE_METHOD
from evaluator.schemas import MEAN_OVER_DATASETS

JUDGED_BY = "accuracy"
DATASET_METRICS = (JUDGED_BY, "true_label_probability")
"""Metrics whose differences are shown for every dataset."""

MOST_PAIRS = 15
"""Pairs of models up to which every dataset of each is shown: those of six models."""


class Difference(NamedTuple):
    """A paired difference with its 95% interval."""

    value: float
    ci_low: float | None
    ci_high: float | None
    n_queries: int

    @property
    def told(self) -> Literal["above", "below", "no"]:
        """On which side of 0 the whole interval lies."""
        if self.ci_low is None or self.ci_high is None or self.ci_low <= 0 <= self.ci_high:
            return "no"
        return "above" if self.ci_low > 0 else "below"


class Side(NamedTuple):
    """What stands on one side of a difference."""

    model: str
    method: str


Row = tuple[str, list[Difference | None]]
"""A model or a dataset, and its differences in the order of the table's columns."""


class DifferenceTable(NamedTuple):
    """Methods against vanilla, a row a model, a column a method; or two models, a row a dataset, a column a metric."""

    columns: list[str]
    rows: list[Row]


class Pair(NamedTuple):
    """Two models under vanilla."""

    a: str
    b: str
    mean: Difference
    datasets: DifferenceTable  # the mean over them last


class Differences:
    """The differences of one suite's part under one definition, looked up by what they are between."""

    def __init__(self, differences: pl.DataFrame) -> None:
        columns = ["dataset", "metric", "model_a", "method_a", "model_b", "method_b"]
        rows = differences.select(*columns, *("difference", "ci_low", "ci_high", "n_queries")).iter_rows()
        self._found = {
            (dataset, metric, Side(*between[:2]), Side(*between[2:4])): Difference(*between[4:])
            for dataset, metric, *between in rows
        }

    def between(
        self, a: Side, b: Side, *, metric: str = JUDGED_BY, dataset: str = MEAN_OVER_DATASETS
    ) -> Difference | None:
        """`a` less `b`, where it was computed in this order."""
        return self._found.get((dataset, metric, a, b))

    def is_best(self, model: str, method: str, models: Sequence[str]) -> bool:
        """Whether the mean accuracy is above every other model's, the whole interval of each difference."""
        place = list(models).index(model)
        own = Side(model, method)
        behind = [self.between(Side(name, method), own) for name in models[:place]]
        ahead = [self.between(own, Side(name, method)) for name in models[place + 1 :]]
        told = [found.told for found in behind if found], [found.told for found in ahead if found]
        return any(told) and set(told[0]) <= {"below"} and set(told[1]) <= {"above"}


def against_vanilla(found: Differences, models: Sequence[str], methods: Sequence[str]) -> DifferenceTable:
    """What each method gains in accuracy over vanilla, within each model."""
    others = [method for method in methods if method != REFERENCE_METHOD]
    rows = [
        (model, [found.between(Side(model, method), Side(model, REFERENCE_METHOD)) for method in others])
        for model in models
    ]
    return DifferenceTable(others, rows)


def pairs_of_models(found: Differences, models: Sequence[str], datasets: Sequence[str]) -> list[Pair]:
    """Every two models that were both measured, in the order given."""
    pairs = [(a, b, found.between(*_sides(a, b))) for a, b in combinations(models, 2)]
    return [Pair(a, b, mean, _by_dataset(found, a, b, datasets)) for a, b, mean in pairs if mean]


def _by_dataset(found: Differences, a: str, b: str, datasets: Sequence[str]) -> DifferenceTable:
    rows = [
        (dataset, [found.between(*_sides(a, b), metric=metric, dataset=dataset) for metric in DATASET_METRICS])
        for dataset in (*datasets, MEAN_OVER_DATASETS)
    ]
    return DifferenceTable(list(DATASET_METRICS), [row for row in rows if any(row[1])])


def _sides(a: str, b: str) -> tuple[Side, Side]:
    return Side(a, REFERENCE_METHOD), Side(b, REFERENCE_METHOD)
