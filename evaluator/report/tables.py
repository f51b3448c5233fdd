"""Arrange frames as tables for a page. Nothing is computed: every number is in the frames."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from evaluator.random_baselines.significance import Verdict
from evaluator.report.metric_texts import MetricTexts
from evaluator.schemas import MEAN_OVER_DATASETS

GROUP = ["suite", "part", "method"]
"""Columns that identify a results table; there is one for each definition, with a row for each dataset."""

DEFINITIONS = {
    "paper": "the papers' formulas. Every token of a label is scored, and probabilities are taken as they are.",
    "released": (
        "what the released toolkit computes. A label's last token alone is scored, and probabilities pass through "
        "a second softmax wherever one row misses a sum of 1."
    ),
    "published": "what the published tables were made with, to compare with: as released, without the second softmax.",
}
"""Definition -> its meaning in one line, in the order of the control that switches between them."""

VERDICT_MARKS: dict[Verdict, str] = {"above both": "●", "between": "◐", "below both": "○"}
"""Verdict -> its mark in table 1 of Yauney & Mimno 2024, from best to worst."""


class Group(NamedTuple):
    """One suite's part under one method."""

    suite: str
    part: str
    method: str


class Baselines(NamedTuple):
    """The baselines of an accuracy: columns of schemas.METRICS."""

    chance: float | None
    max_random: float | None
    majority: float | None
    tries: int | None
    log10_tail: float | None
    verdict: Verdict | None
    p_value: float | None
    p_holm: float | None
    n_tests: int | None
    better_than_guessing: bool | None
    accuracy_lower_bound: float | None
    n_needed: int | None
    credible_low: float | None
    credible_high: float | None


class Cell(NamedTuple):
    """The value of a metric with its 95% interval; NaN where it is undefined."""

    value: float
    ci_low: float | None
    ci_high: float | None
    n_queries: int
    n_requests: int
    debiased: float | None = None  # without the bias of finitely many requests, where there is one


class ResultRow(NamedTuple):
    """One dataset, or the mean over them."""

    dataset: str
    n_labels: int | None
    baselines: Baselines | None  # None where no accuracy was measured
    cells: tuple[Cell | None, ...]  # in the order of the table's metrics; None where a metric was not measured

    @property
    def sizes(self) -> Cell | None:
        """Return a cell with the row's numbers of queries and requests, None without cells."""
        return next((cell for cell in self.cells if cell), None)


class ResultTable(NamedTuple):
    """All metrics of one group under one definition."""

    definition: str
    metrics: tuple[str, ...]
    rows: tuple[ResultRow, ...]
    mean: ResultRow | None
    texts: MetricTexts

    def column(self, metric: str) -> Iterator[tuple[ResultRow, Cell | None]]:
        """Return the rows, the mean last, with their cell of this metric."""
        place = self.metrics.index(metric)
        return ((row, row.cells[place]) for row in (*self.rows, *([self.mean] if self.mean else [])))

    @property
    def tries(self) -> list[int]:
        """Return the different numbers of tries in the table, ascending."""
        return sorted({row.baselines.tries for row in self.rows if row.baselines and row.baselines.tries is not None})

    def judged(self, verdict: Verdict) -> list[str]:
        """Return the datasets whose accuracy has this verdict."""
        return [row.dataset for row in self.rows if row.baselines and row.baselines.verdict == verdict]

    @property
    def tested(self) -> list[ResultRow]:
        """Return the rows whose accuracy was tested against guessing, the mean last."""
        rows = (*self.rows, *([self.mean] if self.mean else []))
        return [row for row in rows if row.baselines and row.baselines.p_holm is not None]

    @property
    def n_tests(self) -> int | None:
        """Return the number of tests that p-values are corrected for."""
        return next((row.baselines.n_tests for row in self.tested if row.baselines), None)

    def better_than_guessing(self) -> list[str]:
        """Return the datasets whose accuracy is better than guessing after the correction."""
        rows = (row for row in self.tested if row is not self.mean)
        return [row.dataset for row in rows if row.baselines and row.baselines.better_than_guessing]

    def no_better_than_majority(self) -> list[str]:
        """Return the datasets on which always answering with the most frequent gold label is at least as accurate."""
        if "accuracy" not in self.metrics:
            return []
        majority = {row.dataset: row.baselines.majority for row in self.rows if row.baselines}
        accuracy = {row.dataset: cell.value for row, cell in self.column("accuracy") if cell}
        return [name for name, share in majority.items() if share is not None and accuracy[name] <= share]


class ConfusionTable(NamedTuple):
    """The confusion matrix of one dataset."""

    dataset: str
    label_names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]  # [gold][pred]


def groups(metrics: pl.DataFrame) -> list[Group]:
    """Return the groups of schemas.METRICS, sorted."""
    return [Group(*row) for row in metrics.select(GROUP).unique().sort(GROUP).rows()]


def in_group(frame: pl.DataFrame, group: Group) -> pl.DataFrame:
    """Return the rows of a group."""
    return frame.filter(suite=group.suite, part=group.part, method=group.method)


def dataset_order(metrics: pl.DataFrame, benchmark_order: Sequence[str]) -> list[str]:
    """Return the measured datasets in the order of the benchmark, then any others by name."""
    measured = set(metrics["dataset"]) - {MEAN_OVER_DATASETS}
    named = [name for name in benchmark_order if name in measured]
    return named + sorted(measured.difference(named))


def label_counts(spaces: pl.DataFrame, group: Group) -> dict[str, int]:
    """Return the size of each dataset's label space."""
    spaces_of_part = spaces.filter(suite=group.suite, part=group.part)
    return dict(spaces_of_part.select("dataset", pl.col("label_names").list.len()).iter_rows())


def result_tables(
    metrics: pl.DataFrame, n_labels: Mapping[str, int], datasets: Sequence[str], texts: MetricTexts | None = None
) -> list[ResultTable]:
    """Return a table for each definition, in the order of DEFINITIONS.

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
        measured = metrics.filter(definition=definition)
        cells, baselines = _cells(measured), _baselines(measured)
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
    """Return a confusion matrix for each dataset; a pair that does not occur counts 0.

    Args:
        confusion: dataset, gold, pred and n_requests of one group.
        spaces: schemas.LABEL_SPACES.
    """
    spaces_of_part = spaces.filter(suite=group.suite, part=group.part)
    names = dict(spaces_of_part.select("dataset", "label_names").rows())
    counts = {tuple(key): n for *key, n in _columns(confusion, "dataset", "gold", "pred", "n_requests")}
    tables = []
    for dataset in datasets:
        if dataset in set(confusion["dataset"]):
            labels = range(len(names[dataset]))
            rows = tuple(tuple(counts.get((dataset, gold, pred), 0) for pred in labels) for gold in labels)
            tables.append(ConfusionTable(dataset, tuple(names[dataset]), rows))
    return tables


def _cells(metrics: pl.DataFrame) -> dict[tuple[str, str], Cell]:
    columns = ("dataset", "metric", "value", "ci_low", "ci_high", "n_queries", "n_requests", "debiased")
    return {
        (dataset, metric): Cell(float("nan") if value is None else value, *rest)
        for dataset, metric, value, *rest in _columns(metrics, *columns)
    }


def _baselines(metrics: pl.DataFrame) -> dict[str, Baselines]:
    rows = _columns(metrics.filter(metric="accuracy"), "dataset", *Baselines._fields)
    return {dataset: Baselines(*row) for dataset, *row in rows}


def _columns(frame: pl.DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return frame.select(names).rows()
