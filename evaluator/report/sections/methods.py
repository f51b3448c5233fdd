"""Build the section that compares the methods of a part: one table a metric, with differences to vanilla."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from evaluator.methods import METHODS, REFERENCE_METHOD
from evaluator.random_baselines.significance import Verdict
from evaluator.report.differences import Difference, Differences, Side
from evaluator.report.section import Section, core_template
from evaluator.report.sections.results import INTERVAL_FIGURES, GroupResults, place_name
from evaluator.report.tables import DEFINITIONS, Cell, ResultTable
from evaluator.schemas import MEAN_OVER_DATASETS

MEANS_OVER_QUERIES = INTERVAL_FIGURES
"""Metrics that are means over queries, so that methods have paired differences."""


class MethodCell(NamedTuple):
    """One method on one dataset, or the mean over them."""

    cell: Cell
    verdict: Verdict | None  # of an accuracy
    difference: Difference | None  # minus vanilla; None for vanilla itself
    is_best: bool  # the highest of its column, its difference to vanilla positive after correction


Cells = dict[tuple[str, str], MethodCell]
"""Cells by method and dataset, with those of the mean over datasets."""


class MethodRow(NamedTuple):
    method: str
    anchor: str  # of the section of the method
    summary: str | None
    labelled_examples: float | None  # in addition to vanilla's; inf: all demonstrations; None where unknown
    cells: tuple[MethodCell | None, ...]  # in the order of the table's datasets; None where it was not measured
    mean: MethodCell | None


class MethodTable(NamedTuple):
    """One metric of all methods under one definition."""

    metric: str
    title: str
    datasets: tuple[str, ...]
    rows: tuple[MethodRow, ...]

    @property
    def n_best(self) -> int:
        """Return the number of columns with a best method."""
        return sum(bool(cell and cell.is_best) for row in self.rows for cell in (*row.cells, row.mean))


class MethodsContext(NamedTuple):
    about: str
    methods: Mapping[str, Sequence[MethodTable]]  # by definition


def methods_section(
    results: Sequence[GroupResults],
    differences: pl.DataFrame,
    n_shots: object,
    datasets: Sequence[str],
    *,
    navigation: str = "Inference methods",
) -> Section:
    """Build the section that compares the methods of a part. Arguments as for method_tables."""
    place = place_name(results[0].group)
    return Section(
        anchor=f"methods-{results[0].anchor}",
        title="Inference methods",
        subtitle=place,
        kind="compared-methods",
        navigation=navigation,
        template=core_template("methods.html"),
        context=MethodsContext(place, method_tables(results, differences, n_shots, datasets)),
    )


def method_order(method: str) -> tuple[int, str]:
    """Return a sort key: methods in the order of METHODS, then others by name."""
    registered = list(METHODS)
    return (registered.index(method) if method in registered else len(registered), method)


def method_summary(method: str) -> str | None:
    """Return the summary of a registered method, None for others."""
    return METHODS[method].summary if method in METHODS else None


def method_tables(
    views: Sequence[GroupResults], differences: pl.DataFrame, n_shots: object, datasets: Sequence[str]
) -> dict[str, list[MethodTable]]:
    """Return by definition a table for each metric that is a mean over queries, accuracy first.

    Args:
        views: results of one part, one for each method.
        differences: compare.schema.DIFFERENCES of the run.
        n_shots: as in the record.
    """
    suite, part, _ = views[0].group
    tables = {}
    for definition in DEFINITIONS:
        differences_of_part = differences.filter(suite=suite, part=part, definition=definition)
        results = {view.group.method: _result_table(view, definition) for view in views}
        titles = {
            metric: table.texts.title(metric)
            for metric in MEANS_OVER_QUERIES
            for table in results.values()
            if table and metric in table.metrics
        }
        if titles:
            tables[definition] = [
                _method_table(metric, title, views, _cells(metric, results, differences_of_part), n_shots, datasets)
                for metric, title in titles.items()
            ]
    return tables


def _result_table(view: GroupResults, definition: str) -> ResultTable | None:
    return next((table for table in view.tables if table.definition == definition), None)


def _method_table(
    metric: str, title: str, views: Sequence[GroupResults], cells: Cells, n_shots: object, datasets: Sequence[str]
) -> MethodTable:
    measured = tuple(name for name in datasets if any((view.group.method, name) in cells for view in views))
    rows = [
        MethodRow(
            method := view.group.method,
            view.anchor,
            method_summary(method),
            _labelled_examples(method, n_shots),
            tuple(cells.get((method, name)) for name in measured),
            cells.get((method, MEAN_OVER_DATASETS)),
        )
        for view in views
    ]
    return MethodTable(metric, title, measured, tuple(rows))


def _cells(metric: str, results: Mapping[str, ResultTable | None], differences: pl.DataFrame) -> Cells:
    less_vanilla = Differences(differences)
    model = differences["model_a"][0] if differences.height else ""
    cells = {
        (method, row.dataset): MethodCell(
            cell,
            row.baselines.verdict if row.baselines and metric == "accuracy" else None,
            less_vanilla.between(
                Side(model, method), Side(model, REFERENCE_METHOD), metric=metric, dataset=row.dataset
            ),
            is_best=False,
        )
        for method, table in results.items()
        if table and metric in table.metrics
        for row, cell in table.column(metric)
        if cell
    }
    highest = {dataset: max(_values(cells, dataset), default=None) for _, dataset in cells}
    return {key: shown._replace(is_best=_is_best(shown, highest[key[1]])) for key, shown in cells.items()}


def _values(cells: Cells, dataset: str) -> Iterator[float]:
    values = (shown.cell.value for (_, name), shown in cells.items() if name == dataset)
    return (value for value in values if not math.isnan(value))


def _is_best(shown: MethodCell, highest: float | None) -> bool:
    return shown.cell.value == highest and shown.difference is not None and shown.difference.sign == "positive"


def _labelled_examples(method: str, n_shots: object) -> float | None:
    if method not in METHODS or not isinstance(n_shots, int):
        return None
    return METHODS[method].labelled_examples(n_shots)
