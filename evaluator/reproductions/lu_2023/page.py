"""The page about the published in-context PVI: tables go in; one HTML file that needs no network comes out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from evaluator.report.html_page import write_html_page
from evaluator.reproductions.lu_2023.data import NOT_IN_PAPER
from evaluator.reproductions.lu_2023.paper import GPT3, TABLES, PrintedTable
from evaluator.reproductions.lu_2023.recompute import Published

SIGNIFICANT = 0.05


class TableView(NamedTuple):
    """One of the paper's tables: its cells by row and column, and the notes that its cells share."""

    number: str
    title: str
    columns: Sequence[str]
    rows: Mapping[str, list[dict[str, Any]]]  # PUBLISHED_CELLS, in the columns' order
    notes: list[tuple[str, list[str]]]  # note, the cells it is on


def write_page(published: Published, path: Path) -> Path:
    """Write the page and return its path. Equal data give equal bytes."""
    return write_html_page(path, "pvi_published.html", _shown(published))


def _shown(published: Published) -> dict[str, Any]:
    tables = published.tables
    gpt3 = published.results.runs.filter(model=GPT3)
    return {
        "totals": tables.totals.to_dicts(),
        "all": tables.totals.select(pl.exclude("table").sum()).row(0, named=True),
        "views": [_view(table, tables.cells.filter(table=table.number)) for table in TABLES],
        "strengths": tables.strengths.to_dicts(),
        "not_in_paper": list(NOT_IN_PAPER.values()),
        "anova": _anova_facts(tables.anova),
        "gpt3_sizes": gpt3.select("dataset", "demonstration_set", "n_queries").to_dicts(),
    }


def _view(table: PrintedTable, cells: pl.DataFrame) -> TableView:
    rows: dict[str, list[dict[str, Any]]] = {}
    notes: dict[str, list[str]] = {}
    for cell in cells.iter_rows(named=True):
        rows.setdefault(cell["row"], []).append(cell)
        if cell["note"]:
            notes.setdefault(cell["note"], []).append(f"{cell['row']}, {cell['column']}")
    return TableView(table.number, table.title, table.columns, rows, list(notes.items()))


def _anova_facts(anova: pl.DataFrame) -> dict[str, Any]:
    tested = anova.filter(pl.col("p").is_finite())
    return {
        "n": tested.height,
        "significant": tested.filter(pl.col("p") < SIGNIFICANT).height,
        "expected": SIGNIFICANT * tested.height,
        "kinds": anova.select("df_between", "df_within", "f_needed").unique(maintain_order=True).to_dicts(),
    }
