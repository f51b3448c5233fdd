"""Read answers from a table: CSV, JSON lines or Parquet, with a row for each request."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evaluator.config import ImportColumns, Numbers
from evaluator.datasets.table_files import column_names, parsed, read_rows
from evaluator.errors import ConfigError, DatasetError
from evaluator.imports.base import ImportedDataset, ImportedRow, cell_error, label_number

SCORES: Mapping[str, Numbers] = {
    "label_log_likelihoods": "log-likelihoods",
    "label_probs": "probabilities",
    "pred": "labels",
}
"""Columns that hold answers if none is named, and what they hold."""

LABEL_NAMES = "label_names"
"""Column with the label space, a list in each row."""

SUM_TOLERANCE = 1e-3
"""Largest deviation of the sum of probabilities from 1, for tables with rounded ones; they are then normalised."""

_HINT = (
    "Say which columns hold the answers with --gold-column, --score-column and --numbers; --labels names the labels in "
    "the order of the numbers."
)


class _Columns(NamedTuple):
    """The columns of one table, all there."""

    gold: str
    scores: tuple[str, ...]
    numbers: Numbers
    labels: tuple[str, ...] | None  # None: in the column LABEL_NAMES
    dataset: str | None
    query: str | None
    prompt: str | None


def read_table(path: Path, columns: ImportColumns) -> list[ImportedDataset]:
    """Return the datasets of a table, by their first row. Raises DatasetError, naming file, row and column."""
    chosen = _columns(path, columns)
    others = [name for name in (chosen.dataset, chosen.query, chosen.prompt) if name]
    names = [chosen.gold, *chosen.scores, *others, *([] if chosen.labels else [LABEL_NAMES])]
    rows: dict[str, list[_Row]] = {}
    for number, cells in enumerate(read_rows(path, names, _HINT)):
        row = dict(zip(names, cells, strict=True))
        name = _text(path, number, chosen.dataset, row) if chosen.dataset else path.stem
        rows.setdefault(name, []).append((number, row))
    if not rows:
        raise DatasetError(f"{path} has no rows.")
    return [_dataset(path, name, of_dataset, chosen) for name, of_dataset in rows.items()]


_Row = tuple[int, Mapping[str, Any]]
"""Number of a row in its table, from 0, and its cells by column."""


def _dataset(path: Path, name: str, rows: Sequence[_Row], columns: _Columns) -> ImportedDataset:
    labels = columns.labels or _label_names(path, *rows[0])
    for number, row in rows:
        if not columns.labels and (others := _label_names(path, number, row)) != labels:
            same = f"the labels of the dataset's first row, {list(labels)}"
            raise cell_error(path, number, LABEL_NAMES, list(others), same)
    label_columns = [columns.gold, *(columns.scores if columns.numbers == "labels" else ())]
    found = _label_numbers(path, rows, label_columns, labels)
    imported = [
        ImportedRow(
            query=_text(path, number, columns.query, row) if columns.query else str(number),
            prompt=str(row[columns.prompt] or "") if columns.prompt else "",
            gold=found[columns.gold][place],
            log_likelihoods=_certain(found[columns.scores[0]][place], len(labels))
            if columns.numbers == "labels"
            else _log_likelihoods(path, number, row, labels, columns),
        )
        for place, (number, row) in enumerate(rows)
    ]
    return ImportedDataset(name, labels, columns.numbers, imported, path.name)


def _certain(label: int, n_labels: int) -> list[float]:
    """Return log-likelihoods that say nothing but which label was predicted."""
    return [0.0 if index == label else -math.inf for index in range(n_labels)]


def _text(path: Path, number: int, column: str, row: Mapping[str, Any]) -> str:
    """Return a cell as a text. Raises DatasetError for an empty one."""
    if row[column] is None:
        raise cell_error(path, number, column, None, "a text or a number")
    return str(row[column])


def _columns(path: Path, given: ImportColumns) -> _Columns:
    present = column_names(path)
    scores = given.scores or next(((name,) for name in SCORES if name in present), None)
    if scores is None:
        raise DatasetError(f"{path} has none of the columns {', '.join(SCORES)}; it has {', '.join(present)}. {_HINT}")
    numbers = given.numbers or (SCORES.get(scores[0]) if len(scores) == 1 else None)
    if numbers is None:
        raise ConfigError(f"--score-column {','.join(scores)} needs --numbers, which says what the numbers are.")
    labels = given.labels or (None if LABEL_NAMES in present else scores if len(scores) > 1 else ())
    if labels == ():
        raise ConfigError(f"{path} has no column {LABEL_NAMES!r}: name the labels with --labels, in their order.")
    optional = {"dataset": given.dataset, "query_id": given.query, "prompt": given.prompt}
    found = [name or (default if default in present else None) for default, name in optional.items()]
    return _Columns(given.gold, scores, numbers, labels, *found)


def _label_names(path: Path, number: int, row: Mapping[str, Any]) -> tuple[str, ...]:
    cell = row[LABEL_NAMES]
    names = parsed(cell) if isinstance(cell, str) else cell
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise cell_error(path, number, LABEL_NAMES, cell, "a list of texts")
    return tuple(names)


def _label_numbers(
    path: Path, rows: Sequence[_Row], columns: Sequence[str], labels: Sequence[str]
) -> dict[str, list[int]]:
    """Return the indices of the labels in some columns, which hold names of labels or indices.

    Where labels are numbers themselves, a cell alone could be either. So all cells are read alike, as names if all can
    be; only where this fails does each column count for itself.
    """
    by_name = {name: index for index, name in enumerate(labels)}
    names = {column: [by_name.get(str(row[column])) for _, row in rows] for column in columns}
    numbers = {column: [label_number(row[column], len(labels)) for _, row in rows] for column in columns}
    for found in (names, numbers):
        if not any(None in indices for indices in found.values()):
            return _whole(found)
    for column in columns:
        if None in names[column] and None in numbers[column]:
            raise _not_a_label(path, rows, column, names[column], numbers[column], labels)
    return _whole({column: numbers[column] if None in names[column] else names[column] for column in columns})


def _whole(found: Mapping[str, Sequence[int | None]]) -> dict[str, list[int]]:
    return {column: [index for index in indices if index is not None] for column, indices in found.items()}


def _not_a_label(
    path: Path,
    rows: Sequence[_Row],
    column: str,
    names: Sequence[int | None],
    numbers: Sequence[int | None],
    labels: Sequence[str],
) -> DatasetError:
    allowed = f"one of {', '.join(labels)}"
    for (number, row), name, index in zip(rows, names, numbers, strict=True):
        if name is None and index is None:
            return cell_error(path, number, column, row[column], f"{allowed}, or a number from 0 to {len(labels) - 1}")
    number, row = rows[names.index(None)]
    return cell_error(path, number, column, row[column], f"{allowed}, since other rows have names")


def _log_likelihoods(
    path: Path, number: int, row: Mapping[str, Any], labels: Sequence[str], columns: _Columns
) -> list[float]:
    first, *others = columns.scores
    cell = [row[name] for name in columns.scores] if others else row[first]
    values = parsed(cell) if isinstance(cell, str) else cell
    where = ",".join(columns.scores)
    if not isinstance(values, list) or len(values) != len(labels):
        raise cell_error(path, number, where, cell, f"{len(labels)} numbers, one for each of {', '.join(labels)}")
    numbers = [_number(value) for value in values]
    if columns.numbers == "log-likelihoods":
        if not all(-math.inf < value <= 0 for value in numbers):
            raise cell_error(path, number, where, cell, "log-likelihoods in nats: finite numbers of at most 0")
        return numbers
    total = math.fsum(numbers)
    if not all(0 <= value <= 1 for value in numbers) or abs(total - 1) > SUM_TOLERANCE:
        raise cell_error(path, number, where, cell, f"probabilities: 0 to 1, with a sum of 1 within {SUM_TOLERANCE:g}")
    return [math.log(value) if value else -math.inf for value in numbers]


def _number(value: Any) -> float:
    """Return a cell as a number; NaN, which no column takes, for anything else."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
