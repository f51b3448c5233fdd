"""Read tables of any format: text with separators, JSON lines, the first sheet of an Excel file, Arrow, Parquet.

Each may be compressed by gzip or zstd. Parquet and Arrow are read by pyarrow, which answers damaged bytes with an error
where Polars ends the thread.
"""

import io
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pyarrow.parquet as pq

from evaluator.datasets.delimited import delimited_table, is_headerless
from evaluator.errors import DatasetError, is_panic, shown, unknown_name
from evaluator.files.json_files import parse_json
from evaluator.files.whole import read_bytes, reason, scan_parquet
from evaluator.process import run_limited


class Table(NamedTuple):
    """The rows of a table that are not blank."""

    cells: pl.DataFrame
    rows: pl.Series  # Int64: the number of each row in its file, from 0; blank rows count
    n_blank: int = 0


def read_rows(path: Path, columns: Sequence[str], hint: str) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the number and the cells of columns for each row, in the file's order; cells of text and Excel are texts.

    Raises DatasetError if one column is named for two purposes, the file cannot be read or lacks a column; in the last
    case the message ends in `hint`.
    """
    if ending(path) == JSON_LINES:
        _require_distinct(path, columns)
        for number, row in json_rows(path):
            require_columns(row, columns, f"{path}, row {number} (from 0)", hint)
            yield number, tuple(row[name] for name in columns)
    else:
        table = _read_table(path, ending(path), columns, hint)
        yield from zip(table.rows, table.cells.iter_rows(), strict=True)


def read_columns(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    """Return columns of a table that is no file of JSON lines, in the given order. Raises as read_rows does."""
    return _read_table(path, ending(path), columns, "").cells


def read_parquet(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    """Return columns of a file that is Parquet, or Arrow by its suffix, whatever it is called. Raises as read_rows."""
    return _read_table(path, ".arrow" if path.suffix == ".arrow" else ".parquet", columns, "").cells


def _read_table(path: Path, suffix: str, columns: Sequence[str], hint: str) -> Table:
    _require_distinct(path, columns)
    form = _form(path, suffix)
    names, read, first_rows, _ = _opened(path, form)
    if repeated := [name for name in columns if names.count(name) > 1]:  # one of the two would be lost
        raise DatasetError(f"{path} has several columns {repeated[0]!r}. Give each its own name.")
    with _reading(path, form.kind, form.hint):
        if not {*columns} <= {*names} and first_rows is not None and is_headerless(names, first_rows):
            hint = "Its first row looks like data, not like names of columns: put a row of names above it."
        require_columns(names, columns, str(path), hint)
        table = read(columns)
        return table._replace(cells=table.cells.select(columns))


def read_table(path: Path) -> pl.DataFrame:
    """Return all columns of a table, one that no ending names as Parquet. Raises DatasetError if it cannot be read."""
    if ending(path) == JSON_LINES:
        rows = [row for _, row in json_rows(path)]
        with _reading(path, "JSON lines of equal columns", "Write it again."):
            return pl.DataFrame(rows, infer_schema_length=None)
    form = _FORMS.get(ending(path), _FORMS[".parquet"])
    table = _opened(path, form)
    with _reading(path, form.kind, form.hint):
        return table.read(table.names).cells


def scan_columns(path: Path, columns: Sequence[str]) -> pl.LazyFrame:
    """Return columns of a Parquet file too large to be read at once. Raises as read_columns does.

    Its header is checked and its rows are not: only for files whose source is known.
    """
    require_columns(column_names(path), columns, str(path), "")
    return scan_parquet(path).select(columns)


def column_names(path: Path) -> list[str]:
    """Return the names of a table's columns; of JSON lines, the keys of the first row. Raises DatasetError."""
    if ending(path) == JSON_LINES:
        return next((list(row) for _, row in json_rows(path)), [])
    return _opened(path, _form(path, ending(path))).names


def class_names(path: Path, column: str) -> list[str]:
    """Return the names of the numbers 0, 1, ... in a column of Parquet or Arrow, as the package `datasets` writes them.

    Other columns and other files have none.
    """
    if ending(path) not in (".parquet", ".arrow"):
        return []
    metadata = _opened(path, _form(path, ending(path))).metadata
    try:
        feature = parse_json(metadata.get(b"huggingface", b"{}"))
    except ValueError:
        return []
    for key in ("info", "features", column):
        feature = feature.get(key) if isinstance(feature, dict) else None
    names = feature.get("names") if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" else None
    return [*map(str, names)] if isinstance(names, list) else []


