"""Build the sections of reliability diagrams and confusion matrices of one method on one part."""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.report import figures, tables
from evaluator.report.section import Section, core_template
from evaluator.report.sections.results import GroupResults

FIGURE_DEFINITION = "paper"
"""Definition of reliability diagrams and confusion matrices, whichever definition the reader has chosen."""


class ReliabilityPanel(NamedTuple):
    dataset: str
    error: tables.Cell | None  # its expected calibration error
    svg: Markup


class ReliabilityContext(NamedTuple):
    figure_definition: str
    panels: Sequence[ReliabilityPanel]


class ConfusionContext(NamedTuple):
    figure_definition: str
    matrices: Sequence[tables.ConfusionTable]


def reliability_section(
    results: GroupResults, reliability: pl.DataFrame, datasets: Sequence[str], *, subtitle: str = ""
) -> Section:
    """Build the section with a reliability diagram for each dataset.

    Args:
        reliability: schemas.RELIABILITY.
        datasets: the order of the diagrams.
    """
    errors, bins = _calibration_errors(results.tables), tables.in_group(reliability, results.group)
    by_dataset = bins.partition_by("dataset", as_dict=True)
    panels = [
        ReliabilityPanel(name, errors.get(name), Markup(figures.reliability_figure(by_dataset[name,].sort("bin"))))
        for name in datasets
        if (name,) in by_dataset
    ]
    return Section(
        anchor=f"{results.anchor}-reliability",
        title="Reliability",
        subtitle=subtitle,
        kind="reliability",
        template=core_template("reliability.html"),
        context=ReliabilityContext(FIGURE_DEFINITION, panels),
    )


def confusion_section(
    results: GroupResults,
    confusion: pl.DataFrame,
    spaces: pl.DataFrame,
    datasets: Sequence[str],
    *,
    subtitle: str = "",
) -> Section:
    """Build the section with a confusion matrix for each dataset.

    Args:
        confusion: schemas.CONFUSION.
        spaces: schemas.LABEL_SPACES.
        datasets: the order of the matrices.
    """
    counts = tables.in_group(confusion, results.group)
    matrices = tables.confusion_tables(counts, spaces, results.group, datasets)
    return Section(
        anchor=f"{results.anchor}-confusion",
        title="Confusion matrices",
        subtitle=subtitle,
        kind="confusion",
        template=core_template("confusion.html"),
        context=ConfusionContext(FIGURE_DEFINITION, matrices),
    )


def _calibration_errors(results: Sequence[tables.ResultTable]) -> dict[str, tables.Cell]:
    metric = "expected_calibration_error"
    return {
        row.dataset: cell
        for table in results
        if table.definition == FIGURE_DEFINITION and metric in table.metrics
        for row, cell in table.column(metric)
        if cell
    }
