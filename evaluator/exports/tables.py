"""Arrange the headline metrics of a run as tables of text, which several formats write."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from evaluator.exports.base import ExportedRun
from evaluator.report.sections.methods import method_order
from evaluator.report.tables import Cell, ResultRow, dataset_order, groups, in_group, result_tables

BASELINES = {"chance": "Chance", "majority": "Majority", "max_random": "Max random"}
"""Columns of baselines next to an accuracy, and their titles."""


class TextTable(NamedTuple):
    """The results of one part under one method and definition; a cell that was not measured is empty."""

    title: str
    definition: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # one for each dataset, its name first
    mean: tuple[str, ...] | None  # over datasets, if there are several


def text_tables(run: ExportedRun) -> Iterator[TextTable]:
    """Yield a table for each part, method and definition: values with 95% intervals, and the baselines of accuracy."""
    metrics = run.metrics.filter(pl.col("metric").is_in([*filter(run.texts.is_headline, set(run.metrics["metric"]))]))
    datasets = dataset_order(metrics, run.record.prompts.datasets)
    for group in sorted(groups(metrics), key=lambda group: (group.suite, group.part, method_order(group.method))):
        for table in result_tables(in_group(metrics, group), {}, datasets, run.texts):
            has_accuracy = "accuracy" in table.metrics
            titles = [f"{run.texts.title(name)} {_direction(run, name)}" for name in table.metrics]
            mean = table.mean if len(table.rows) > 1 else None
            yield TextTable(
                title=f"{group.suite} / {group.part}, {group.method}, definition {table.definition}",
                definition=table.definition,
                columns=("Dataset", *titles, *(BASELINES.values() if has_accuracy else ())),
                rows=tuple(_texts(row.dataset, row, has_accuracy) for row in table.rows),
                mean=_texts("Mean over datasets", mean, has_accuracy) if mean else None,
            )


def _direction(run: ExportedRun, metric: str) -> str:
    return "↓" if run.texts.lower_is_better(metric) else "↑"


def _texts(name: str, row: ResultRow, has_accuracy: bool) -> tuple[str, ...]:
    baselines = [getattr(row.baselines, column, None) for column in BASELINES] if has_accuracy else []
    return name, *map(_cell, row.cells), *("" if value is None else f"{value:.3f}" for value in baselines)


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    if cell.ci_low is None or cell.ci_high is None:
        return _number(cell.value)
    return f"{_number(cell.value)} [{_number(cell.ci_low)}, {_number(cell.ci_high)}]"


def _number(value: float) -> str:
    if math.isnan(value):
        return "undefined"
    return f"{value:.3f}" if math.isfinite(value) else f"{'-' * (value < 0)}∞"
