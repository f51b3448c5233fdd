"""Tables between one step and the next: temporary files without a name, which Polars scans, sorts and joins.

Polars' streaming engine sorts and joins tables of any size: what exceeds its memory budget is moved to disk
(`POLARS_OOC_MEMORY_BUDGET_MB` and `POLARS_OOC_SPILL_DIR`; the command sets the first, in `evaluator/process.py`).
A result that need not fit into memory is written by `kept` and read by `slices`.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import polars as pl
import pyarrow.parquet as pq

from evaluator.errors import WriteError
from evaluator.files.whole import reason, scan_parquet

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
    with _written(rows, folder, schema, rows_per_group) as file:
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


def _written(rows: Rows, folder: Path, schema: pl.Schema | None, rows_per_group: int) -> IO[bytes]:
    """Return an open temporary file with these rows."""
    try:
        with ExitStack() as stack:
            file = stack.enter_context(TemporaryFile(dir=folder))
            if isinstance(rows, pl.LazyFrame):
                rows.sink_parquet(file, compression="lz4", row_group_size=rows_per_group, engine="streaming")
            else:
                assert schema is not None, "frames have a schema"
                _write_frames(file, rows, schema, rows_per_group)
            file.flush()
            stack.pop_all()  # written: it stays open
            return file
    except OSError as error:
        raise WriteError(
            f"Rows cannot be kept in {folder} for the next step: {reason(error)}. Make room there, and run the same "
            "command again."
        ) from error


def _write_frames(file: IO[bytes], frames: Iterable[pl.DataFrame], schema: pl.Schema, rows_per_group: int) -> None:
    arrow = schema.to_frame().to_arrow(compat_level=pl.CompatLevel.oldest()).schema
    # Not as Arrow: pages of a mapped file that were read count as memory of this process.
    with pq.ParquetWriter(file, arrow, compression="lz4", use_dictionary=False) as writer:
        for frame in frames:
            writer.write_table(frame.to_arrow(compat_level=pl.CompatLevel.oldest()), rows_per_group)
