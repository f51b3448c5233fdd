"""Recompute what the StaICC paper says of its printed tables, and compare the tables with each other."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from evaluator.progress import Progress, Stage
from evaluator.reproductions.cho_inoue_2025.figures import COUNTED, figure_correlations, figure_lines
from evaluator.reproductions.cho_inoue_2025.inconsistencies import findings, judged_cells
from evaluator.reproductions.cho_inoue_2025.sentences import Figures, sentence_results
from evaluator.suites.staicc.published import figure_points


@dataclass(frozen=True, kw_only=True)
class StaiccTables:
    """The tables that are written."""

    findings: pl.DataFrame  # inconsistencies.FINDINGS
    cells: pl.DataFrame  # inconsistencies.CELLS
    lines: pl.DataFrame  # figures.LINES
    correlations: pl.DataFrame  # figures.CORRELATIONS
    sentences: pl.DataFrame  # sentences.SENTENCE_RESULTS


class Recomputed(NamedTuple):
    """The tables, and the points of the figures."""

    tables: StaiccTables
    points: pl.DataFrame  # figures.figure_points


def recompute(printed: tuple[pl.DataFrame, pl.DataFrame]) -> Stage[Recomputed]:
    """Compare the printed tables, fit the lines, correlate the metrics and test the sentences.

    Args:
        printed: published.printed_tables.
    """
    yield Progress(stage="Recomputing", done=0, total=1, unit="papers")
    appendix, main = printed
    figures = Figures(points := figure_points(), figure_lines(points), figure_correlations())
    tables = StaiccTables(
        findings=findings(main, appendix),
        cells=judged_cells(main, appendix),
        lines=figures.lines,
        correlations=figures.correlations,
        sentences=sentence_results(figures),
    )
    yield Progress(stage="Recomputing", done=1, total=1, unit="papers")
    return Recomputed(tables, points)


def summary_lines(recomputed: Recomputed) -> Iterator[str]:
    """Yield the sentences with their outcomes, then what the tables say against each other."""
    for (section, text), rows in recomputed.tables.sentences.group_by("section", "sentence", maintain_order=True):
        counted = (f"{one.name}: {outcome(rows.filter(counted=one.name)['outcome'])}" for one in COUNTED)
        yield f"{section}: {text} {'; '.join(counted)}."
    for _, table, place, finding, cause in recomputed.tables.findings.rows():
        yield f"Table {table}, {place}. {finding} Cause: {cause}."


def outcome(outcomes: pl.Series) -> str:
    """Return the outcome of a sentence, given those of its quantities; "not tested" without any."""
    n_holding = (outcomes == "holds").sum()
    if outcomes.n_unique() < 2:
        return str(outcomes[0]) if len(outcomes) else "not tested"
    return f"holds for {n_holding} of {len(outcomes)}"
