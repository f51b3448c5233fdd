"""Define the reproduction of a paper's tables, and run it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evaluator.errors import ConfigError, DatasetError
from evaluator.files.whole import write_bytes, write_table, writing_to
from evaluator.progress import Progress, Stage
from evaluator.redaction import csv_text

if TYPE_CHECKING:
    import polars as pl

PAGE = "report.html"

Tables = Mapping[str, "pl.DataFrame"]
"""File name of a table, without suffix -> recomputed table."""


class ReleasedFile(NamedTuple):
    """A Parquet file of the released results."""

    name: str  # file name, for example "results.parquet"
    about: str  # meaning of a row, and the authors' file from which this file was made
    # Required columns and their types; Int64 allows integers of any width, and String allows Categorical.
    columns: Mapping[str, "pl.DataType"]


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """The functions and texts that recompute a paper's published tables from the results that its authors released.

    The result of `read` is the argument of `recompute`. The result of `recompute` has an attribute `tables` (Tables)
    and is the argument of the other functions.
    """

    title: str  # authors, year, and the recomputed tables
    source: str  # repository of the released results, or the paper
    files: tuple[ReleasedFile, ...] = ()  # files that the data folder must have; empty: the package has the results
    read: Callable[[Path], Any]  # reads and checks the data folder; raises DatasetError. Without files, ignores it
    recompute: Callable[[Any], Stage[Any]]
    summary_lines: Callable[[Any], Iterator[str]]  # lines to print in a terminal

    # Content of the page:
    kicker: str
    heading: str
    subject: Callable[[Any], str]
    sections: Callable[[Any], Iterator[Any]]  # report.section.Section


def reproduce(reproduction: Reproduction, data: Path | None, out: Path) -> Stage[Any]:
    """Recompute a paper's tables; write OUT/tables/*.parquet, the same tables as *.csv, and OUT/report.html.

    Equal input files give equal output, byte for byte.

    Args:
        reproduction: the paper.
        data: folder of the released results; None if the package has them.
        out: folder of the results.

    Raises, before OUT is made, DatasetError for files that are missing or have unexpected columns or rows, and
    ConfigError if a data folder is missing or not needed.
    """
    from evaluator.report.page import Header, write_page  # imported here: the command line lists papers without pages

    if (data is None) == bool(reproduction.files):
        needed = "needs the folder of the released results" if reproduction.files else "has its data in the package"
        hint = "Name it with" if reproduction.files else "Leave out"
        raise ConfigError(f"{reproduction.title}: it {needed}. {hint} --data.")
    folder = data or Path()
    require_files(reproduction, folder)
    released = reproduction.read(folder)
    with writing_to(out):
        recomputed = yield from reproduction.recompute(released)
        yield Progress(stage="Writing tables and figures", done=0, total=1, unit="pages")
        for name, table in recomputed.tables.items():
            write_table(out, name, table)
            write_bytes(out / "tables" / f"{name}.csv", csv_text(table).encode())
        heading, subject = reproduction.heading, reproduction.subject(recomputed)
        header = Header(kicker=reproduction.kicker, heading=heading, subject=subject)
        write_page(out / PAGE, f"{heading}, recomputed", header, list(reproduction.sections(recomputed)))
        yield Progress(stage="Writing tables and figures", done=1, total=1, unit="pages")
    return recomputed


def text_table(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield one line per row of a table, for a terminal; the first column is left-aligned, others are right-aligned."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for name, *cells in texts:
        yield "  ".join([name.ljust(widths[0]), *map(str.rjust, cells, widths[1:])])


def require_values(path: Path, file: ReleasedFile, rows: "pl.LazyFrame") -> None:
    """Raise DatasetError for a column whose type is not that of the released file, or that has missing values."""
    for name, dtype in rows.collect_schema().items():
        if not _is_of(dtype, file.columns[name]):
            raise DatasetError(f"{path}: column {name!r} must be {file.columns[name]} and is {dtype}.")
    for name, n_missing in rows.null_count().collect(engine="streaming").row(0, named=True).items():
        if n_missing:
            raise DatasetError(f"{path}: column {name!r} has {n_missing:,} missing values. Every row needs one.")


def _is_of(dtype: Any, expected: Any) -> bool:
    import polars as pl  # imported here: the command line lists papers without Polars

    if isinstance(dtype, pl.List) and isinstance(expected, pl.List):
        return _is_of(dtype.inner, expected.inner)
    is_whole, is_text = expected == pl.Int64, expected == pl.String
    return bool(dtype == expected or (is_whole and dtype.is_integer()) or (is_text and dtype == pl.Categorical))


def require_files(reproduction: Reproduction, folder: Path) -> None:
    """Raise DatasetError if a file of the released results is missing; the message lists the files and their source."""
    missing = [file.name for file in reproduction.files if not (folder / file.name).is_file()]
    if missing:
        needed = "\n".join(
            f"  {file.name}: {file.about}\n    columns {', '.join(file.columns)}" for file in reproduction.files
        )
        raise DatasetError(
            f"{folder} lacks {', '.join(missing)}. {reproduction.title}: the results are those of "
            f"{reproduction.source}, as these Parquet files:\n{needed}\nName their folder with --data."
        )
