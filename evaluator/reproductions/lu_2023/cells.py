"""The paper's cells next to the recomputed ones, with a verdict and a note for each."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import polars as pl

from evaluator.reproductions.lu_2023.paper import printed_cells
from evaluator.reproductions.lu_2023.schema import PUBLISHED_CELLS, PUBLISHED_TOTALS

Verdict = Literal["equal", "within rounding", "differs", "not in the data", "not printed"]
"""`equal`: to the printed decimals. `within rounding`: not equal, but the difference can result from the rounding of
the released numbers from which the cell is computed."""

TOLERANCE = 1e-9
"""Floating-point error of a recomputed number, which matters halfway between two printed ones."""


class Note(NamedTuple):
    """A note on the cells of a table that have one of the rows and verdicts; None stands for all rows."""

    text: str
    table: str
    rows: Sequence[str] | None = None
    verdicts: Sequence[Verdict] = get_args(Verdict)


NOTES = (
    Note(
        "Over the 4-shot runs alone: table 14(b) and table 15 hold the 2-shot runs of BoolQ too.", "14(a)", ("BoolQ",)
    ),
    Note(
        "Without the runs of GPT3-175B, which table 14(b) has in a row of their own.",
        "14(a)",
        ("CoLA", "MultiNLI", "RTE", "SNLI"),
    ),
    Note("The transcription of table 14(b) has no row for this model.", "14(b)", None, ("not printed",)),
    Note(
        "The released accuracies are over the queries with a gold label. The released p-values of correlations match "
        "10,000 queries, so they include queries without a gold label.",
        "9",
        ("MultiNLI", "SNLI"),
        ("differs",),
    ),
)

UNEXPLAINED = ("Exemplars", "r < 0.3")
UNEXPLAINED_NOTE = (
    " No choice among the 100 released averages gives both shares: 57 strong and 22 weak of 96 leave 17 between, where "
    "all 100 have 16. Nor did others give all eight cells of the table: medians, extremes and Fisher's z over pairs, "
    "pairs by themselves, a model, dataset, set or number of shots in or out, rounding or cutting to 1-4 decimals, "
    "thresholds included, absolute values, limits on p (p < 0.05: 22 here, but 40 for the 43 of Shots)."
)
"""Note on the one share in table 2 that the released results do not reproduce."""


def judged_cells(recomputed: pl.DataFrame, counts: pl.DataFrame) -> pl.DataFrame:
    """Return PUBLISHED_CELLS, in the paper's order.

    Args:
        recomputed: table, row, column, recomputed, input_reach, all_rows.
        counts: table, row, n: the number of cases of which that row has shares.
    """
    cells = printed_cells().join(recomputed, on=["table", "row", "column"], how="left", maintain_order="left")
    cells = cells.join(counts, on=["table", "row"], how="left", maintain_order="left")
    return (
        cells.with_columns(pl.col("recomputed").fill_nan(None))
        .with_columns(verdict=_verdict())
        .with_columns(note=pl.coalesce(*map(_note, NOTES), _share_note(), _rounding_note()))
        .select(list(PUBLISHED_CELLS))
        .cast(PUBLISHED_CELLS)
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
    off = (pl.col("recomputed") - pl.col("published")).abs()
    half_unit = 0.5 * pl.lit(10.0).pow(-pl.col("decimals")) + TOLERANCE
    return (
        pl.when(pl.col("recomputed").is_null())
        .then(pl.lit("not in the data"))
        .when(pl.col("published").is_null())
        .then(pl.lit("not printed"))
        .when(off <= half_unit)
        .then(pl.lit("equal"))
        .when(off <= half_unit + pl.col("input_reach"))
        .then(pl.lit("within rounding"))
        .otherwise(pl.lit("differs"))
    )


def _note(note: Note) -> pl.Expr:
    fits = (pl.col("table") == note.table) & pl.col("verdict").is_in(note.verdicts)
    if note.rows is not None:
        fits &= pl.col("row").is_in(note.rows)
    return pl.when(fits).then(pl.lit(note.text))


def _share_note() -> pl.Expr:
    """Return a note with the recomputed and the printed count, for shares that differ."""
    recomputed, printed = ((pl.col(name) * pl.col("n")).round().cast(pl.Int64) for name in ("recomputed", "published"))
    differs = (pl.col("table") == "2") & pl.col("column").str.starts_with("r ") & (pl.col("verdict") == "differs")
    row, column = UNEXPLAINED
    more = pl.when(row=row, column=column).then(pl.lit(UNEXPLAINED_NOTE)).otherwise(pl.lit(""))
    counts = "{} of {} cases; the printed share comes closest to {} of {}.{}"
    return pl.when(differs).then(pl.format(counts, recomputed, "n", printed, "n", more))


def _rounding_note() -> pl.Expr:
    unit = pl.lit(10.0).pow(-pl.col("decimals"))
    is_truncated = (((pl.col("recomputed") - pl.col("published")) / unit).is_between(0, 1)) & (pl.col("published") > 0)
    reason = "Run means are released to four decimals, which is not enough to compute this cell more precisely."
    return pl.when(pl.col("verdict") == "within rounding").then(
        pl.when(is_truncated)
        .then(pl.lit(f"{reason} The printed digits are those of a truncated number, while other cells are rounded."))
        .otherwise(pl.lit(reason))
    )
