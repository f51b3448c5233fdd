"""Tables between one step and the next: temporary files without a name, which Polars scans, sorts and joins.

Polars' streaming engine sorts and joins tables of any size: what exceeds its memory budget is moved to disk
(`POLARS_OOC_MEMORY_BUDGET_MB` and `POLARS_OOC_SPILL_DIR`; the command sets the first, in `evaluator/process.py`).
A result that need not fit into memory is written by `kept` and read by `slices`.

Write and read Arrow shards, which are complete or absent.

A shard is written under a temporary name, flushed to disk and renamed. It is valid once the manifest names it, which is
written after it in the same way. So a process killed at any moment leaves either the old state or the new one.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from evaluator.errors import StoreError, WriteError
from evaluator.files.whole import file_digest, reason, scan_parquet, write_bytes

ROWS_PER_SLICE = 65_536
"""Rows of a large table that are in memory together."""

ROWS_PER_GROUP = 16_384
"""Rows that a reader skips together if a condition on the columns that rows are sorted by excludes all of them."""

Rows = pl.LazyFrame | Iterable[pl.DataFrame]


@contextmanager
def kept(
    rows: Rows, folder: Path, schema: pl.Schema | None = None, *, rows_per_group: int = ROWS_PER_GROUP
) -> Iterator[pl.LazyFrame]:
    """Write rows to a temporary file without a name, and yield a scan of it. The file vanishes with the process.

    Args:
        rows: a query, which the streaming engine computes, or frames, of which one is in memory at a time.
        folder: of the file.
        schema: of the frames.
        rows_per_group: rows that a reader skips together.

    Raises WriteError if the file cannot be written.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(TemporaryFile(dir=folder))
            if isinstance(rows, pl.LazyFrame):
                rows.sink_parquet(file, compression="lz4", row_group_size=rows_per_group, engine="streaming")
            else:
                assert schema is not None, "frames have a schema"
                _write_frames(file, rows, schema, rows_per_group)
            file.flush()
        except OSError as error:
            raise WriteError(
                f"Rows cannot be kept in {folder} for the next step: {reason(error)}. Make room there, and run the "
                "same command again."
            ) from error
        del rows  # which may hold frames in memory as long as this function waits
        yield scan_parquet(Path(f"/dev/fd/{file.fileno()}"))


def slices(rows: pl.LazyFrame, n_rows: int = ROWS_PER_SLICE) -> Iterator[pl.DataFrame]:
    """Yield the rows of a scan in order, `n_rows` at a time; without rows, one frame with the columns.

    (LazyFrame.collect_batches runs ahead of its reader.)
    """
    height = rows.select(pl.len()).collect().item()
    for first in range(0, max(height, 1), n_rows):
        yield rows.slice(first, n_rows).collect()


def id_numbers(name: str) -> pl.Expr:
    """Return the ids in a column, 32 hex digits each, as numbers of 16 bytes: a third of what the texts take."""
    return pl.col(name).str.decode("hex").bin.reinterpret(dtype=pl.Int128, endianness="big")


def _write_frames(file: IO[bytes], frames: Iterable[pl.DataFrame], schema: pl.Schema, rows_per_group: int) -> None:
    arrow = schema.to_frame().to_arrow(compat_level=pl.CompatLevel.oldest()).schema
    # Not as Arrow: pages of a mapped file that were read count as memory of this process.
    with pq.ParquetWriter(file, arrow, compression="lz4", use_dictionary=False) as writer:
        for frame in frames:
            writer.write_table(frame.to_arrow(compat_level=pl.CompatLevel.oldest()), rows_per_group)


def write_shard(path: Path, frame: pl.DataFrame) -> str:
    """Write one shard and return the SHA-256 of its bytes; equal frames give equal bytes."""
    # In plain Arrow layout, taken row by row: bytes of null values, and texts of other rows in lists and string views,
    # depend on how the frame was built.
    table = frame.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    table = table.take(pa.array(np.arange(frame.height)))
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    content = pa.BufferOutputStream()
    with pa.ipc.new_file(content, table.schema, options=options) as writer:
        writer.write_table(table)
    return write_bytes(path, memoryview(content.getvalue()))


def compact_copy(rows: pl.DataFrame) -> pl.DataFrame:
    """Return a copy of rows that holds only their own texts in memory; a view keeps those of all rows of its frame."""
    copied = pl.from_arrow(rows.to_arrow(compat_level=pl.CompatLevel.oldest()))
    assert isinstance(copied, pl.DataFrame), "it is a table"
    return copied


def write_shards(folder: Path, name: str, rows: pl.LazyFrame, *, rows_per_shard: int) -> dict[str, str]:
    """Write the rows of a scan as shards of `rows_per_shard` rows (at least one shard; the last may have fewer).

    Returns file name -> SHA-256, in order.
    """
    digests: dict[str, str] = {}
    for shard in slices(rows, rows_per_shard):
        file_name = f"{name}-{len(digests):05d}.arrow"
        digests[file_name] = write_shard(folder / file_name, shard)
    return digests


def changed(folder: Path, digests: Mapping[str, str]) -> list[str]:
    """Return the shards of a manifest that are missing or whose SHA-256 differs from it."""
    with ThreadPoolExecutor() as threads:  # hashing leaves the interpreter's lock
        whole = threads.map(_is_intact, [folder / name for name in digests], digests.values())
        return [name for name, is_whole in zip(digests, whole, strict=True) if not is_whole]


def _is_intact(path: Path, digest: str) -> bool:
    try:
        return path.is_file() and file_digest(path) == digest
    except OSError:
        return False  # what cannot be read counts as missing


def scan_shards(folder: Path, names: list[str], schema: pl.Schema) -> pl.LazyFrame:
    """Return the named shards as one lazy frame, in this order; without names, an empty frame.

    Raises StoreError if a shard is missing.
    """
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise StoreError(f"{folder} lacks {missing[0]}, which its manifest lists. Remove the folder and run again.")
    if not names:
        return pl.LazyFrame(schema=schema)
    return scan_arrow(*(folder / name for name in names))


def scan_arrow(*paths: Path) -> pl.LazyFrame:
    """Scan Arrow files of one schema, one or more, as one frame in this order; scan_parquet's note on paths holds."""
    return pl.scan_ipc([*paths], glob=False)  # one scan: of a scan each, Polars would read all at once
