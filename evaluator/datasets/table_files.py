"""Read the rows of a table: CSV, JSON lines or Parquet."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.errors import DatasetError

SUFFIXES = (".csv", ".jsonl", ".parquet")


def read_rows(path: Path, columns: Sequence[str], hint: str) -> Iterator[tuple[Any, ...]]:
    """Yield the cells of these columns for each row, in the file's order; all cells of a CSV are texts.

    Raises DatasetError where the file cannot be read or lacks a column; its message then ends in `hint`.
    """
    if path.suffix == ".jsonl":
        for where, row in _json_rows(path):
            _require_columns(row, columns, where, hint)
            yield tuple(row[name] for name in columns)
        return
    table = _scan(path)
    try:
        present = table.collect_schema().names()
        _require_columns(present, columns, str(path), hint)
        rows = table.select(columns).collect()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DatasetError(f"{path} cannot be read as a {path.suffix} file: {error}") from error
    yield from rows.iter_rows()


def column_names(path: Path) -> list[str]:
    """Return the names of a table's columns: of JSON lines, those of the first row. Raises DatasetError."""
    if path.suffix == ".jsonl":
        return next((list(row) for _, row in _json_rows(path)), [])
    try:
        return _scan(path).collect_schema().names()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DatasetError(f"{path} cannot be read as a {path.suffix} file: {error}") from error


def parsed(text: str) -> Any:
    """Return a text read as JSON, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _scan(path: Path) -> pl.LazyFrame:
    if path.suffix not in SUFFIXES:
        raise DatasetError(f"{path}: a table must end in {', '.join(SUFFIXES)}; a BIG-bench task in .json.")
    return pl.scan_parquet(path) if path.suffix == ".parquet" else pl.scan_csv(path, infer_schema=False)


def _json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row and where it is. Read without Polars, which turns numbers among texts into texts."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(line for line in lines if line.strip()):
        where = f"{path}, row {number} (from 0)"
        row = parsed(line)
        if not isinstance(row, dict):
            raise DatasetError(f"{where}: a JSON object was expected, got {line[:60]!r}.")
        yield where, row


def _require_columns(present: Iterable[str], columns: Sequence[str], where: str, hint: str) -> None:
    missing = [name for name in columns if name not in present]
    if missing:
        raise DatasetError(f"{where} has no column {missing[0]!r}. It has: {', '.join(present)}. {hint}")
