"""Read tables of all supported formats: CSV and TSV, JSON lines, the first sheet of an Excel file, Arrow, Parquet.

Files may be compressed with gzip or zstd. Parquet and Arrow are read by pyarrow, which raises an error for damaged
bytes where Polars panics.
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
    rows: pl.Series  # Int64: row numbers in the file, from 0; blank rows are counted
    n_blank: int = 0  # number of blank rows that were left out


def read_rows(path: Path, columns: Sequence[str], hint: str) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield (row number from 0, cells of the columns) of a table, in the file's order.

    Cells of CSV, TSV and Excel files are texts or None. Raises DatasetError if `columns` has a name twice, or if the
    file cannot be read or lacks a column; in the last case the message ends in `hint`.
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
    """Read columns of a table in any format except JSON lines, in the given order. Raises as read_rows does."""
    return _read_table(path, ending(path), columns, "").cells


def read_parquet(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    """Read columns of a file as Arrow if its suffix is .arrow, else as Parquet. Raises as read_rows does."""
    return _read_table(path, ".arrow" if path.suffix == ".arrow" else ".parquet", columns, "").cells


def _read_table(path: Path, suffix: str, columns: Sequence[str], hint: str) -> Table:
    _require_distinct(path, columns)
    form = _form(path, suffix)
    names, read, first_rows, _ = _opened(path, form)
    if repeated := [name for name in columns if names.count(name) > 1]:  # one of the two columns would be lost
        raise DatasetError(f"{path} has several columns {repeated[0]!r}. Give each its own name.")
    with _reading(path, form.kind, form.hint):
        if not {*columns} <= {*names} and first_rows is not None and is_headerless(names, first_rows):
            hint = "Its first row looks like data, not like names of columns: put a row of names above it."
        require_columns(names, columns, str(path), hint)
        table = read(columns)
        return table._replace(cells=table.cells.select(columns))


def read_table(path: Path) -> pl.DataFrame:
    """Read all columns of a table; a file with an unknown ending is read as Parquet.

    Raises DatasetError if it cannot be read.
    """
    if ending(path) == JSON_LINES:
        with _reading(path, "JSON lines of equal columns", "Write it again."):
            return pl.DataFrame([row for _, row in json_rows(path)], infer_schema_length=None)
    form = _FORMS.get(ending(path), _FORMS[".parquet"])
    table = _opened(path, form)
    with _reading(path, form.kind, form.hint):
        return table.read(table.names).cells


def scan_columns(path: Path, columns: Sequence[str]) -> pl.LazyFrame:
    """Scan columns of a Parquet file that is too large to be read at once.

    The schema is checked and the rows are not, so this is only for files from a known source. Raises DatasetError if
    the file cannot be opened or lacks a column.
    """
    require_columns(column_names(path), columns, str(path), "")
    return scan_parquet(path).select(columns)


def column_names(path: Path) -> list[str]:
    """Return the column names of a table; for JSON lines, the keys of the first row.

    Raises DatasetError if the table cannot be read.
    """
    if ending(path) == JSON_LINES:
        return next((list(row) for _, row in json_rows(path)), [])
    return _opened(path, _form(path, ending(path))).names


def class_names(path: Path, column: str) -> list[str]:
    """Return the names of the labels 0, 1, ... of a column, from the metadata that the package `datasets` writes.

    Only Parquet and Arrow files have such metadata. Without names for the column, return an empty list.
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
    """Return the suffix of a table's file name that tells its format, in lower case: ".csv" for X.CSV.gz."""
    return _uncompressed(path).suffix.lower()


def table_stem(path: Path) -> str:
    """Return the file name without the suffixes of format and compression."""
    return _uncompressed(path).stem


