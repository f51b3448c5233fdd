"""Write and read Arrow shards, which are complete or absent.

A shard is written under a temporary name, flushed to disk and renamed. It is valid once the manifest names it, which is
written after it in the same way. So a process killed at any moment leaves either the old state or the new one.
"""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pyarrow as pa

from evaluator.errors import StoreError
from evaluator.files.whole import file_digest, scan_arrow, write_bytes


def write_shard(path: Path, frame: pl.DataFrame) -> str:
    """Write one shard and return the SHA-256 of its bytes; equal frames give equal bytes."""
    # In plain Arrow layout: the layout of Polars' string views depends on how the frame was built.
    table = frame.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    rows = pa.array(range(frame.height), pa.int64())
    for place, column in enumerate(table.schema):
        if pa.types.is_large_list(column.type) and pa.types.is_large_string(column.type.value_type):
            # Lists of a part of a frame can keep the texts of other rows, but not where they are taken row by row.
            table = table.set_column(place, column, table.column(place).take(rows))
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    content = pa.BufferOutputStream()
    with pa.ipc.new_file(content, table.schema, options=options) as writer:
        writer.write_table(table)
    return write_bytes(path, memoryview(content.getvalue()))


def alone(rows: pl.DataFrame) -> pl.DataFrame:
    """Return a copy of some rows of a frame that does not keep the texts of the others in memory, as a view does."""
    copied = pl.from_arrow(rows.to_arrow(compat_level=pl.CompatLevel.oldest()))
    assert isinstance(copied, pl.DataFrame), "it is a table"
    return copied


def write_shards(folder: Path, name: str, frames: Iterable[pl.DataFrame], *, rows: int) -> dict[str, str]:
    """Write frames, one after the other, as shards of `rows` rows (at least one shard; the last may have fewer).

    Returns file name -> SHA-256, in order.
    """
    digests: dict[str, str] = {}
    for shard in of_height(frames, rows):
        file_name = f"{name}-{len(digests):05d}.arrow"
        digests[file_name] = write_shard(folder / file_name, shard)
    return digests


def of_height(frames: Iterable[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of at least one frame again, `rows` together; the last may be fewer."""
    left: pl.DataFrame | None = None
    for frame in frames:
        left = frame if left is None or not left.height else pl.concat([left, frame])
        while left.height > rows:  # so that something is left for the last
            yield left.head(rows)
            left = left.slice(rows)
    assert left is not None, "there is one frame at least"
    yield left


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
