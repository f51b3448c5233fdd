"""Scan columns of a Parquet file after checking that it has them."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from evaluator.errors import DatasetError


def scan_columns(path: Path, columns: Sequence[str]) -> pl.LazyFrame:
    """Return these columns, in this order. Raises DatasetError, naming the file, if it is not Parquet or lacks one."""
    frame = pl.scan_parquet(path)
    try:
        present = frame.collect_schema()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DatasetError(f"{path} cannot be read as Parquet ({error}). Write it again.") from error
    if lacking := [name for name in columns if name not in present]:
        raise DatasetError(f"{path} lacks the column {lacking[0]!r}; it has {', '.join(present)}.")
    return frame.select(columns)
