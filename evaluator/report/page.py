"""The report: what was run and what came out, as one HTML file that opens from disk without a network."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.report import facts, figures, tables
from evaluator.report.html_page import write_html_page
from evaluator.report.search import SearchTables, search_report
from evaluator.schemas import MEAN_OVER_DATASETS

INTERVAL_FIGURES = ("accuracy", "true_label_probability")
"""Metrics that are drawn; for both of them a guess at random scores 1 / n_labels in expectation."""

FIGURE_DEFINITION = "paper"
"""The definition of reliability diagrams and confusion matrices, whichever one the reader has chosen for the rest."""


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """All that the report shows; whatever is measured was measured before."""

    run: Mapping[str, Any]  # run.json
    metrics: pl.DataFrame  # schemas.METRICS
    predictions: pl.LazyFrame  # schemas.PREDICTIONS; read for label names and gold labels alone
    reliability: pl.DataFrame  # metrics.reliability_table, under FIGURE_DEFINITION
    confusion: pl.DataFrame  # metrics.confusion_table, under FIGURE_DEFINITION
    search: SearchTables | None = None  # of a prompt search, which has none of the rest


class IntervalFigure(NamedTuple):
    title: str
    svg: Markup


class ReliabilityPanel(NamedTuple):
    dataset: str
    error: tables.Cell | None  # its expected calibration error
    svg: Markup


class GroupView(NamedTuple):
    """Everything about one suite's part under one method."""

    group: tables.Group
    results: list[tables.ResultTable]
    intervals: dict[str, list[IntervalFigure]]  # by definition
    reliability: list[ReliabilityPanel]
    confusion: list[tables.ConfusionTable]


def write_report(data: ReportData, path: Path) -> Path:
    """Write the page to `path` and return it. Equal data give equal bytes."""
    return write_html_page(path, "page.html", _shown(data), script="page.js")


def _shown(data: ReportData) -> dict[str, Any]:
    measured = data.search.results if data.search else data.metrics
    datasets = tables.dataset_order(measured, facts.look_up(data.run, "store", "datasets") or ())
    spaces = tables.label_spaces(data.predictions)
    views = [_group_view(data, group, spaces, datasets) for group in tables.groups(data.metrics)]
    return {
        "model": facts.look_up(data.run, "model", "name") or "model not recorded",
        "warning": facts.warning(data.run),
        "headline": facts.headline_facts(data.run),
        "record": facts.record(data.run),
        "command": facts.look_up(data.run, "command"),
        "tokens": facts.token_counts(data.run),
        "token_summary": facts.token_summary(data.run),
        "n_shots": facts.look_up(data.run, "store", "n_shots"),
        "datasets": datasets,
        "definitions": _definitions(views),
        "figure_definition": FIGURE_DEFINITION,
        "views": views,
        "search": search_report(data.search, data.run) if data.search else None,
    }


def _group_view(data: ReportData, group: tables.Group, spaces: pl.DataFrame, datasets: Sequence[str]) -> GroupView:
    results = tables.result_tables(tables.in_group(data.metrics, group), tables.label_counts(spaces, group), datasets)
    bins, confusion = (tables.in_group(frame, group) for frame in (data.reliability, data.confusion))
    return GroupView(
        group,
        results,
        intervals={table.definition: list(_interval_figures(table)) for table in results},
        reliability=list(_reliability_panels(bins, _calibration_errors(results), datasets)),
        confusion=tables.confusion_tables(confusion, spaces, group, datasets),
    )


def _interval_figures(table: tables.ResultTable) -> Iterator[IntervalFigure]:
    for metric in INTERVAL_FIGURES:
        if metric in table.metrics:
            rows = [_interval_row(metric, row, cell) for row, cell in table.column(metric) if cell]
            frame = pl.DataFrame(rows, schema_overrides=dict.fromkeys(("chance", "max_random", "majority"), pl.Float64))
            yield IntervalFigure(tables.metric_title(metric), Markup(figures.interval_figure(frame)))


def _interval_row(metric: str, row: tables.ResultRow, cell: tables.Cell) -> dict[str, Any]:
    chance = row.baselines.chance if row.baselines else None
    # The others have an accuracy; as probabilities of the true label they would be bets nobody makes.
    beaten = row.baselines if metric == "accuracy" else None
    return {
        "dataset": "mean" if row.dataset == MEAN_OVER_DATASETS else row.dataset,
        "value": cell.value,
        "ci_low": cell.ci_low,
        "ci_high": cell.ci_high,
        "chance": chance,
        "max_random": beaten.max_random if beaten else None,
        "majority": beaten.majority if beaten else None,
        "description": f"{row.dataset}: {cell.value:.3f}, 95% interval {_decimals(cell.ci_low)} to "
        f"{_decimals(cell.ci_high)}; chance {_decimals(chance)}" + (_beside(beaten) if beaten else ""),
    }


def _beside(baselines: tables.Baselines) -> str:
    known = f", max random {_decimals(baselines.max_random)}, majority label {_decimals(baselines.majority)}"
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


def _definitions(views: Sequence[GroupView]) -> dict[str, str]:
    present = {table.definition for view in views for table in view.results}
    return {name: meaning for name, meaning in tables.DEFINITIONS.items() if name in present}


def _decimals(value: float | None) -> str:
    return "not recorded" if value is None else f"{value:.3f}"
