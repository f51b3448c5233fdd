"""Rows on their way from one step to the next, in a file without a name: it vanishes with the process."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import polars as pl
import pyarrow as pa

from evaluator.errors import WriteError
from evaluator.files.whole import reason

ROWS_PER_GROUP = 16_384
"""Rows that are skipped together where a condition on the columns that rows are sorted by excludes them."""


@contextmanager
def spooled(rows: pl.LazyFrame, folder: Path) -> Iterator[pl.LazyFrame]:
    """Write rows to a file in a folder, and yield a scan of it. Raises WriteError where they cannot be written."""
    with _file(folder) as file:
        rows.sink_parquet(file, compression="lz4", row_group_size=ROWS_PER_GROUP)
        file.flush()
        yield pl.scan_parquet(_path(file), glob=False)


@contextmanager
def spooled_frames(frames: Iterable[pl.DataFrame], schema: pl.Schema, folder: Path) -> Iterator[pl.LazyFrame]:
    """Do the same with frames of one schema, of which only the one that is being written is in memory."""
    arrow = schema.to_frame().to_arrow(compat_level=pl.CompatLevel.oldest()).schema
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with _file(folder) as file:
        with pa.ipc.new_file(file, arrow, options=options) as writer:
            writer.write_table(arrow.empty_table())
            for frame in frames:
                writer.write_table(frame.to_arrow(compat_level=pl.CompatLevel.oldest()), ROWS_PER_GROUP)
        file.flush()
        yield pl.scan_ipc(_path(file))


def slices(rows: pl.LazyFrame, n_rows: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of a scan in order, `n_rows` at a time. (LazyFrame.collect_batches runs ahead of its reader.)"""
    height = rows.select(pl.len()).collect().item()
    for first in range(0, height, n_rows):
        yield rows.slice(first, n_rows).collect()


@contextmanager
def _file(folder: Path) -> Iterator[IO[bytes]]:
    try:
        with TemporaryFile(dir=folder) as file:
            yield file
    except OSError as error:
        raise WriteError(
            f"Rows cannot be kept in {folder} for the next step: {reason(error)}. Make room there, and run the same "
            "command again."
        ) from error


def _path(file: IO[bytes]) -> str:
    return f"/dev/fd/{file.fileno()}"
