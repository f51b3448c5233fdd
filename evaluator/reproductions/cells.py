"""Transcribe printed tables as cells, compare every cell with its recomputed number, and show both on a page."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import polars as pl

from evaluator.files.toml_files import shipped_toml
from evaluator.report.section import Block, List, Section
from evaluator.report.table import Column, Row, Table, marked, number, text_column
from evaluator.schemas import declare

Verdict = Literal["equal", "within rounding", "differs", "not in the data", "not printed"]
"""Result of the comparison of a printed cell with its recomputed number.

`equal`: equal to the printed decimals. `within rounding`: different, but the rounding of the released numbers from
which the cell is computed can be the reason. `not in the data`: the number cannot be recomputed. `not printed`: the
transcription has no number."""

TOLERANCE = 1e-9
"""Allowance for floating-point errors in a recomputed number, which matter halfway between two printed values."""

CELL = ["table", "row", "column"]
PRINTED = declare(
    table=pl.String(),  # number of the table in the paper; for a number in the text, its section
    row=pl.String(),
    column=pl.String(),
    published=pl.Float64(),  # printed number, percentages as shares; null where no number is printed
    decimals=pl.Int64(),  # number of decimals of `published`
)
JUDGED = pl.Schema({"verdict": pl.String(), "note": pl.String()})  # a Verdict, and an explanation


VERDICTS = {  # column of COUNTS -> Verdict
    "equal": "equal",
    "within_rounding": "within rounding",
    "differ": "differs",
    "not_in_data": "not in the data",
    "not_printed": "not printed",
}
COUNTS = pl.Schema({"table": pl.String(), "n_printed": pl.Int64(), **dict.fromkeys(VERDICTS, pl.Int64())})

MARKS = {"within rounding": "≈ ", "differs": "≠ "}
"""Verdict -> mark in front of the recomputed number; other verdicts have no mark."""


class PrintedTable(NamedTuple):
    """A table of a paper."""

    number: str
    title: str
    columns: Sequence[str]
    body: str  # one line per row: name of the row, then a number per column, or "?" or "n/a" for a missing number


def printed(package: str) -> dict[str, Any]:
    """Return the content of assets/printed.toml in the package of a paper."""
    return shipped_toml(f"evaluator.reproductions.{package}", "printed")


def printed_tables(package: str) -> tuple[PrintedTable, ...]:
    """Return the tables of a paper, in printed order, from assets/printed.toml."""
    return tuple(PrintedTable(**table) for table in printed(package)["tables"])


def printed_cells(tables: Iterable[PrintedTable], *, decimals: int) -> pl.DataFrame:
    """Return the cells of printed tables, in printed order, as PRINTED; cells without a number get `decimals`."""
    cells = []
    for table in tables:
        for line in table.body.strip().splitlines():
            name, *values = line.rsplit(maxsplit=len(table.columns))
            for column, value in zip(table.columns, values, strict=True):
                cells.append((table.number, name, column, *_parsed(value, decimals)))
    return pl.DataFrame(cells, schema=PRINTED, orient="row")


def _parsed(value: str, decimals: int) -> tuple[float | None, int]:
    """Return a printed number and its number of decimals, after conversion of a percentage to a share."""
    if value in ("?", "n/a"):
        return None, decimals
    decimals = len(value.rstrip("%").partition(".")[2])
    if value.endswith("%"):
        return round(float(value[:-1]) / 100, decimals + 2), decimals + 2
    return float(value), decimals


def with_verdicts(printed: pl.DataFrame, recomputed: pl.DataFrame) -> pl.DataFrame:
    """Join printed cells with recomputed numbers, in printed order, and add the column verdict.

    Args:
        printed: PRINTED.
        recomputed: columns table, row, column, recomputed (NaN where undefined), and input_reach, the largest error of
            `recomputed` that the rounding of released numbers can cause.

    Returns:
        The columns of both; `recomputed` is null where it is undefined or missing.
    """
    cells = printed.join(recomputed, on=CELL, how="left", maintain_order="left")
    value, published = pl.col("recomputed"), pl.col("published")
    difference = (value - published).abs()
    half_unit = 0.5 * pl.lit(10.0).pow(-pl.col("decimals")) + TOLERANCE
    cases = [
        (value.is_null(), "not in the data"),
        (published.is_null(), "not printed"),
        (value.is_nan(), "not in the data"),
        (difference <= half_unit, "equal"),
        (difference <= half_unit + pl.col("input_reach"), "within rounding"),
        (pl.lit(True), "differs"),
    ]
    verdict = pl.coalesce(pl.when(holds).then(pl.lit(name)) for holds, name in cases)  # the first case that holds
    return cells.with_columns(verdict=verdict).with_columns(value.fill_nan(None))


def verdict_counts(cells: pl.DataFrame) -> pl.DataFrame:
    """Count the cells of every table by verdict, in printed order: COUNTS."""
    is_verdict = [(pl.col("verdict") == verdict).sum().alias(name) for name, verdict in VERDICTS.items()]
    by_table = cells.group_by("table", maintain_order=True)
    return by_table.agg(pl.col("published").count().alias("n_printed"), *is_verdict).cast(COUNTS)


COUNT_COLUMNS = [
    text_column("Table", "table"),
    Column("Printed", "n_printed"),
    *(Column(name.replace("_", " ").capitalize(), name) for name in VERDICTS),
]


def section(anchor: str, title: str, *content: Block, subtitle: str = "", navigation: str = "") -> Section:
    """Return a section of a paper's page, with the style sheet assets/page.css."""
    style = "evaluator.reproductions:assets/page.css"
    return Section(anchor, title, content, subtitle=subtitle, navigation=navigation or title, style=style)


def table_blocks(cells: pl.DataFrame) -> Iterator[Block]:
    """Yield a paper's table, with recomputed and printed numbers, and a list of the notes on its cells.

    Args:
        cells: PRINTED, recomputed and JUDGED, for the cells of one table.
    """

    def recomputed(cell: Row) -> str:
        decimals = cell["decimals"] + 2 if cell["decimals"] else 0
        return MARKS.get(cell["verdict"], "") + number(cell["recomputed"], decimals)

    structs = cells.select("row", "column", cell=pl.struct(pl.exclude("row", "column")))
    columns = [
        Column(
            column,
            cell=recomputed,
            of=column,
            below=(lambda cell: number(cell["published"], cell["decimals"]),),
            style=lambda cell: f"number {cell['verdict'].replace(' ', '-')}",
            data={"verdict": "verdict", "value": "recomputed"},
        )
        for column in cells["column"].unique(maintain_order=True)
    ]
    yield Table(
        structs.pivot(on="column", index="row", values="cell", maintain_order=True),
        [text_column("", "row"), *columns],
        caption="Recomputed, and below it what the paper prints; ≈ within rounding, ≠ differs.",
        data={"table": cells["table"][0]},
    )
    noted = cells.filter(pl.col("note") != "").group_by("note", maintain_order=True)
    items = []
    for note, places in noted.agg(pl.format("{}, {}", "row", "column")).iter_rows():
        listed = "; ".join(places) if len(places) <= 4 else f"{places[0]}; and {len(places) - 1} more"
        items.append(marked("{} <em>({})</em>", note, listed))
    yield List(items)
