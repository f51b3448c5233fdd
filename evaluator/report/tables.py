"""Frames to the tables a reader sees. Numbers are laid out here, never computed: what is shown stands in the frames.

The two exceptions are what a model must beat: chance, one over the size of the label space, and the share of the
majority label among the gold labels.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from evaluator.schemas import MEAN_OVER_DATASETS

GROUP = ["suite", "part", "method"]
"""What one results table is about; its rows are datasets, and there is one a definition."""

DEFINITIONS = {
    "paper": "the papers' formulas. Every token of a label is scored, and probabilities are taken as they are.",
    "released": (
        "what the released toolkit computes. A label's last token alone is scored, and probabilities pass through "
        "a second softmax wherever one row misses a sum of 1."
    ),
    "published": "what the published tables were made with, to compare with: as released, without the second softmax.",
}
"""Definition -> one line for the reader, in the order of the switch."""

METRIC_TITLES = {
    "accuracy": "Accuracy",
    "true_label_probability": "True-label probability",
    "macro_f1": "Macro-F1",
    "expected_calibration_error": "Calibration error",
}
"""Metrics that have a title of their own, in the order of their columns; others follow by name."""


class Group(NamedTuple):
    """One suite's part under one method."""

    suite: str
    part: str
    method: str


class Baselines(NamedTuple):
    """What a dataset gives away for nothing; the counts and shares of its mean row are means over datasets."""

    n_labels: int | None
    chance: float
    majority: float


class Cell(NamedTuple):
    """One metric's value with its 95% interval; a value that is undefined is NaN."""

    value: float
    ci_low: float | None
    ci_high: float | None
    n_queries: int
    n_requests: int


class ResultRow(NamedTuple):
    """One dataset, or the mean over them."""

    dataset: str
    baselines: Baselines | None
    cells: tuple[Cell | None, ...]  # in the order of the table's metrics; None where a metric was not measured

    @property
    def sizes(self) -> Cell | None:
        return next((cell for cell in self.cells if cell), None)


class ResultTable(NamedTuple):
    """All metrics of one group under one definition."""

    definition: str
    metrics: tuple[str, ...]
    rows: tuple[ResultRow, ...]
    mean: ResultRow | None

    def column(self, metric: str) -> Iterator[tuple[ResultRow, Cell | None]]:
        """The rows, the mean last, with their cell of this metric."""
        place = self.metrics.index(metric)
        return ((row, row.cells[place]) for row in (*self.rows, *([self.mean] if self.mean else [])))


class ConfusionTable(NamedTuple):
    """Counts of one dataset, gold label by predicted label."""

    dataset: str
    label_names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]  # [gold][pred]


def metric_title(metric: str) -> str:
    return METRIC_TITLES.get(metric, metric.replace("_", " ").capitalize())


def lower_is_better(metric: str) -> bool:
    return metric.endswith(("_error", "_loss"))


def groups(metrics: pl.DataFrame) -> list[Group]:
    return [Group(*row) for row in metrics.select(GROUP).unique().sort(GROUP).rows()]


def in_group(frame: pl.DataFrame, group: Group) -> pl.DataFrame:
    return frame.filter(suite=group.suite, part=group.part, method=group.method)


def dataset_order(metrics: pl.DataFrame, benchmark_order: Sequence[str]) -> list[str]:
    """The datasets that were measured, in the benchmark's order; any it does not name follow by name."""
    measured = set(metrics["dataset"]) - {MEAN_OVER_DATASETS}
    named = [name for name in benchmark_order if name in measured]
    return named + sorted(measured.difference(named))


def label_spaces(predictions: pl.LazyFrame) -> pl.DataFrame:
    """One row a suite, part and dataset: `label_names` and `majority`, the largest share of one gold label."""
    dataset = ["suite", "part", "dataset"]
    requests = predictions.select(*dataset, "position", "gold", "label_names").unique([*dataset, "position"])
    counts = requests.group_by(*dataset, "gold").agg(pl.len(), pl.col("label_names").first())
    shares = counts.group_by(dataset).agg(
        pl.col("label_names").first(), majority=pl.col("len").max() / pl.col("len").sum()
    )
    return shares.sort(dataset).collect()


def baselines_by_dataset(spaces: pl.DataFrame, group: Group) -> dict[str, Baselines]:
    own = spaces.filter(suite=group.suite, part=group.part)
    rows = own.select("dataset", n=pl.col("label_names").list.len(), majority="majority").rows()
    return {dataset: Baselines(n, 1 / n, majority) for dataset, n, majority in rows}


def result_tables(
    metrics: pl.DataFrame, baselines: Mapping[str, Baselines], datasets: Sequence[str]
) -> list[ResultTable]:
    """One table a definition, in the order of DEFINITIONS.

    Args:
        metrics: schemas.METRICS of one group.
        baselines: of each dataset.
        datasets: the order of the rows.
    """
    present = set(metrics["metric"])
    columns = (*(name for name in METRIC_TITLES if name in present), *sorted(present - METRIC_TITLES.keys()))
    tables = []
    for definition in DEFINITIONS:
        cells = _cells(metrics.filter(definition=definition))
        rows = [
            ResultRow(name, baselines.get(name), tuple(cells.get((name, column)) for column in columns))
            for name in datasets
            if any((name, column) in cells for column in columns)
        ]
        if rows:
            tables.append(ResultTable(definition, columns, tuple(rows), _mean_row(cells, columns, rows)))
    return tables


def confusion_tables(
    confusion: pl.DataFrame, spaces: pl.DataFrame, group: Group, datasets: Sequence[str]
) -> list[ConfusionTable]:
    """One table a dataset; a pair that never occurred counts 0.

    Args:
        confusion: dataset, gold, pred and n_requests of one group.
        spaces: as label_spaces gives them.
    """
    own = spaces.filter(suite=group.suite, part=group.part)
    names = dict(own.select("dataset", "label_names").rows())
    counts = {tuple(key): n for *key, n in _columns(confusion, "dataset", "gold", "pred", "n_requests")}
    tables = []
    for dataset in datasets:
        if dataset in set(confusion["dataset"]):
            labels = range(len(names[dataset]))
            rows = tuple(tuple(counts.get((dataset, gold, pred), 0) for pred in labels) for gold in labels)
            tables.append(ConfusionTable(dataset, tuple(names[dataset]), rows))
    return tables


def _cells(metrics: pl.DataFrame) -> dict[tuple[str, str], Cell]:
    columns = ("dataset", "metric", "value", "ci_low", "ci_high", "n_queries", "n_requests")
    return {
        (dataset, metric): Cell(float("nan") if value is None else value, *rest)
        for dataset, metric, value, *rest in _columns(metrics, *columns)
    }


def _mean_row(
    cells: Mapping[tuple[str, str], Cell], columns: Sequence[str], rows: Sequence[ResultRow]
) -> ResultRow | None:
    means = tuple(cells.get((MEAN_OVER_DATASETS, column)) for column in columns)
    if not any(means):
        return None
    known = [row.baselines for row in rows if row.baselines]
    if len(known) < len(rows):
        return ResultRow(MEAN_OVER_DATASETS, None, means)
    chance, majority = (sum(getattr(each, name) for each in known) / len(known) for name in ("chance", "majority"))
    return ResultRow(MEAN_OVER_DATASETS, Baselines(None, chance, majority), means)


def _columns(frame: pl.DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return frame.select(names).rows()
