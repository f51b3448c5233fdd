"""Transcribe printed tables as cells, and judge each cell by its recomputed number."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import polars as pl

Verdict = Literal["equal", "within rounding", "differs", "not in the data", "not printed"]
"""`equal`: to the printed decimals. `within rounding`: different, but the rounding of the released numbers from which
the cell is computed can be the reason."""

TOLERANCE = 1e-9
"""Floating-point error of a recomputed number; it matters for a number halfway between two printed ones."""

CELL = ["table", "row", "column"]
PRINTED = pl.Schema(
    {
        "table": pl.String(),  # its number in the paper, or the section of a number in the text
        "row": pl.String(),
        "column": pl.String(),
        "published": pl.Float64(),  # percentages as shares; null where there is no number
        "decimals": pl.Int64(),  # as printed
    }
)
JUDGED = pl.Schema({"verdict": pl.String(), "note": pl.String()})  # Verdict


class PrintedTable(NamedTuple):
    """A table of a paper."""

    number: str
    title: str
    columns: Sequence[str]
    body: str  # a line for each row: its name, then a number for each column; "?" or "n/a" where there is none


def printed_cells(tables: Iterable[PrintedTable], *, decimals: int) -> pl.DataFrame:
    """Return every cell of printed tables in printed order, PRINTED; a cell without a number gets `decimals`."""
    cells = []
    for table in tables:
        for line in table.body.strip().splitlines():
            name, *numbers = line.rsplit(maxsplit=len(table.columns))
            for column, number in zip(table.columns, numbers, strict=True):
                cells.append((table.number, name, column, *_parsed(number, decimals)))
    return pl.DataFrame(cells, schema=PRINTED, orient="row")


def _parsed(number: str, decimals: int) -> tuple[float | None, int]:
    """Return a printed number, a percentage as a share, and its decimals."""
    if number in ("?", "n/a"):
        return None, decimals
    decimals = len(number.rstrip("%").partition(".")[2])
    if number.endswith("%"):
        return round(float(number[:-1]) / 100, decimals + 2), decimals + 2
    return float(number), decimals


def with_verdicts(printed: pl.DataFrame, recomputed: pl.DataFrame) -> pl.DataFrame:
    """Join printed cells with recomputed ones and add a Verdict, in printed order.

    Args:
        printed: PRINTED.
        recomputed: table, row, column, recomputed (NaN where it is undefined), and input_reach, the largest error of
            `recomputed` from the rounding of released numbers.
    """
    cells = printed.join(recomputed, on=CELL, how="left", maintain_order="left")
    number, published = pl.col("recomputed"), pl.col("published")
    difference = (number - published).abs()
    half_unit = 0.5 * pl.lit(10.0).pow(-pl.col("decimals")) + TOLERANCE
    verdict = (
        pl.when(number.is_null())
        .then(pl.lit("not in the data"))
        .when(published.is_null())
        .then(pl.lit("not printed"))
        .when(number.is_nan())
        .then(pl.lit("not in the data"))
        .when(difference <= half_unit)
        .then(pl.lit("equal"))
        .when(difference <= half_unit + pl.col("input_reach"))
        .then(pl.lit("within rounding"))
        .otherwise(pl.lit("differs"))
    )
    return cells.with_columns(verdict=verdict).with_columns(number.fill_nan(None))
