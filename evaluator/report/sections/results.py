"""Results of one method on one part of a suite: a table a definition, and its accuracies as a figure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.report import figures, tables
from evaluator.report.section import Section, core_template
from evaluator.schemas import MEAN_OVER_DATASETS

INTERVAL_FIGURES = ("accuracy", "true_label_probability")
"""Metrics that are drawn; for both of them a guess at random scores 1 / n_labels in expectation."""


class Figure(NamedTuple):
    title: str
    svg: Markup


class GroupResults(NamedTuple):
    """The results of one suite's part under one method, and the anchor of their section."""

    group: tables.Group
    anchor: str
    tables: Sequence[tables.ResultTable]


class ResultsContext(NamedTuple):
    about: str
    results: Sequence[tables.ResultTable]


class IntervalsContext(NamedTuple):
    intervals: Mapping[str, Sequence[Figure]]  # by definition


def results_section(results: GroupResults, *, subtitle: str = "", navigation: str = "") -> Section:
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
    return Section(
        anchor=f"{results.anchor}-intervals",
        title="Accuracy and true-label probability",
        subtitle=subtitle,
        kind="intervals",
        template=core_template("intervals.html"),
        context=IntervalsContext({table.definition: list(_interval_figures(table)) for table in results.tables}),
    )


def about(group: tables.Group) -> str:
    """What a group is called in titles."""
    return f"{place_name(group)}, {group.method}"


def place_name(group: tables.Group) -> str:
    """The suite and part of a group."""
    return f"{group.suite} / {group.part}" if group.part else group.suite


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
            yield Figure(table.texts.title(metric), Markup(figures.interval_figure(frame)))


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
