"""The methods of one part beside each other: each method's results and the differences to vanilla go in, tables of a
row a method come out. Numbers are laid out here, never computed.
"""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from evaluator.baselines.verdicts import Verdict
from evaluator.comparison.differences import DIFFERED
from evaluator.comparison.table import REFERENCE_METHOD
from evaluator.methods import METHODS
from evaluator.report.comparison_differences import Difference, Differences, Side
from evaluator.report.group_views import GroupView
from evaluator.report.tables import DEFINITIONS, Cell, ResultTable
from evaluator.schemas import MEAN_OVER_DATASETS


class MethodCell(NamedTuple):
    """One method on one dataset, or the mean over them."""

    cell: Cell
    verdict: Verdict | None  # of an accuracy
    difference: Difference | None  # less vanilla; None for vanilla itself
    is_best: bool  # the highest of its column, and above vanilla with the whole interval of the difference


class MethodRow(NamedTuple):
    method: str
    anchor: str  # of the method's own view
    summary: str | None
    labelled_examples: int | None  # used besides a prompt's own; None where it is not known
    cells: tuple[MethodCell | None, ...]  # in the order of the table's datasets; None where it was not measured
    mean: MethodCell | None


class MethodTable(NamedTuple):
    """One metric of all methods under one definition."""

    metric: str
    datasets: tuple[str, ...]
    rows: tuple[MethodRow, ...]

    @property
    def n_best(self) -> int:
        """In how many columns there is a best method."""
        return sum(bool(cell and cell.is_best) for row in self.rows for cell in (*row.cells, row.mean))


def method_order(method: str) -> tuple[int, str]:
    """Vanilla first, then as they are listed; others by name."""
    known = list(METHODS)
    return (known.index(method) if method in known else len(known), method)


def method_summary(method: str) -> str | None:
    return METHODS[method].summary if method in METHODS else None


def method_tables(
    views: Sequence[GroupView], differences: pl.DataFrame, n_shots: object, datasets: Sequence[str]
) -> dict[str, list[MethodTable]]:
    """By definition: a table of each metric that is a mean over queries, accuracy first.

    Args:
        views: of one suite's part, one a method.
        differences: schemas.DIFFERENCES of the run.
        n_shots: as recorded.
    """
    suite, part, _ = views[0].group
    tables = {}
    for definition in DEFINITIONS:
        own = differences.filter(suite=suite, part=part, definition=definition)
        model = own["model_a"][0] if own.height else ""
        results = [(view, next((table for table in view.results if table.definition == definition), None)) for view in views]
        measured = [metric for metric in DIFFERED if any(table and metric in table.metrics for _, table in results)]
        if measured:
            tables[definition] = [
                _table(metric, results, Differences(own), model, n_shots, datasets) for metric in measured
            ]
    return tables


def _table(
    metric: str,
    results: Sequence[tuple[GroupView, ResultTable | None]],
    found: Differences,
    model: str,
    n_shots: object,
    datasets: Sequence[str],
) -> MethodTable:
    cells = {view.group.method: _cells(metric, view.group.method, table, found, model) for view, table in results}
    best = _best(cells)
    measured = [name for name in datasets if any(name in own for own in cells.values())]

    def cell(method: str, dataset: str) -> MethodCell | None:
        own = cells[method].get(dataset)
        return own and own._replace(is_best=(method, dataset) in best)

    rows = tuple(
        MethodRow(
            method := view.group.method,
            view.anchor,
            method_summary(method),
            _labelled_examples(method, n_shots),
            tuple(cell(method, name) for name in measured),
            cell(method, MEAN_OVER_DATASETS),
        )
        for view, _ in results
    )
    return MethodTable(metric, tuple(measured), rows)


def _cells(
    metric: str, method: str, table: ResultTable | None, found: Differences, model: str
) -> dict[str, MethodCell]:
    """By dataset, the mean among them."""
    if table is None or metric not in table.metrics:
        return {}
    sides = Side(model, method), Side(model, REFERENCE_METHOD)
    return {
        row.dataset: MethodCell(
            cell,
            row.baselines.verdict if row.baselines and metric == "accuracy" else None,
            found.between(*sides, metric=metric, dataset=row.dataset),
            is_best=False,
        )
        for row, cell in table.column(metric)
        if cell
    }


def _best(cells: dict[str, dict[str, MethodCell]]) -> set[tuple[str, str]]:
    """Method and dataset of each cell that is the highest of its column, and told from vanilla."""
    datasets = {dataset for own in cells.values() for dataset in own}
    highest = {name: max(own[name].cell.value for own in cells.values() if name in own) for name in datasets}
    return {
        (method, dataset)
        for method, own in cells.items()
        for dataset, shown in own.items()
        if shown.cell.value == highest[dataset] and shown.difference and shown.difference.told == "above"
    }


def _labelled_examples(method: str, n_shots: object) -> int | None:
    return METHODS[method].labelled_examples(n_shots) if method in METHODS and isinstance(n_shots, int) else None
