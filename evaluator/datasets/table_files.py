"""Read the rows of a table: CSV, JSON lines, the first sheet of an Excel file, Arrow or Parquet."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.datasets.parquet_columns import read_columns, read_names
from evaluator.errors import DatasetError, is_panic, shown
from evaluator.files.json_files import parse_json
from evaluator.files.whole import read_bytes, reason

SUFFIXES = (".csv", ".jsonl", ".xlsx", ".arrow", ".parquet")
_READ_AS_TEXTS = (".csv", ".xlsx")


def read_rows(path: Path, columns: Sequence[str], hint: str) -> Iterator[tuple[Any, ...]]:
    """Yield the cells of these columns for each row, in the file's order; all cells of CSV and Excel files are texts.

    Raises DatasetError if one column is named for two purposes, the file cannot be read or lacks a column; in the last
    case the message ends in `hint`.
    """
    if path.suffix == ".jsonl":
        _require_distinct(path, columns)
        for where, row in _json_rows(path):
            _require_columns(row, columns, where, hint)
            yield tuple(row[name] for name in columns)
        return
    yield from read_frame(path, columns, hint).iter_rows()


def read_frame(path: Path, columns: Sequence[str], hint: str) -> pl.DataFrame:
    """Return columns of a table that is no file of JSON lines. Raises as read_rows does."""
    _require_distinct(path, columns)
    _require_columns(column_names(path), columns, str(path), hint)
    return _read_texts(path, columns) if path.suffix in _READ_AS_TEXTS else read_columns(path, columns)


def column_names(path: Path) -> list[str]:
    """Return the names of a table's columns; of JSON lines, those of the first row. Raises DatasetError."""
    if path.suffix not in SUFFIXES:
        sheet = " Save a spreadsheet as .xlsx, or as CSV in UTF-8." if path.suffix in (".xls", ".xlsm", ".ods") else ""
        raise DatasetError(f"{path}: a table must end in {', '.join(SUFFIXES)}; a BIG-bench task in .json.{sheet}")
    if path.suffix == ".jsonl":
        return next((list(row) for _, row in _json_rows(path)), [])
    return _read_texts(path).columns if path.suffix in _READ_AS_TEXTS else read_names(path)


def parsed(text: str) -> Any:
    """Return a text read as JSON, or the text itself if it is not JSON."""
    try:
        return parse_json(text)
    except ValueError:
        return text


def _read_texts(path: Path, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Read columns of a file whose cells are all taken as texts; without columns, only their names."""
    return _read_csv(path, columns) if path.suffix == ".csv" else _read_sheet(path, columns)


def _read_sheet(path: Path, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Read columns of the first sheet of an Excel file, whose first row names them; numbers as Excel stores them."""
    import fastexcel  # here, because few tables are sheets

    try:
        book = fastexcel.read_excel(read_bytes(path))
        table: pl.DataFrame = book.load_sheet(0, dtypes="string", n_rows=None if columns else 0).to_polars()
    except BaseException as error:
        if not isinstance(error, (fastexcel.FastExcelError, OSError, ValueError, pl.exceptions.PolarsError)) and not (
            is_panic(error)
        ):
            raise
        what = reason(error) if isinstance(error, OSError) else str(error).split("\n")[0]
        raise DatasetError(f"{path} cannot be read as an Excel file ({what}). Save it again, or as CSV.") from error
    return table.select(columns) if columns else table


def _read_csv(path: Path, columns: Sequence[str] | None = None) -> pl.DataFrame:
    """Read columns of a CSV, all cells as texts; without columns, only their names."""
    try:
        content = read_bytes(path)
        _require_utf8(content, path)
        _require_no_repeats(content, path, columns or ())
        table = pl.read_csv(content, columns=columns, n_rows=None if columns else 0, infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DatasetError(f"{path} cannot be read as a CSV file: {error}") from error
    return table.select(columns) if columns else table  # in this order


def _require_no_repeats(content: bytes, path: Path, columns: Sequence[str]) -> None:
    """Raise DatasetError if the first row names one of these columns twice: one of the two would be lost."""
    try:
        names = next(csv.reader(StringIO(content.decode("utf-8-sig"), newline="")), [])
    except csv.Error:
        return  # such as a cell longer than its reader takes
    if repeated := [name for name in columns if names.count(name) > 1]:
        raise DatasetError(f"{path} has several columns {repeated[0]!r}. Give each its own name.")


def _require_utf8(content: bytes, path: Path) -> None:
    """Raise DatasetError, naming row and column, for bytes that are no UTF-8."""
    try:
        content.decode("utf-8")
        return
    except UnicodeDecodeError as error:
        byte = content[error.start]
    try:
        names, *rows = csv.reader(StringIO(content.decode("latin-1"), newline=""))
    except csv.Error:  # a cell longer than its reader takes, for example
        raise DatasetError(f"{path}: the byte 0x{byte:02x} is no UTF-8. Save the file as UTF-8.") from None
    cells = ((number, name, cell) for number, row in enumerate(rows) for name, cell in zip(names, row, strict=False))
    where = next((f"row {number} (from 0), column {name}" for number, name, cell in cells if _is_not_utf8(cell)), "")
    raise DatasetError(
        f"{path}, {where or 'names of columns'}: the byte 0x{byte:02x} is no UTF-8. Save the file as UTF-8."
    )


def _is_not_utf8(cell: str) -> bool:
    try:
        cell.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


def _json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row and where it is. Read without Polars, which turns numbers among texts into texts."""
    try:
        # Lines end in a newline alone: a JSON text may hold other separators, such as U+2028.
        lines = read_bytes(path).decode("utf-8-sig").split("\n")
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {reason(error)}.") from error
    except ValueError as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(line for line in lines if line.strip()):
        where = f"{path}, row {number} (from 0)"
        try:
            row = parse_json(line, object_pairs_hook=_without_repeated_keys)
        except ValueError as error:
            raise DatasetError(f"{where}: a JSON object was expected, got {line[:60]!r} ({error}).") from error
        if not isinstance(row, dict):
            raise DatasetError(f"{where}: a JSON object was expected, got {shown(row)}.")
        yield where, row


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        key = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {key!r} occurs twice, and one value would be lost")
    return row


def _require_distinct(path: Path, columns: Sequence[str]) -> None:
    twice = [name for name, count in Counter(columns).items() if count > 1]
    if twice:
        raise DatasetError(
            f"{path}: the column {twice[0]!r} is named for two purposes at once. Texts, choices, gold labels and ids "
            "are in different columns (--input-column, --choices-column, --gold-column, --id-column)."
        )


def _require_columns(present: Iterable[str], columns: Sequence[str], where: str, hint: str) -> None:
    missing = [name for name in columns if name not in present]
    if missing:
        raise DatasetError(f"{where} has no column {missing[0]!r}. It has: {', '.join(present)}. {hint}")
