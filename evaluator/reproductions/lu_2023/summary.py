"""Summarise the recomputed cells for a terminal. Nothing is computed here."""

from collections.abc import Iterator

import polars as pl

from evaluator.reproductions.lu_2023.recompute import Published

COUNTS = {
    "n_printed": "printed",
    "equal": "equal",
    "within_rounding": "within rounding",
    "differ": "differ",
    "not_in_data": "not in data",
    "not_printed": "not printed",
}
"""Column of PUBLISHED_TOTALS -> its heading."""


def summary_lines(published: Published) -> Iterator[str]:
    """Yield the counts of cells by verdict, for each table and in total, then the cells that differ."""
    tables = published.tables
    widths = {name: max(len(heading), 7) + 2 for name, heading in COUNTS.items()}
    yield f"{'Table':8}" + "".join(f"{COUNTS[name]:>{width}}" for name, width in widths.items())
    all_tables = tables.totals.select(pl.lit("all").alias("table"), pl.exclude("table").sum())
    for row in [*tables.totals.iter_rows(named=True), *all_tables.iter_rows(named=True)]:
        yield f"{row['table']:8}" + "".join(f"{row[name]:>{width}}" for name, width in widths.items())
    row = all_tables.row(0, named=True)
    yield f"{row['equal']} of {row['n_printed']} cells are equal to the paper's, to the printed decimals."
    for cell in tables.cells.filter(verdict="differs").iter_rows(named=True):
        recomputed, printed = (f"{cell[name]:.{cell['decimals']}f}" for name in ("recomputed", "published"))
        note = f" {cell['note']}" if cell["note"] else ""
        yield f"Table {cell['table']}, {cell['row']}, {cell['column']}: {recomputed}, printed {printed}.{note}"