def ending(path: Path) -> str:
    """Return the ending of a table's name that tells its format, in lower case: ".csv" for X.CSV.gz."""
    return _uncompressed(path).suffix.lower()


def table_stem(path: Path) -> str:
    """Return the name of a file without the endings of its format and its compression."""
    return _uncompressed(path).stem


def _uncompressed(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() in (".gz", ".zst") else path


def is_table(path: Path) -> bool:
    """Return whether a path is a file with the ending of a table."""
    return ending(path) in SUFFIXES and path.is_file()


def table_in(folder: Path, stem: str) -> Path | None:
    """Return the table with this stem in a folder, of several the one whose ending is first in SUFFIXES, or None."""
    found = (path for path in folder.glob("*") if table_stem(path) == stem and is_table(path))
    return min(found, key=lambda path: (SUFFIXES.index(ending(path)), path.name), default=None)


def read_texts(path: Path, columns: Sequence[str], hint: str, *, structured: Collection[str | None] = ()) -> Table:
    """Return columns of a table as texts: numbers and truth values as JSON writes them, missing cells as null.

    Numbers of Arrow and Parquet that are whole have no fraction, since a missing cell makes fractions of whole numbers
    in some programs. Lists and objects, which only cells of the `structured` columns may be, are written as JSON.

    Raises DatasetError if it lacks one or has no rows, is unreadable, or has cells of several kinds in a column.
    """
    if ending(path) != JSON_LINES:
        table = _read_table(path, ending(path), columns, hint)
        if table.cells.height and {*table.cells.dtypes} == {pl.String()}:
            return table
        # By its shortest text, as 1.1 in 32 bits is 1.100000023841858 in 64.
        shortest = cs.float().cast(pl.String).cast(pl.Float64).fill_nan(None)
        rows = list(zip(table.rows, table.cells.with_columns(shortest).iter_rows(), strict=True))
    else:
        rows = list(read_rows(path, columns, hint))
    if not rows:
        raise DatasetError(f"{path} holds no rows.")
    kinds: dict[str, str] = {}  # column -> kind of its first cell
    for number, row in rows:
        for name, cell in zip(columns, row, strict=True):
            if cell is None or (name in structured and isinstance(cell, list | dict)):
                continue
            where = f"{path}, row {number} (from 0), column {name}"
            kind = cell_kind(cell, where)
            if kinds.setdefault(name, kind) != kind:
                raise DatasetError(
                    f"{where}: {shown(cell)} is a {kind}, and cells before it are {kinds[name]}s. Write all cells of a "
                    "column as one kind."
                )
    written = [[cell_text(cell) for cell in row] for _, row in rows]
    texts = pl.DataFrame(written, schema=dict.fromkeys(columns, pl.String()), orient="row")
    return Table(texts, pl.Series([number for number, _ in rows], dtype=pl.Int64))


def cell_text(cell: Any) -> str | None:
    """Return a cell as a text: 1 and 1.0, which are one number, as "1"."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    return cell if cell is None or isinstance(cell, str) else json.dumps(cell, ensure_ascii=False, default=str)


def parsed(cell: object) -> Any:
    """Return a text read as JSON, as CSV holds lists; a text that is not JSON, and any other value, unchanged."""
    try:
        return parse_json(cell) if isinstance(cell, str) else cell
    except ValueError:
        return cell


def cell_kind(cell: Any, where: str) -> str:
    """Return the kind of a cell. Raises DatasetError for lists, objects and numbers of more than 64 bits."""
    if isinstance(cell, str):
        return "text"
    if isinstance(cell, bytes):
        raise DatasetError(f"{where}: the column is binary, as in {shown(cell)}. Write it as texts.")
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


class _Opened(NamedTuple):
    """A table whose columns are known, and whose rows are not read yet."""

    names: list[str]
    read: Callable[[Sequence[str]], Table]  # rows with some of the columns
    first_rows: Iterable[Sequence[str | None]] | None = None  # of a table of texts, whose names may be missing
    metadata: Mapping[bytes, bytes] = {}


def _open_delimited(path: Path, content: bytes) -> _Opened:
    names, rows = delimited_table(path, content)
    first_rows = list(islice(rows, _HEADER_ROWS))
    return _Opened(names, partial(_read_delimited, names, chain(first_rows, rows)), first_rows)


def _read_delimited(names: Sequence[str], rows: Iterator[list[str]], columns: Sequence[str]) -> Table:
    """Read a table of text; empty cells are null."""
    places = {name: names.index(name) for name in columns}
    schema = {"": pl.Int64(), **dict.fromkeys(columns, pl.String())}
    frames, n_rows = [pl.DataFrame(schema=schema)], 0
    # Some rows at a time, as texts take a fraction of the memory in a frame.
    while some := list(islice(rows, _ROWS_PER_FRAME)):
        filled = [(number, row) for number, row in enumerate(some, n_rows) if any(map(str.strip, row))]
        cells = {name: [row[place] or None for _, row in filled] for name, place in places.items()}
        frames.append(pl.DataFrame({"": [number for number, _ in filled], **cells}, schema=schema))
        n_rows += len(some)
    read = pl.concat(frames)
    return Table(read.drop(""), read[""], n_rows - read.height)


SHEET_S = 120
"""Processor time for a sheet: a million rows take some seconds."""

_READ_SHEET = """
import sys, fastexcel, pyarrow
sheet = fastexcel.read_excel(sys.stdin.buffer.read()).load_sheet(0, header_row=None, dtypes="string").to_arrow()
with pyarrow.ipc.new_stream(sys.stdout.buffer, sheet.schema) as stream:
    stream.write(sheet)
"""


@lru_cache(maxsize=1)  # a table is read several times: its names, its labels, its rows
def _sheet(content: bytes) -> pl.DataFrame:
    """Read the first sheet of an Excel file, names of columns included; numbers as Excel stores them.

    With limits, because its reader makes a rectangle of all cells up to the last row and the last column.
    """
    return _to_polars(pa.ipc.open_stream(run_limited(_READ_SHEET, content, seconds=SHEET_S)).read_all())


def _open_sheet(_path: Path, content: bytes) -> _Opened:
    first, sheet = _sheet(content).head(1), _sheet(content)[1:]
    names = [name or "" for row in first.iter_rows() for name in row]

    def read(columns: Sequence[str]) -> Table:
        is_filled = sheet.select(pl.any_horizontal(pl.all().str.strip_chars() != "").fill_null(False)).to_series()
        cells = sheet.filter(is_filled).select(pl.nth(names.index(name)).alias(name) for name in columns)
        return Table(cells, is_filled.arg_true().cast(pl.Int64), int((~is_filled).sum()))

    return _Opened(names, read, sheet.head(_HEADER_ROWS).iter_rows())


def _open_arrow(_path: Path, content: bytes) -> _Opened:
    """Open an Arrow file, or a stream, as the package `datasets` writes."""
    file = (pa.ipc.open_file if content[:6] == b"ARROW1" else pa.ipc.open_stream)(io.BytesIO(content))
    return _typed(file.schema, lambda columns: file.read_all().select(columns))


def _open_parquet(_path: Path, content: bytes) -> _Opened:
    file = io.BytesIO(content)
    return _typed(pq.read_schema(file), lambda columns: pq.read_table(file, columns=[*columns]))


def _typed(schema: pa.Schema, read: Callable[[Sequence[str]], pa.Table]) -> _Opened:
    """Return a table of typed columns, none of whose rows is blank."""

    def numbered(columns: Sequence[str]) -> Table:
        cells = _to_polars(read(columns))
        return Table(cells, pl.int_range(cells.height, dtype=pl.Int64, eager=True))

    return _Opened(schema.names, numbered, metadata=schema.metadata or {})


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


_ROWS_PER_FRAME = 65_536
_HEADER_ROWS = 1000  # of a table whose first row may be data


class _Form(NamedTuple):
    """How to read a format."""

    kind: str  # for messages, as the hint
    hint: str
    open: Callable[[Path, bytes], _Opened]


JSON_LINES = ".jsonl"
_FORMS = {
    ".csv": _Form("a CSV file", "Save it again.", _open_delimited),
    ".tsv": _Form("a TSV file", "Save it again.", _open_delimited),
    ".xlsx": _Form("an Excel file", "Save it again, or as CSV.", _open_sheet),
    ".arrow": _Form("Arrow", "Write it again.", _open_arrow),
    ".parquet": _Form("Parquet", "Write it again.", _open_parquet),
}
SUFFIXES = (".csv", ".tsv", JSON_LINES, ".xlsx", ".arrow", ".parquet")
"""Endings of tables, in the order in which a folder is searched."""


def _form(path: Path, suffix: str) -> _Form:
    if suffix not in _FORMS:
        sheet = " Save a spreadsheet as .xlsx, or as CSV in UTF-8." if suffix in (".xls", ".xlsm", ".ods") else ""
        raise DatasetError(
            f"{path}: a table must end in {', '.join(SUFFIXES)}, with .gz or .zst after it if it is compressed; a "
            f"BIG-bench task in .json.{sheet}"
        )
    return _FORMS[suffix]


def _opened(path: Path, form: _Form) -> _Opened:
    """Open a table. Raises DatasetError if it cannot be read."""
    with _reading(path, form.kind, form.hint):
        return form.open(path, _content(path))


def _content(path: Path) -> bytes:
    """Return the bytes of a file, without its compression, whatever it is called."""
    content = read_bytes(path)
    for start, codec in _COMPRESSIONS.items():
        if content.startswith(start):
            with pa.CompressedInputStream(pa.BufferReader(content), codec) as stream:
                content = bytes(stream.read(MAX_UNCOMPRESSED + 1))
            if len(content) > MAX_UNCOMPRESSED:
                raise ValueError(f"it holds more than {MAX_UNCOMPRESSED // 2**30} GiB: decompress it first")
            return content
    return content


MAX_UNCOMPRESSED = 4 * 2**30
"""Bytes of a compressed table, because a few bytes can stand for very many."""

_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
"""First bytes of files, and how they are compressed."""


@contextmanager
def _reading(path: Path, kind: str, hint: str) -> Iterator[None]:
    """Convert the errors of all readers to DatasetError."""
    try:
        yield
    except BaseException as error:
        expected = (OSError, ValueError, MemoryError, pa.ArrowException, pl.exceptions.PolarsError)
        if not isinstance(error, expected) and not is_panic(error):
            raise
        what = reason(error) if isinstance(error, OSError) else str(error)
        raise DatasetError(f"{path} cannot be read as {kind} ({what}). {hint}") from error


def json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the cells of each row. Read without Polars, which turns numbers among texts into texts."""
    try:
        # Lines end in a newline alone: a JSON text may hold other separators, such as U+2028.
        lines = _content(path).decode("utf-8-sig").split("\n")
    except (OSError, ValueError, pa.ArrowException) as error:
        what = reason(error) if isinstance(error, OSError) else error
        raise DatasetError(f"{path} cannot be read: {what}.") from error
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        where = f"{path}, row {number} (from 0)"
        try:
            row = parse_json(line, _ROW)
        except ValueError as error:
            if line.lstrip().startswith("["):
                raise DatasetError(f"{where}: a JSON list begins here. Write each of its objects on a line.") from error
            raise DatasetError(f"{where}: a JSON object was expected, got {line[:60]!r} ({error}).") from error
        if not isinstance(row, dict):
            raise DatasetError(f"{where}: a JSON object was expected, got {shown(row)}.")
        yield number, row


def _without_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError(
            f"the key {first_repeated(key for key, _ in pairs)!r} occurs twice, and one value would be lost"
        )
    return row


_ROW = json.JSONDecoder(object_pairs_hook=_without_repeated_keys)


def first_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurs more than once, or None."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _require_distinct(path: Path, columns: Sequence[str]) -> None:
    if (twice := first_repeated(columns)) is not None:
        raise DatasetError(
            f"{path}: the column {twice!r} is named for two purposes at once. Texts, choices, gold labels and ids "
            "are in different columns (--input-column, --choices-column, --gold-column or `gold` of a question, "
            "--id-column)."
        )


def require_columns(present: Iterable[str], columns: Sequence[str], where: str, hint: str) -> None:
    """Raise DatasetError, which ends in `hint`, for a column that the table `where` has not."""
    if missing := [name for name in columns if name not in present]:
        if missing[0].strip() in map(str.strip, present):
            hint = "The two differ in spaces: write the name as the table has it."
        raise DatasetError(
            f"{unknown_name(f'{where} has no column', missing[0], present, listed='It has')} {hint}".rstrip()
        )