def _uncompressed(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() in (".gz", ".zst") else path


def is_table(path: Path) -> bool:
    """Return whether a path is a file with the suffix of a table format."""
    return ending(path) in SUFFIXES and path.is_file()


def table_in(folder: Path, stem: str) -> Path | None:
    """Return the table with this stem in a folder, or None; of several, the table whose suffix is first in SUFFIXES."""
    found = (path for path in folder.glob("*") if table_stem(path) == stem and is_table(path))
    return min(found, key=lambda path: (SUFFIXES.index(ending(path)), path.name), default=None)


def read_texts(path: Path, columns: Sequence[str], hint: str, *, structured: Collection[str | None] = ()) -> Table:
    """Read columns of a table as texts: numbers and truth values as JSON writes them, missing cells as null.

    A float with a whole value is written without a fraction, because some programs convert a column of whole numbers
    to floats if a cell is missing. Lists and objects are allowed only in the `structured` columns, and are written as
    JSON.

    Args:
        path: the table.
        columns: names of the columns.
        hint: what to do about a missing column, for messages.
        structured: columns whose cells may be lists and objects; None is ignored.

    Raises DatasetError if the table cannot be read, lacks a column or has no rows, or if a column has cells of several
    kinds.
    """
    if ending(path) != JSON_LINES:
        table = _read_table(path, ending(path), columns, hint)
        if table.cells.height and {*table.cells.dtypes} == {pl.String()}:
            return table
        # Convert floats through their shortest text: the 32-bit number 1.1 would be 1.100000023841858 in 64 bits.
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
    """Return a cell as a text; the equal numbers 1 and 1.0 are both "1"."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    return cell if cell is None or isinstance(cell, str) else json.dumps(cell, ensure_ascii=False, default=str)


def parsed(cell: object) -> Any:
    """Parse a text as JSON, the form of lists in CSV; return text that is not JSON, and other values, unchanged."""
    try:
        return parse_json(cell) if isinstance(cell, str) else cell
    except ValueError:
        return cell


def cell_kind(cell: Any, where: str) -> str:
    """Return "text", "truth value" or "number". Raises DatasetError for other values and numbers of over 64 bits."""
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
    """A table whose column names are known and whose rows are not read yet."""

    names: list[str]
    read: Callable[[Sequence[str]], Table]  # reads the given columns of all rows
    first_rows: Iterable[Sequence[str | None]] | None = None  # for text tables and sheets, whose header may be missing
    metadata: Mapping[bytes, bytes] = {}


def _open_delimited(path: Path, content: bytes) -> _Opened:
    names, rows = delimited_table(path, content)
    first_rows = list(islice(rows, _HEADER_ROWS))
    return _Opened(names, partial(_read_delimited, names, chain(first_rows, rows)), first_rows)


def _read_delimited(names: Sequence[str], rows: Iterator[list[str]], columns: Sequence[str]) -> Table:
    """Read columns of a text table; empty cells are null."""
    places = {name: names.index(name) for name in columns}
    schema = {"": pl.Int64(), **dict.fromkeys(columns, pl.String())}
    frames, n_rows = [pl.DataFrame(schema=schema)], 0
    # Read blocks of rows, because texts need far less memory in a frame than as Python strings.
    while some := list(islice(rows, _ROWS_PER_FRAME)):
        filled = [(number, row) for number, row in enumerate(some, n_rows) if any(map(str.strip, row))]
        cells = {name: [row[place] or None for _, row in filled] for name, place in places.items()}
        frames.append(pl.DataFrame({"": [number for number, _ in filled], **cells}, schema=schema))
        n_rows += len(some)
    read = pl.concat(frames)
    return Table(read.drop(""), read[""], n_rows - read.height)


SHEET_S = 120
"""Limit of processor time for reading a sheet, in seconds; a million rows need some seconds."""

_READ_SHEET = """
import sys, fastexcel, pyarrow
sheet = fastexcel.read_excel(sys.stdin.buffer.read()).load_sheet(0, header_row=None, dtypes="string").to_arrow()
with pyarrow.ipc.new_stream(sys.stdout.buffer, sheet.schema) as stream:
    stream.write(sheet)
"""


@lru_cache(maxsize=1)  # a table is read several times: for its names, its labels and its rows
def _sheet(content: bytes) -> pl.DataFrame:
    """Read the first sheet of an Excel file as texts, column names included; numbers as Excel stores them.

    Reading runs in a process with limits, because the reader builds a rectangle of all cells up to the last row and the
    last column.
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
    """Open an Arrow file or an Arrow stream; the package `datasets` writes streams."""
    file = (pa.ipc.open_file if content[:6] == b"ARROW1" else pa.ipc.open_stream)(io.BytesIO(content))
    return _typed(file.schema, lambda columns: file.read_all().select(columns))


def _open_parquet(_path: Path, content: bytes) -> _Opened:
    file = io.BytesIO(content)
    return _typed(pq.read_schema(file), lambda columns: pq.read_table(file, columns=[*columns]))


def _typed(schema: pa.Schema, read: Callable[[Sequence[str]], pa.Table]) -> _Opened:
    """Return a table with typed columns, in which no row counts as blank."""

    def numbered(columns: Sequence[str]) -> Table:
        cells = _to_polars(read(columns))
        return Table(cells, pl.int_range(cells.height, dtype=pl.Int64, eager=True))

    return _Opened(schema.names, numbered, metadata=schema.metadata or {})


def _to_polars(table: pa.Table) -> pl.DataFrame:
    """Check an Arrow table and convert it, without column metadata, in which other programs store arbitrary bytes."""
    table.validate(full=True)  # checks that texts are UTF-8 and offsets lie within their buffers
    schema = pa.schema([field.remove_metadata() for field in table.schema])
    _require_utf8_names(schema)
    frame = pl.from_arrow(table.cast(schema))
    assert isinstance(frame, pl.DataFrame), "a table has columns"
    pa.default_memory_pool().release_unused()  # the memory of decoding, which the pool would keep
    return frame


def _require_utf8_names(fields: Iterable[pa.Field]) -> None:
    """Raise UnicodeError for names and metadata, at any depth, that are not UTF-8, because Polars panics at them."""
    for field in fields:
        for text in (field.name.encode(), *(text for pair in (field.metadata or {}).items() for text in pair)):
            text.decode()
        _require_utf8_names(field.type.field(number) for number in range(field.type.num_fields))


_ROWS_PER_FRAME = 65_536
_HEADER_ROWS = 1000  # number of rows with which a header is compared, to detect a missing header


class _Form(NamedTuple):
    """A table format and the function that opens it."""

    kind: str  # name of the format; kind and hint are for messages
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
"""Suffixes of table files, in the order in which a folder is searched."""


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
    """Return the decompressed bytes of a file; compression is detected from the first bytes, not the name."""
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
"""Maximum number of bytes of a decompressed table, because a small file can decompress to a very large one."""

_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
"""First bytes of a compressed file -> codec."""


@contextmanager
def _reading(path: Path, kind: str, hint: str) -> Iterator[None]:
    """Convert the errors of readers, Polars panics included, to DatasetError."""
    try:
        yield
    except BaseException as error:
        expected = (OSError, ValueError, MemoryError, pa.ArrowException, pl.exceptions.PolarsError)
        if not isinstance(error, expected) and not is_panic(error):
            raise
        what = reason(error) if isinstance(error, OSError) else str(error)
        raise DatasetError(f"{path} cannot be read as {kind} ({what}). {hint}") from error


def json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the row numbers from 0 and the cells of JSON lines, without blank lines.

    Polars is not used, because it converts numbers in a column of texts to texts. Raises DatasetError, naming the row,
    for a line that is not a JSON object or has a key twice.
    """
    try:
        # Only "\n" ends a line: a JSON text may contain other line separators, such as U+2028.
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
    """Raise DatasetError, which ends in `hint`, if the table `where` lacks any of `columns`."""
    if missing := [name for name in columns if name not in present]:
        if missing[0].strip() in map(str.strip, present):
            hint = "The two differ in spaces: write the name as the table has it."
        raise DatasetError(
            f"{unknown_name(f'{where} has no column', missing[0], present, listed='It has')} {hint}".rstrip()
        )
