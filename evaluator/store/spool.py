"""Rows on their way from one step to the next, in an unnamed temporary file, which vanishes with the process."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import polars as pl
import pyarrow.parquet as pq

from evaluator.errors import WriteError
from evaluator.files.scans import scan_parquet
from evaluator.files.whole import reason

ROWS_PER_GROUP = 16_384
"""Rows that are skipped together where a condition on the columns that rows are sorted by excludes them."""


@contextmanager
def spooled(rows: pl.LazyFrame, folder: Path, *, rows_per_group: int = ROWS_PER_GROUP) -> Iterator[pl.LazyFrame]:
    """Write rows to a file in a folder, and yield a scan of it. Raises WriteError where they cannot be written."""

    def write(file: IO[bytes]) -> None:
        rows.sink_parquet(file, compression="lz4", row_group_size=rows_per_group)

    with _written(folder, write) as file:
        yield scan_parquet(_path(file))


@contextmanager
def spooled_frames(frames: Iterable[pl.DataFrame], schema: pl.Schema, folder: Path) -> Iterator[pl.LazyFrame]:
    """Write frames of one schema, one of them in memory at a time, and yield a scan. Raises as `spooled` does."""
    arrow = schema.to_frame().to_arrow(compat_level=pl.CompatLevel.oldest()).schema

    def write(file: IO[bytes]) -> None:
        # Not as Arrow: of a file that is mapped, what was read counts as memory of this process.
        with pq.ParquetWriter(file, arrow, compression="lz4", use_dictionary=False) as writer:
            for frame in frames:
                writer.write_table(frame.to_arrow(compat_level=pl.CompatLevel.oldest()), ROWS_PER_GROUP)

    with _written(folder, write) as file:
        yield scan_parquet(_path(file))


def slices(rows: pl.LazyFrame, n_rows: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of a scan in order, `n_rows` at a time. (LazyFrame.collect_batches runs ahead of its reader.)"""
    height = rows.select(pl.len()).collect().item()
    for first in range(0, height, n_rows):
        yield rows.slice(first, n_rows).collect()


def _written(folder: Path, write: Callable[[IO[bytes]], None]) -> IO[bytes]:
    """Return a temporary file in a folder, written and open. Raises WriteError where it cannot be written."""
    try:
        with ExitStack() as stack:
            file = stack.enter_context(TemporaryFile(dir=folder))
            write(file)
            file.flush()
            stack.pop_all()
            return file
    except OSError as error:
        raise WriteError(
            f"Rows cannot be kept in {folder} for the next step: {reason(error)}. Make room there, and run the same "
            "command again."
        ) from error


def _path(file: IO[bytes]) -> Path:
    return Path(f"/dev/fd/{file.fileno()}")
