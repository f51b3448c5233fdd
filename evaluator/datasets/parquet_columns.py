"""Read columns of a Parquet or Arrow file, whatever is in it.

By pyarrow, which answers damaged bytes with an error; Polars ends the thread that reads them.
"""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from evaluator.errors import DatasetError, is_panic
from evaluator.files.whole import read_bytes, reason, scan_parquet


def scan_columns(path: Path, columns: Sequence[str]) -> pl.LazyFrame:
    """Return these columns, in this order, of a file too large to be read at once. Raises as read_columns does.

    Its header is checked and its rows are not: only for files whose source is known.
    """
    _require_columns(path, columns)
    return scan_parquet(path).select(columns)


def read_columns(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    """Return these columns, in this order. Raises DatasetError, naming the file, if it is not Parquet or lacks one."""
    _require_columns(path, columns)
    try:
        table = _open_arrow(path).read_all().select(columns) if _is_arrow(path) else _read_parquet(path, columns)
        table.validate(full=True)  # texts are UTF-8, and offsets lie within their buffers
        frame = pl.from_arrow(_without_metadata(table))
    except BaseException as error:
        raise _refused(path, error) from error
    assert isinstance(frame, pl.DataFrame), "a table has columns"
    pa.default_memory_pool().release_unused()  # what decoding took, which the pool would keep
    return frame.select(columns)


def _without_metadata(table: pa.Table) -> pa.Table:
    """Return a table that Polars can take: it panics at names and metadata, of any depth, that are no UTF-8.

    Metadata of columns goes, as other programs keep bytes in it. Raises UnicodeDecodeError for all else.
    """
    schema = pa.schema([field.remove_metadata() for field in table.schema])
    _require_utf8(schema)
    return table.cast(schema)


def _require_utf8(fields: Iterable[pa.Field]) -> None:
    """Raise UnicodeDecodeError for a name or metadata, of a field or of one within it, that is no UTF-8."""
    for field in fields:
        texts = [field.name.encode(), *(text for pair in (field.metadata or {}).items() for text in pair)]
        for text in texts:
            text.decode()
        _require_utf8(field.type.field(number) for number in range(field.type.num_fields))


def _read_parquet(path: Path, columns: Sequence[str]) -> pa.Table:
    return pq.read_table(io.BytesIO(read_bytes(path)), columns=list(columns))


def _is_arrow(path: Path) -> bool:
    return path.suffix == ".arrow"


def _open_arrow(path: Path) -> pa.RecordBatchFileReader | pa.RecordBatchStreamReader:
    """Open an Arrow file, or a stream, as the package `datasets` writes."""
    content = io.BytesIO(read_bytes(path))
    return pa.ipc.open_file(content) if content.getvalue()[:6] == b"ARROW1" else pa.ipc.open_stream(content)


def _require_columns(path: Path, columns: Sequence[str]) -> None:
    present = read_names(path)
    if lacking := [name for name in columns if name not in present]:
        raise DatasetError(f"{path} lacks the column {lacking[0]!r}; it has {', '.join(present)}.")


def read_names(path: Path) -> list[str]:
    """Return the names of a file's columns. Raises DatasetError, naming the file, if it cannot be read."""
    try:
        schema = _open_arrow(path).schema if _is_arrow(path) else pq.read_schema(io.BytesIO(read_bytes(path)))
        return list(schema.names)
    except BaseException as error:
        raise _refused(path, error) from error


def _refused(path: Path, error: BaseException) -> BaseException:
    """Convert an error of a reader to the error to raise."""
    expected = (OSError, ValueError, MemoryError, pa.ArrowException, pl.exceptions.PolarsError, UnicodeError)
    if not isinstance(error, expected) and not is_panic(error):
        return error
    what = reason(error) if isinstance(error, OSError) else str(error)
    kind = "Arrow" if _is_arrow(path) else "Parquet"
    return DatasetError(f"{path} cannot be read as {kind} ({what}). Write it again.")
