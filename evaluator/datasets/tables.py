"""Read tables of any format: CSV, JSON lines, the first sheet of an Excel file, Arrow, Parquet.

Parquet and Arrow are read by pyarrow, which answers damaged bytes with an error where Polars ends the thread.
"""

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from evaluator.errors import DatasetError, is_panic, shown, unknown_name
from evaluator.files.json_files import parse_json
from evaluator.files.whole import read_bytes, reason, scan_parquet
from evaluator.process import run_limited


def read_rows(path: Path, columns: Sequence[str], hint: str) -> Iterator[tuple[Any, ...]]:
    """Yield the cells of columns for each row, in the file's order; all cells of CSV and Excel files are texts.

    Raises DatasetError if one column is named for two purposes, the file cannot be read or lacks a column; in the last
    case the message ends in `hint`.
    """
    if path.suffix == JSON_LINES:
        _require_distinct(path, columns)
        for where, row in json_rows(path):
            _require_columns(row, columns, where, hint)
            yield tuple(row[name] for name in columns)
    else:
        yield from read_columns(path, columns, hint).iter_rows()


def read_columns(path: Path, columns: Sequence[str], hint: str = "") -> pl.DataFrame:
    """Return columns of a table that is no file of JSON lines, in the given order. Raises as read_rows does."""
    return _read_columns(path, path.suffix, columns, hint)


