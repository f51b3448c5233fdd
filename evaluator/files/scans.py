"""Scan files by their path. Polars alone takes `[`, `*` and `?` in a path for a pattern, and then finds no file."""

from pathlib import Path

import polars as pl


def scan_arrow(*paths: Path) -> pl.LazyFrame:
    """Scan Arrow files of one schema, one or more, as one frame in this order."""
    return pl.scan_ipc([*paths], glob=False)  # one scan: of a scan each, Polars would read all at once


def scan_parquet(path: Path) -> pl.LazyFrame:
    """Scan a Parquet file."""
    return pl.scan_parquet(path, glob=False)
