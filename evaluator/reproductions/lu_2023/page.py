"""Write the page of the recomputed in-context PVI: the paper's tables, cell by cell."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from evaluator.report.page import Header, write_page
from evaluator.report.section import PackageFile, Section
from evaluator.reproductions.cells import PrintedTable
from evaluator.reproductions.lu_2023.data import NOT_IN_PAPER
from evaluator.reproductions.lu_2023.paper import GPT3, TABLES
from evaluator.reproductions.lu_2023.recompute import Published
from evaluator.reproductions.lu_2023.tried_rules import FIT

SIGNIFICANT = 0.05


class TableView(NamedTuple):
    """One of the paper's tables: its cells by row and column, and the notes that its cells share."""

    number: str
    title: str
    columns: Sequence[str]
    rows: Mapping[str, list[dict[str, Any]]]  # PUBLISHED_CELLS, in the columns' order
    notes: list[tuple[str, list[str]]]  # text of a note and the cells that have it


def write_published_page(published: Published, path: Path) -> Path:
    """Write the page and return its path. Equal data give equal bytes."""
    total = _sums(published)
    header = Header(
        kicker="Lu et al. 2023, Measuring Pointwise V-Usable Information In-Context-ly, recomputed from the released "
        "results",
        heading="In-context PVI, as published",
        subject=f"{total['equal']} of {total['n_printed']} printed cells are equal to the recomputed ones, to the "
        "printed decimals",
    )
    return write_page(path, "In-context PVI, recomputed", header, list(published_sections(published)))


def published_sections(published: Published) -> Iterator[Section]:
    """Yield the counts of all tables, then each of the paper's tables, then remarks."""
    tables = published.tables
    totals = {"totals": tables.totals.to_dicts(), "all": _sums(published)}
    yield _section("totals", "Cell by cell", "totals", totals)
    shared = {
        "strengths": tables.strengths.to_dicts(),
        "not_in_paper": list(NOT_IN_PAPER.values()),
        "anova": _anova_facts(tables.anova),
    }
    for number, table in enumerate(TABLES, 1):
        view = _view(table, tables.cells.filter(table=table.number))
        subtitle = f"table {table.number}"
        yield _section(f"table-{number}", view.title, "table", {"view": view, **shared}, subtitle)
    gpt3 = published.results.runs.filter(model=GPT3).select("dataset", "demonstration_set", "n_queries")
    differences = {"rows": tables.differences.to_dicts()}
    yield _section("figure-2", "Accuracy gained from low to high PVI", "figure_2", differences, "figure 2")
    yield _section("tried", "Rules that were tried", "tried", {"rows": _tried_shown(tables.tried_rules)})
    yield _section("known", "Remarks on these results", "known", {"gpt3_sizes": gpt3.to_dicts()})


def _tried_shown(tried: pl.DataFrame) -> list[dict[str, Any]]:
    """Return, for each row of a printed table, how many rules were tried, and one that gives most of its cells."""
    judged = tried.filter(~pl.col("rule").str.starts_with(FIT)).sort("n_equal", descending=True, maintain_order=True)
    return (
        judged.group_by("table", "row", maintain_order=True)
        .agg(
            pl.col("rule", "n_equal", "n_printed").first(),
            n_rules=pl.len(),
            n_best=(pl.col("n_equal") == pl.col("n_equal").max()).sum(),
        )
        .sort("table", "row")
        .to_dicts()
    )


def _section(anchor: str, title: str, template: str, context: Mapping[str, object], subtitle: str = "") -> Section:
    package = "evaluator.reproductions.lu_2023"
    return Section(
        anchor=anchor,
        title=title,
        subtitle=subtitle,
        navigation=subtitle.capitalize() or title,
        template=PackageFile(package, f"templates/{template}.html"),
        context=context,
        style=PackageFile(package, "assets/page.css"),
    )


def _sums(published: Published) -> dict[str, Any]:
    """Sum the counts of all tables."""
    return published.tables.totals.select(pl.exclude("table").sum()).row(0, named=True)


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