def read_parquet(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    """Return columns of a file that is Parquet, or Arrow by its suffix, whatever it is called. Raises as read_rows."""
    return _read_columns(path, ".arrow" if path.suffix == ".arrow" else ".parquet", columns, "")


def _read_columns(path: Path, suffix: str, columns: Sequence[str], hint: str) -> pl.DataFrame:
    _require_distinct(path, columns)
    form = _form(path, suffix)
    content, names = _opened(path, form, columns)
    _require_columns(names, columns, str(path), hint)
    with _reading(path, form):
        return form.read(content, columns).select(columns)


def read_table(path: Path) -> pl.DataFrame:
    """Return all columns of a table, one that no ending names as Parquet. Raises DatasetError if it cannot be read."""
    if path.suffix == JSON_LINES:
        rows = [row for _, row in json_rows(path)]
        with _reading(path, _FORMS[".csv"]._replace(kind="JSON lines of equal columns", hint="Write it again.")):
            return pl.DataFrame(rows, infer_schema_length=None)
    form = _FORMS.get(path.suffix, _FORMS[".parquet"])
    content, names = _opened(path, form)
    with _reading(path, form):
        return form.read(content, names)


def scan_columns(path: Path, columns: Sequence[str]) -> pl.LazyFrame:
    """Return columns of a Parquet file too large to be read at once. Raises as read_columns does.

    Its header is checked and its rows are not: only for files whose source is known.
    """
    _require_columns(column_names(path), columns, str(path), "")
    return scan_parquet(path).select(columns)


def column_names(path: Path) -> list[str]:
    """Return the names of a table's columns; of JSON lines, the keys of the first row. Raises DatasetError."""
    if path.suffix == JSON_LINES:
        return next((list(row) for _, row in json_rows(path)), [])
    return _opened(path, _form(path, path.suffix))[1]


def table_in(folder: Path, stem: str) -> Path | None:
    """Return the table with this stem in a folder, with any suffix of SUFFIXES, or None."""
    return next((path for suffix in SUFFIXES if (path := folder / f"{stem}{suffix}").is_file()), None)


def read_texts(path: Path, columns: Sequence[str], hint: str) -> pl.DataFrame:
    """Return columns of a table as texts: numbers and truth values as JSON writes them, missing cells as null.

    Raises DatasetError if it lacks one or has no rows, is unreadable, or has cells of several kinds in a column.
    """
    if path.suffix != JSON_LINES:
        table = read_columns(path, columns, hint)
        if table.height and {*table.dtypes} == {pl.String()}:
            return table
    rows = list(read_rows(path, columns, hint))
    if not rows:
        raise DatasetError(f"{path} holds no rows.")
    kinds: dict[str, str] = {}  # column -> kind of its first cell
    for number, row in enumerate(rows):
        for name, cell in zip(columns, row, strict=True):
            if cell is None:
                continue
            where = f"{path}, row {number} (from 0), column {name}"
            kind = _kind(cell, where)
            if kinds.setdefault(name, kind) != kind:
                raise DatasetError(
                    f"{where}: {shown(cell)} is a {kind}, and cells before it are {kinds[name]}s. Write all cells of a "
                    "column as one kind."
                )
    texts = ([cell if cell is None or isinstance(cell, str) else json.dumps(cell) for cell in row] for row in rows)
    return pl.DataFrame(list(texts), schema=dict.fromkeys(columns, pl.String()), orient="row")


def parsed(text: str) -> Any:
    """Return a text read as JSON, or the text itself if it is not JSON."""
    try:
        return parse_json(text)
    except ValueError:
        return text


def _kind(cell: Any, where: str) -> str:
    """Return the kind of a cell. Raises DatasetError for lists, objects and numbers of more than 64 bits."""
    if isinstance(cell, str):
        return "text"
    if isinstance(cell, bool):
        return "truth value"
    if isinstance(cell, int) and -(2**63) <= cell < 2**63:
        return "number"
    if isinstance(cell, float) and math.isfinite(cell):
        return "number"
    raise DatasetError(
        f"{where}: a text or a number was expected, got {shown(cell)}. Numbers are finite and, if whole, of at most 64 "
        "bits; write others as texts."
    )


SHEET_S = 120
"""Processor time for a sheet: a million rows take some seconds."""

_READ_SHEET = """
import sys, fastexcel, pyarrow
sheet = fastexcel.read_excel(sys.stdin.buffer.read()).load_sheet(0, dtypes="string").to_arrow()
with pyarrow.ipc.new_stream(sys.stdout.buffer, sheet.schema) as stream:
    stream.write(sheet)
"""


@lru_cache(maxsize=1)  # a table is read several times: its names, its labels, its rows
def _read_sheet(content: bytes) -> pl.DataFrame:
    """Read the first sheet of an Excel file, whose first row names the columns; numbers as Excel stores them.

    With limits, because its reader makes a rectangle of all cells up to the last row and the last column.
    """
    return _to_polars(_open_arrow(run_limited(_READ_SHEET, content, seconds=SHEET_S)).read_all())


def _open_arrow(content: bytes) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
    """Open an Arrow file, or a stream, as the package `datasets` writes."""
    return (pa.ipc.open_file if content[:6] == b"ARROW1" else pa.ipc.open_stream)(io.BytesIO(content))


def _to_polars(table: pa.Table) -> pl.DataFrame:
    """Convert a checked table. Metadata of columns goes, as other programs keep bytes in it."""
    table.validate(full=True)  # texts are UTF-8, and offsets lie within their buffers
    schema = pa.schema([field.remove_metadata() for field in table.schema])
    _require_utf8_names(schema)
    frame = pl.from_arrow(table.cast(schema))
    assert isinstance(frame, pl.DataFrame), "a table has columns"
    pa.default_memory_pool().release_unused()  # what decoding took, which the pool would keep
    return frame


def _require_utf8_names(fields: Iterable[pa.Field]) -> None:
    """Raise UnicodeDecodeError for names and metadata, of any depth, that are no UTF-8: Polars panics at them."""
    for field in fields:
        for text in (field.name.encode(), *(text for pair in (field.metadata or {}).items() for text in pair)):
            text.decode()
        _require_utf8_names(field.type.field(number) for number in range(field.type.num_fields))


class _Form(NamedTuple):
    """How to read a format."""

    kind: str  # for messages, as the hint
    hint: str
    names: Callable[[bytes], list[str]]
    read: Callable[[bytes, Sequence[str]], pl.DataFrame]


JSON_LINES = ".jsonl"
_FORMS = {
    ".csv": _Form(
        "a CSV file",
        "Save it again.",
        lambda content: pl.read_csv(content, n_rows=0, infer_schema=False).columns,
        lambda content, columns: pl.read_csv(content, columns=columns, infer_schema=False),
    ),
    ".xlsx": _Form(
        "an Excel file",
        "Save it again, or as CSV.",
        lambda content: _read_sheet(content).columns,
        lambda content, _: _read_sheet(content),
    ),
    ".arrow": _Form(
        "Arrow",
        "Write it again.",
        lambda content: list(_open_arrow(content).schema.names),
        lambda content, columns: _to_polars(_open_arrow(content).read_all().select(columns)),
    ),
    ".parquet": _Form(
        "Parquet",
        "Write it again.",
        lambda content: list(pq.read_schema(io.BytesIO(content)).names),
        lambda content, columns: _to_polars(pq.read_table(io.BytesIO(content), columns=list(columns))),
    ),
}
SUFFIXES = (".csv", JSON_LINES, ".xlsx", ".arrow", ".parquet")
"""Endings of tables, in the order in which a folder is searched."""


def _form(path: Path, suffix: str) -> _Form:
    if suffix not in _FORMS:
        sheet = " Save a spreadsheet as .xlsx, or as CSV in UTF-8." if suffix in (".xls", ".xlsm", ".ods") else ""
        raise DatasetError(f"{path}: a table must end in {', '.join(SUFFIXES)}; a BIG-bench task in .json.{sheet}")
    return _FORMS[suffix]


def _opened(path: Path, form: _Form, columns: Sequence[str] = ()) -> tuple[bytes, list[str]]:
    """Return the bytes of a table and the names of its columns. Raises DatasetError if it cannot be read."""
    with _reading(path, form):
        content = read_bytes(path)
    if form is _FORMS[".csv"]:
        _check_csv(path, content, columns)
    with _reading(path, form):
        return content, form.names(content)


@contextmanager
def _reading(path: Path, form: _Form) -> Iterator[None]:
    """Convert the errors of all readers to DatasetError."""
    try:
        yield
    except BaseException as error:
        expected = (OSError, ValueError, MemoryError, pa.ArrowException, pl.exceptions.PolarsError)
        if not isinstance(error, expected) and not is_panic(error):
            raise
        what = reason(error) if isinstance(error, OSError) else str(error)
        raise DatasetError(f"{path} cannot be read as {form.kind} ({what}). {form.hint}") from error


def _check_csv(path: Path, content: bytes, columns: Sequence[str]) -> None:
    """Raise DatasetError for bytes that are no UTF-8, and for columns that the first row names twice."""
    try:
        names = next(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline="")), [])
    except UnicodeDecodeError as error:
        text = error.object  # without a byte order mark
        where = _cell_at(text[: error.start].decode())
        raise DatasetError(
            f"{path}{where}: the byte 0x{text[error.start]:02x} is no UTF-8. Save the file as UTF-8."
        ) from None
    except csv.Error:  # such as a cell longer than its reader takes
        return
    if repeated := [name for name in columns if names.count(name) > 1]:  # one of the two would be lost
        raise DatasetError(f"{path} has several columns {repeated[0]!r}. Give each its own name.")


