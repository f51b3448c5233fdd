"""Compare the paper's cells with the recomputed ones, and give each a verdict and a note."""

from collections.abc import Mapping
from typing import Any, Literal

import polars as pl

from evaluator.reproductions.lu_2023.paper import printed_cells
from evaluator.reproductions.lu_2023.schema import PUBLISHED_CELLS, PUBLISHED_TOTALS, PUBLISHED_TRIED
from evaluator.reproductions.lu_2023.tried_rules import EVERY_RUN, FIT, MEAN_OVER_SETS

Cell = Mapping[str, Any]  # a row of PUBLISHED_CELLS without its note, with `n`

Verdict = Literal["equal", "within rounding", "differs", "not in the data", "not printed"]
"""`equal`: to the printed decimals. `within rounding`: different, but the rounding of the released numbers from which
the cell is computed can be the reason."""

TOLERANCE = 1e-9
"""Floating-point error of a recomputed number; it matters for a number halfway between two printed ones."""


USED_RULES = {
    ("14(a)", "BoolQ"): "without GPT3-175B, more shots alone",
    **{("14(a)", row): "without GPT3-175B" for row in ("CoLA", "MultiNLI", "RTE", "SNLI")},
    **{("7", row): "set 1a alone" for row in ("CoLA", "MultiNLI", "SNLI")},
}
"""Table and row -> rule of tried_rules.py by which it is recomputed, if that is not the plain reading.

The paper does not state these rules: they were chosen because they give the printed cells."""


def judged_cells(recomputed: pl.DataFrame, counts: pl.DataFrame, tried: pl.DataFrame) -> pl.DataFrame:
    """Return PUBLISHED_CELLS, in the paper's order.

    Args:
        recomputed: table, row, column, recomputed, input_reach, all_rows.
        counts: table, row, n: the number of cases of which the row prints shares.
        tried: PUBLISHED_TRIED.
    """
    cells = printed_cells().join(recomputed, on=["table", "row", "column"], how="left", maintain_order="left")
    cells = cells.join(counts, on=["table", "row"], how="left", maintain_order="left")
    judged = cells.with_columns(pl.col("recomputed").fill_nan(None)).with_columns(verdict=_verdict())
    rules = tried.partition_by("table", "row", as_dict=True)
    notes = [
        _note(cell, rules.get((cell["table"], cell["row"]), PUBLISHED_TRIED.to_frame())) for cell in judged.to_dicts()
    ]
    return (
        judged.with_columns(note=pl.Series(notes, dtype=pl.String)).select(list(PUBLISHED_CELLS)).cast(PUBLISHED_CELLS)
    )


def totals(cells: pl.DataFrame) -> pl.DataFrame:
    """Return PUBLISHED_TOTALS: one row a table, in the paper's order."""
    verdict = pl.col("verdict")
    return (
        cells.group_by("table", maintain_order=True)
        .agg(
            n_printed=pl.col("published").count(),
            equal=(verdict == "equal").sum(),
            within_rounding=(verdict == "within rounding").sum(),
            differ=(verdict == "differs").sum(),
            not_in_data=(verdict == "not in the data").sum(),
            not_printed=(verdict == "not printed").sum(),
        )
        .cast(PUBLISHED_TOTALS)
    )


def _verdict() -> pl.Expr:
    difference = (pl.col("recomputed") - pl.col("published")).abs()
    half_unit = 0.5 * pl.lit(10.0).pow(-pl.col("decimals")) + TOLERANCE
    return (
        pl.when(pl.col("recomputed").is_null())
        .then(pl.lit("not in the data"))
        .when(pl.col("published").is_null())
        .then(pl.lit("not printed"))
        .when(difference <= half_unit)
        .then(pl.lit("equal"))
        .when(difference <= half_unit + pl.col("input_reach"))
        .then(pl.lit("within rounding"))
        .otherwise(pl.lit("differs"))
    )


def _note(cell: Cell, tried: pl.DataFrame) -> str | None:
    """Return what there is to say of a cell, given the rules that were tried for its row."""
    notes = [write(cell, tried) for write in (_missing, _fitted, _counted, _unexplained, _sizes, _rounded)]
    return " ".join(filter(None, notes)) or None


def _missing(cell: Cell, _tried: pl.DataFrame) -> str:
    return "The transcription of this table has no numbers in this row." if cell["verdict"] == "not printed" else ""


def _fitted(cell: Cell, tried: pl.DataFrame) -> str:
    """Say that a row is recomputed by a rule that the paper does not state, and what the plain one gives."""
    used = USED_RULES.get((cell["table"], cell["row"]))
    if used is None or tried.is_empty() or cell["recomputed"] is None:
        return ""
    plain = EVERY_RUN if cell["table"] == "14(a)" else MEAN_OVER_SETS
    n_equal = dict(tried.select("rule", "n_equal").iter_rows())
    n_printed = tried["n_printed"][0]
    return (
        f"Fitted, the paper does not say it: {used} gives {n_equal.get(used, 0)} of {n_printed} cells of this row, "
        f"{plain} {n_equal.get(plain, 0)}."
    )


def _counted(cell: Cell, _tried: pl.DataFrame) -> str:
    """Return the recomputed and the printed count, for shares that differ."""
    if cell["verdict"] != "differs" or not cell["column"].startswith("r "):
        return ""
    n, ours, printed = cell["n"], *(round(cell[name] * cell["n"]) for name in ("recomputed", "published"))
    return f"{ours} of {n} cases; the printed share comes closest to {printed} of {n}."


def _unexplained(cell: Cell, tried: pl.DataFrame) -> str:
    if cell["verdict"] != "differs":
        return ""
    rules = tried.filter(~pl.col("rule").str.starts_with(FIT))
    if rules.is_empty():
        return "Unexplained; no other rule was tried."
    gives_cell = rules["equal_columns"].str.split("; ").list.contains(cell["column"]).sum()
    whole = rules.filter(pl.col("n_equal") == pl.col("n_printed"))
    gives_table = (whole["n_equal_elsewhere"] == whole["n_printed_elsewhere"]).sum()
    return (
        f"Unexplained: of {rules.height:,} rules tried for this row (table tried_rules), {gives_cell:,} give this "
        f"cell, {whole.height:,} the whole row and {gives_table:,} the whole table."
    )


def _sizes(cell: Cell, tried: pl.DataFrame) -> str:
    """Say for which number of queries the released p-values of correlations are right."""
    fits = tried.filter(pl.col("rule").str.starts_with(FIT), pl.col("n") > 0)
    if cell["verdict"] != "differs" or fits.is_empty():
        return ""
    said = [f"{n_equal} of {n} released {rule}" for rule, n_equal, n in fits.select("rule", "n_equal", "n").iter_rows()]
    return f"{'; '.join(said)}."


def _rounded(cell: Cell, _tried: pl.DataFrame) -> str:
    if cell["verdict"] != "within rounding":
        return ""
    reason = "Run means are released to four decimals, which is not enough to compute this cell more precisely."
    units = (cell["recomputed"] - cell["published"]) * 10.0 ** cell["decimals"]
    if 0 <= units <= 1 and cell["published"] > 0:
        return f"{reason} The printed digits are those of a truncated number, while other cells are rounded."
    return reason
