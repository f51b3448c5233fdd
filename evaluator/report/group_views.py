"""What a report shows of one suite's part under one method: its frames go in; tables and figures come out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.report import figures, tables
from evaluator.schemas import MEAN_OVER_DATASETS

INTERVAL_FIGURES = ("accuracy", "true_label_probability")
"""Metrics that are drawn; for both of them a guess at random scores 1 / n_labels in expectation."""

FIGURE_DEFINITION = "paper"
"""The definition of reliability diagrams and confusion matrices, whichever one the reader has chosen for the rest."""


class DrawnFrames(NamedTuple):
    """What a report draws beside the metrics, under FIGURE_DEFINITION."""

    reliability: pl.DataFrame  # metrics.reliability_table
    confusion: pl.DataFrame  # metrics.confusion_table
    spaces: pl.DataFrame  # tables.label_spaces


class Figure(NamedTuple):
    title: str
    svg: Markup


class ReliabilityPanel(NamedTuple):
    dataset: str
    error: tables.Cell | None  # its expected calibration error
    svg: Markup


class GroupView(NamedTuple):
    """Everything about one suite's part under one method."""

    group: tables.Group
    anchor: str  # what links point at
    results: list[tables.ResultTable]
    intervals: dict[str, list[Figure]]  # by definition
    reliability: list[ReliabilityPanel]
    confusion: list[tables.ConfusionTable]


def group_view(
    group: tables.Group,
    anchor: str,
    metrics: pl.DataFrame,
    drawn: DrawnFrames,
    datasets: Sequence[str],
) -> GroupView:
    n_labels = tables.label_counts(drawn.spaces, group)
    results = tables.result_tables(tables.in_group(metrics, group), n_labels, datasets)
    bins, confusion = (tables.in_group(frame, group) for frame in (drawn.reliability, drawn.confusion))
    return GroupView(
        group,
        anchor,
        results,
        intervals={table.definition: list(_interval_figures(table)) for table in results},
        reliability=list(_reliability_panels(bins, _calibration_errors(results), datasets)),
        confusion=tables.confusion_tables(confusion, drawn.spaces, group, datasets),
    )


def row_title(dataset: str) -> str:
    """What a figure calls a row of a table."""
    return "mean" if dataset == MEAN_OVER_DATASETS else dataset


def value_text(dataset: str, cell: tables.Cell) -> str:
    """What a figure tells of a value; page.js knows a row by the dataset it begins with."""
    return f"{dataset}: {cell.value:.3f}, 95% interval {decimals_text(cell.ci_low)} to {decimals_text(cell.ci_high)}"


def decimals_text(value: float | None) -> str:
    return "not recorded" if value is None else f"{value:.3f}"


def _interval_figures(table: tables.ResultTable) -> Iterator[Figure]:
    for metric in INTERVAL_FIGURES:
        if metric in table.metrics:
            rows = [_interval_row(metric, row, cell) for row, cell in table.column(metric) if cell]
            frame = pl.DataFrame(rows, schema_overrides=dict.fromkeys(("chance", "max_random", "majority"), pl.Float64))
            yield Figure(tables.metric_title(metric), Markup(figures.interval_figure(frame)))


def _interval_row(metric: str, row: tables.ResultRow, cell: tables.Cell) -> dict[str, Any]:
    chance = row.baselines.chance if row.baselines else None
    # The others have an accuracy; as probabilities of the true label they would be bets nobody makes.
    beaten = row.baselines if metric == "accuracy" else None
    return {
        "dataset": row_title(row.dataset),
        "value": cell.value,
        "ci_low": cell.ci_low,
        "ci_high": cell.ci_high,
        "chance": chance,
        "max_random": beaten.max_random if beaten else None,
        "majority": beaten.majority if beaten else None,
        "description": f"{value_text(row.dataset, cell)}; chance {decimals_text(chance)}"
        + (_beside(beaten) if beaten else ""),
    }


def _beside(baselines: tables.Baselines) -> str:
    known = f", max random {decimals_text(baselines.max_random)}, majority label {decimals_text(baselines.majority)}"
    return f"{known}; verdict: {baselines.verdict}" if baselines.verdict else known


def _reliability_panels(
    bins: pl.DataFrame, errors: Mapping[str, tables.Cell], datasets: Sequence[str]
) -> Iterator[ReliabilityPanel]:
    for dataset in datasets:
        own = bins.filter(dataset=dataset)
        if not own.is_empty():
            yield ReliabilityPanel(dataset, errors.get(dataset), Markup(figures.reliability_figure(own)))


def _calibration_errors(results: Sequence[tables.ResultTable]) -> dict[str, tables.Cell]:
    metric = "expected_calibration_error"
    return {
        row.dataset: cell
        for table in results
        if table.definition == FIGURE_DEFINITION and metric in table.metrics
        for row, cell in table.column(metric)
        if cell
    }
