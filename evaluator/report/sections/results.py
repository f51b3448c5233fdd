"""Build the sections of results of one method on one part: a table for each definition, and figures."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.report import figures, tables
from evaluator.report.section import Section, core_template
from evaluator.schemas import MEAN_OVER_DATASETS

INTERVAL_FIGURES = ("accuracy", "true_label_probability")
"""Metrics with a figure; the expected value of a random guess is 1 / n_labels for both."""


class Figure(NamedTuple):
    title: str
    svg: Markup


class GroupResults(NamedTuple):
    """The results of one part under one method, and the anchor of their section."""

    group: tables.Group
    anchor: str
    tables: Sequence[tables.ResultTable]  # headline metrics
    further: Sequence[tables.ResultTable] = ()  # other metrics, which are folded


class ResultsContext(NamedTuple):
    about: str
    results: Sequence[tables.ResultTable]


class IntervalsContext(NamedTuple):
    intervals: Mapping[str, Sequence[Figure]]  # by definition


def results_section(results: GroupResults, *, subtitle: str = "", navigation: str = "") -> Section:
    """Build the section with a table of all metrics for each definition."""
    return Section(
        anchor=results.anchor,
        title="Results",
        subtitle=subtitle,
        kind="results",
        navigation=navigation,
        template=core_template("results.html"),
        context=ResultsContext(about(results.group), results.tables),
    )


def intervals_section(results: GroupResults, *, subtitle: str = "") -> Section:
    """Build the section with figures of INTERVAL_FIGURES for each definition."""
    return Section(
        anchor=f"{results.anchor}-intervals",
        title="Accuracy and true-label probability",
        subtitle=subtitle,
        kind="intervals",
        template=core_template("intervals.html"),
        context=IntervalsContext({table.definition: list(_interval_figures(table)) for table in results.tables}),
    )


def further_section(results: GroupResults) -> Section:
    """Build the folded section of the metrics that are no headlines: proper scores with their parts, and label mass."""
    return Section(
        anchor=f"{results.anchor}-further",
        title="Proper scores and label mass",
        subtitle=f"{about(results.group)}: Brier score and log loss with their parts, and how much probability the "
        "labels have",
        kind="further",
        is_folded=True,
        template=core_template("further.html"),
        context=ResultsContext(about(results.group), results.further),
    )


def about(group: tables.Group) -> str:
    """Return the title of a group."""
    return f"{place_name(group)}, {group.method}"


def place_name(group: tables.Group) -> str:
    """Return the suite and part of a group."""
    return f"{group.suite} / {group.part}" if group.part else group.suite


def row_title(dataset: str) -> str:
    """Return the name of a table row in figures."""
    return "mean" if dataset == MEAN_OVER_DATASETS else dataset


def value_text(dataset: str, cell: tables.Cell) -> str:
    """Describe a value in a figure; it begins with the dataset, by which page.js finds the row."""
    return f"{dataset}: {cell.value:.3f}, 95% interval {decimals_text(cell.ci_low)} to {decimals_text(cell.ci_high)}"


def decimals_text(value: float | None) -> str:
    """Return a value with three decimals, or "not recorded"."""
    return "not recorded" if value is None else f"{value:.3f}"


def _interval_figures(table: tables.ResultTable) -> Iterator[Figure]:
    for metric in INTERVAL_FIGURES:
        if metric in table.metrics:
            rows = [_interval_row(metric, row, cell) for row, cell in table.column(metric) if cell]
            frame = pl.DataFrame(rows, schema_overrides=dict.fromkeys(("chance", "max_random", "majority"), pl.Float64))
            yield Figure(table.texts.title(metric), Markup(figures.interval_figure(frame)))


def _interval_row(metric: str, row: tables.ResultRow, cell: tables.Cell) -> dict[str, Any]:
    chance = row.baselines.chance if row.baselines else None
    # Max random and the majority label are baselines of accuracy only.
    baselines = row.baselines if metric == "accuracy" else None
    return {
        "dataset": row_title(row.dataset),
        "value": cell.value,
        "ci_low": cell.ci_low,
        "ci_high": cell.ci_high,
        "chance": chance,
        "max_random": baselines.max_random if baselines else None,
        "majority": baselines.majority if baselines else None,
        "description": f"{value_text(row.dataset, cell)}; chance {decimals_text(chance)}"
        + (_baselines_text(baselines) if baselines else ""),
    }


def _baselines_text(baselines: tables.Baselines) -> str:
    text = f", max random {decimals_text(baselines.max_random)}, majority label {decimals_text(baselines.majority)}"
    return f"{text}; verdict: {baselines.verdict}" if baselines.verdict else text
