"""Define what is imported: answers to the queries of a dataset."""

import re
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.config import Numbers
from evaluator.errors import DatasetError, shown

IMPORTED = "imported"
"""What stands for the suite of an imported run, and for its only part; and the name of its side table."""

NUMBERS = pl.Schema({"dataset": pl.String(), "numbers": pl.String()})  # side table of an imported run: Numbers


class ImportedRow(NamedTuple):
    """The answer to one request."""

    query: str  # id: rows with the same one are answers to one query, and are not independent
    prompt: str  # empty if it is not known
    gold: int
    log_likelihoods: list[float]  # nats, in label-space order; -inf for what has no probability


class ImportedDataset(NamedTuple):
    """The answers to the queries of one dataset."""

    name: str
    label_names: tuple[str, ...]
    numbers: Numbers
    rows: list[ImportedRow]
    file: str  # name of the file that it was read from


def label_number(cell: object, n_labels: int) -> int | None:
    """Return a cell that is the number of a label, from 0, or None for any other cell."""
    written = str(cell) if isinstance(cell, int | str) and not isinstance(cell, bool) else ""
    number = int(written) if re.fullmatch("[0-9]{1,9}", written) else n_labels
    return number if number < n_labels else None


def cell_error(path: Path, row: int, column: str, value: object, allowed: str) -> DatasetError:
    """Return the error of a cell that does not fit: where it is, what it holds and what it may hold."""
    return DatasetError(f"{path}, row {row} (from 0), column {column!r}: found {shown(value)}; allowed is {allowed}.")
