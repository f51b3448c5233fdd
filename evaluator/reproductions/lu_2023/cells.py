"""Give the cells of the paper's tables a note, and count them by verdict."""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from evaluator.reproductions.cells import JUDGED, PRINTED, with_verdicts
from evaluator.reproductions.lu_2023.data import PRINTED_CELLS
from evaluator.reproductions.lu_2023.tried_rules import EVERY_RUN, FIT, MEAN_OVER_SETS, PUBLISHED_TRIED

PUBLISHED_CELLS = pl.Schema(  # one row a cell of the paper's tables
    {
        **PRINTED,
        "recomputed": pl.Float64(),  # null where the data have no such run
        "input_reach": pl.Float64(),  # largest error of `recomputed` from the rounding of released numbers
        "all_rows": pl.Float64(),  # `recomputed` with no run or row left out
        **JUDGED,
    }
)
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
        counts: table, row, n: the number of cases that the printed shares of the row are shares of.
        tried: PUBLISHED_TRIED.
    """
    cells = with_verdicts(PRINTED_CELLS, recomputed)
    cells = cells.join(counts, on=["table", "row"], how="left", maintain_order="left")
    rules = tried.partition_by("table", "row", as_dict=True)
    none = PUBLISHED_TRIED.to_frame()
    notes = [" ".join(_notes(cell, rules.get((cell["table"], cell["row"]), none))) for cell in cells.to_dicts()]
    noted = cells.with_columns(note=pl.Series([note or None for note in notes], dtype=pl.String))
    return noted.select(list(PUBLISHED_CELLS)).cast(PUBLISHED_CELLS)


def _notes(cell: Mapping[str, Any], tried: pl.DataFrame) -> Iterator[str]:
    """Yield the notes on a cell.

    Args:
        cell: PUBLISHED_CELLS without its note, with `n`.
        tried: the rules that were tried for its row.
    """
    if cell["verdict"] == "not printed":
        yield "The transcription of this table has no numbers in this row."
    used = USED_RULES.get((cell["table"], cell["row"]))
    if used is not None and not tried.is_empty() and cell["recomputed"] is not None:
        plain = EVERY_RUN if cell["table"] == "14(a)" else MEAN_OVER_SETS
        n_equal = dict(tried.select("rule", "n_equal").iter_rows())
        yield (
            f"Fitted, the paper does not say it: {used} gives {n_equal.get(used, 0)} of {tried['n_printed'][0]} cells "
            f"of this row, {plain} {n_equal.get(plain, 0)}."
        )
    if cell["verdict"] == "differs":
        yield from _unexplained(cell, tried)
    if cell["verdict"] == "within rounding":
        yield "Run means are released to four decimals, which is not enough to compute this cell more precisely."
        units = (cell["recomputed"] - cell["published"]) * 10.0 ** cell["decimals"]
        if 0 <= units <= 1 and cell["published"] > 0:
            yield "The printed digits are those of a truncated number, while other cells are rounded."


def _unexplained(cell: Mapping[str, Any], tried: pl.DataFrame) -> Iterator[str]:
    """Yield the notes on a cell that differs: its counts, the rules that give it, the sizes that p-values fit."""
    if cell["column"].startswith("r "):
        n, ours, printed = cell["n"], *(round(cell[name] * cell["n"]) for name in ("recomputed", "published"))
        yield f"{ours} of {n} cases; the printed share comes closest to {printed} of {n}."
    is_fit = pl.col("rule").str.starts_with(FIT)
    rules = tried.filter(~is_fit)
    if rules.is_empty():
        yield "Unexplained; no other rule was tried."
    else:
        gives_cell = rules["equal_columns"].str.split("; ").list.contains(cell["column"]).sum()
        whole = rules.filter(pl.col("n_equal") == pl.col("n_printed"))
        gives_table = (whole["n_equal_elsewhere"] == whole["n_printed_elsewhere"]).sum()
        yield (
            f"Unexplained: of {rules.height:,} rules tried for this row (table tried_rules), {gives_cell:,} give this "
            f"cell, {whole.height:,} the whole row and {gives_table:,} the whole table."
        )
    fits = tried.filter(is_fit, pl.col("n") > 0).select("rule", "n_equal", "n").iter_rows()
    if sizes := [f"{n_equal} of {n} released {rule}" for rule, n_equal, n in fits]:
        yield f"{'; '.join(sizes)}."
