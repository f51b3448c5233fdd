"""Define what a reproduction of published tables is, and run it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evaluator.errors import ConfigError, DatasetError
from evaluator.files.whole import csv_text, write_bytes, write_table, writing_to
from evaluator.progress import Progress, Stage

if TYPE_CHECKING:
    import polars as pl

PAGE = "report.html"

Tables = Mapping[str, "pl.DataFrame"]
"""Recomputed tables by name."""


class ReleasedFile(NamedTuple):
    """A Parquet file of the released results."""

    name: str  # "results.parquet"
    about: str  # what a row is, and the file of the authors it was made from
    columns: Mapping[str, "pl.DataType"]  # that it must have; whole numbers may be of any width


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A paper whose published tables are recomputed from the results that its authors released.

    `recompute` takes what `read` returns. Its result has `tables`, by the names of their files.
    """

    title: str  # authors, year, and the recomputed tables
    source: str  # repository of the released results, or the paper
    files: tuple[ReleasedFile, ...] = ()  # that the data folder must have; none: the results are in the package
    read: Callable[[Path], Any]  # checks columns and rows; raises DatasetError. Without files its argument is not used
    recompute: Callable[[Any], Stage[Any]]
    summary_lines: Callable[[Any], Iterator[str]]  # shown in a terminal

    # Of the page:
    kicker: str
    heading: str
    subject: Callable[[Any], str]
    sections: Callable[[Any], Iterator[Any]]  # report.section.Section


def reproduce(reproduction: Reproduction, data: Path | None, out: Path) -> Stage[Any]:
    """Recompute a paper's tables and write OUT/tables/*.parquet, the same as *.csv, and OUT/report.html.

    Equal input files give equal output, byte for byte. Raises DatasetError for files that are missing or have other
    columns or rows, before OUT is made, and ConfigError where a data folder is missing or not needed.
    """
    from evaluator.report.page import Header, write_page  # here, because the command line lists papers without pages

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
    """Yield a line for each row of a table, for a terminal: the first column on the left, the others on the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for name, *cells in texts:
        yield "  ".join([name.ljust(widths[0]), *map(str.rjust, cells, widths[1:])])


def require_values(path: Path, file: ReleasedFile, rows: "pl.LazyFrame") -> None:
    """Raise DatasetError for a column of another type than the released file has, and for one with missing values."""
    for name, dtype in rows.collect_schema().items():
        if not _is_of(dtype, file.columns[name]):
            raise DatasetError(f"{path}: column {name!r} must be {file.columns[name]} and is {dtype}.")
    for name, n_missing in rows.null_count().collect(engine="streaming").row(0, named=True).items():
        if n_missing:
            raise DatasetError(f"{path}: column {name!r} has {n_missing:,} missing values. Every row needs one.")


def _is_of(dtype: Any, expected: Any) -> bool:
    import polars as pl  # here, because the command line lists papers without it

    if isinstance(dtype, pl.List) and isinstance(expected, pl.List):
        return _is_of(dtype.inner, expected.inner)
    is_whole, is_text = expected == pl.Int64, expected == pl.String
    return bool(dtype == expected or (is_whole and dtype.is_integer()) or (is_text and dtype == pl.Categorical))


def require_files(reproduction: Reproduction, folder: Path) -> None:
    """Raise DatasetError, with the needed files and where they were released, if one is missing."""
    missing = [file.name for file in reproduction.files if not (folder / file.name).is_file()]
    if missing:
        needed = "\n".join(
            f"  {file.name}: {file.about}\n    columns {', '.join(file.columns)}" for file in reproduction.files
        )
        raise DatasetError(
            f"{folder} lacks {', '.join(missing)}. {reproduction.title}: the results are those of "
            f"{reproduction.source}, as these Parquet files:\n{needed}\nName their folder with --data."
        )