def _cell_at(before: str) -> str:
    """Return the row and the column of the cell that follows the beginning of a CSV file, for messages."""
    try:
        names, *rows = csv.reader(io.StringIO(f"{before}?", newline=""))
        return f", row {len(rows) - 1} (from 0), column {names[len(rows[-1]) - 1]}" if rows else ", names of columns"
    except (csv.Error, IndexError):  # a cell longer than its reader takes; more cells than names
        return ""


def json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row and where it is. Read without Polars, which turns numbers among texts into texts."""
    try:
        # Lines end in a newline alone: a JSON text may hold other separators, such as U+2028.
        lines = read_bytes(path).decode("utf-8-sig").split("\n")
    except (OSError, ValueError) as error:
        what = reason(error) if isinstance(error, OSError) else error
        raise DatasetError(f"{path} cannot be read: {what}.") from error
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
    if len({*columns}) < len(columns):
        twice = next(name for name, count in Counter(columns).items() if count > 1)
        raise DatasetError(
            f"{path}: the column {twice!r} is named for two purposes at once. Texts, choices, gold labels and ids "
            "are in different columns (--input-column, --choices-column, --gold-column, --id-column)."
        )


def _require_columns(present: Iterable[str], columns: Sequence[str], where: str, hint: str) -> None:
    if missing := [name for name in columns if name not in present]:
        raise DatasetError(
            f"{unknown_name(f'{where} has no column', missing[0], present, listed='It has')} {hint}".rstrip()
        )
