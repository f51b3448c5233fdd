"""Write and read Arrow shards, which are complete or absent.

A shard is written under a temporary name, flushed to disk and renamed. It is valid once the manifest names it, which is
written after it in the same way. So a process killed at any moment leaves either the old state or the new one.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from evaluator.errors import StoreError
from evaluator.files.whole import file_digest, scan_arrow, write_bytes
from evaluator.store.tables import slices


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


def intact(folder: Path, digests: Mapping[str, str]) -> bool:
    """Return whether every shard of a manifest exists with the bytes it was written with."""
    return not changed(folder, digests)


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
