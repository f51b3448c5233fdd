"""Lay out frames as the tables a reader sees. Nothing is computed: every number is one of the frames' numbers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from evaluator.random_baselines.verdicts import Verdict
from evaluator.report.metric_texts import MetricTexts
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

VERDICT_MARKS: dict[Verdict, str] = {"above both": "●", "between": "◐", "below both": "○"}
"""Verdict -> the sign that Yauney & Mimno 2024 give it in their table 1, from best to worst."""


class Group(NamedTuple):
    """One suite's part under one method."""

    suite: str
    part: str
    method: str


class Baselines(NamedTuple):
    """What guessing gets beside an accuracy: columns of schemas.METRICS."""

    chance: float | None
    max_random: float | None
    majority: float | None
    tries: int | None
    log10_tail: float | None
    verdict: Verdict | None
    n_needed: int | None


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
    n_labels: int | None
    baselines: Baselines | None  # None where no accuracy was measured
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
    texts: MetricTexts

    def column(self, metric: str) -> Iterator[tuple[ResultRow, Cell | None]]:
        """The rows, the mean last, with their cell of this metric."""
        place = self.metrics.index(metric)
        return ((row, row.cells[place]) for row in (*self.rows, *([self.mean] if self.mean else [])))

    @property
    def tries(self) -> list[int]:
        """The different numbers of tries in the table, ascending."""
        return sorted({row.baselines.tries for row in self.rows if row.baselines and row.baselines.tries is not None})

    def judged(self, verdict: Verdict) -> list[str]:
        """The datasets whose accuracy has this verdict."""
        return [row.dataset for row in self.rows if row.baselines and row.baselines.verdict == verdict]

    def needed(self) -> list[tuple[str, int]]:
        """Where the verdict is "between": how many queries it would take to tell."""
        names = [(row.dataset, row) for row in self.rows] + ([("all of them", self.mean)] if self.mean else [])
        known = ((name, row.baselines.n_needed) for name, row in names if row.baselines)
        return [(name, n_needed) for name, n_needed in known if n_needed is not None]

    def no_better_than_majority(self) -> list[str]:
        """The datasets on which always answering with the most frequent gold label is at least as accurate."""
        if "accuracy" not in self.metrics:
            return []
        majority = {row.dataset: row.baselines.majority for row in self.rows if row.baselines}
        accuracy = {row.dataset: cell.value for row, cell in self.column("accuracy") if cell}
        return [name for name, share in majority.items() if share is not None and accuracy[name] <= share]


class ConfusionTable(NamedTuple):
    """Counts of one dataset, gold label by predicted label."""

    dataset: str
    label_names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]  # [gold][pred]


def groups(metrics: pl.DataFrame) -> list[Group]:
    return [Group(*row) for row in metrics.select(GROUP).unique().sort(GROUP).rows()]


def in_group(frame: pl.DataFrame, group: Group) -> pl.DataFrame:
    return frame.filter(suite=group.suite, part=group.part, method=group.method)


def dataset_order(metrics: pl.DataFrame, benchmark_order: Sequence[str]) -> list[str]:
    """The datasets that were measured, in the benchmark's order; any it does not name follow by name."""
    measured = set(metrics["dataset"]) - {MEAN_OVER_DATASETS}
    named = [name for name in benchmark_order if name in measured]
    return named + sorted(measured.difference(named))


def label_counts(spaces: pl.DataFrame, group: Group) -> dict[str, int]:
    """The size of each dataset's label space."""
    own = spaces.filter(suite=group.suite, part=group.part)
    return dict(own.select("dataset", pl.col("label_names").list.len()).iter_rows())


def result_tables(
    metrics: pl.DataFrame, n_labels: Mapping[str, int], datasets: Sequence[str], texts: MetricTexts | None = None
) -> list[ResultTable]:
    """One table a definition, in the order of DEFINITIONS.

    Args:
        metrics: schemas.METRICS of one group.
        n_labels: of each dataset.
        datasets: the order of the rows.
        texts: titles of the metrics and the order of their columns.
    """
    texts = texts or MetricTexts()
    columns = texts.in_order(metrics["metric"])
    tables = []
    for definition in DEFINITIONS:
        own = metrics.filter(definition=definition)
        cells, baselines = _cells(own), _baselines(own)
        rows = {
            name: ResultRow(name, n_labels.get(name), baselines.get(name), tuple(cells.get((name, m)) for m in columns))
            for name in (*datasets, MEAN_OVER_DATASETS)
            if any((name, metric) in cells for metric in columns)
        }
        mean = rows.pop(MEAN_OVER_DATASETS, None)
        if rows:
            tables.append(ResultTable(definition, columns, tuple(rows.values()), mean, texts))
    return tables


def confusion_tables(
    confusion: pl.DataFrame, spaces: pl.DataFrame, group: Group, datasets: Sequence[str]
) -> list[ConfusionTable]:
    """One table a dataset; a pair that never occurred counts 0.

    Args:
        confusion: dataset, gold, pred and n_requests of one group.
        spaces: schemas.LABEL_SPACES.
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


def _baselines(metrics: pl.DataFrame) -> dict[str, Baselines]:
    rows = _columns(metrics.filter(metric="accuracy"), "dataset", *Baselines._fields)
    return {dataset: Baselines(*row) for dataset, *row in rows}


def _columns(frame: pl.DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return frame.select(names).rows()
