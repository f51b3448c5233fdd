"""Read answers from a table: CSV, JSON lines or Parquet, with a row for each request."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evaluator.datasets.table_files import column_names, parsed, read_rows
from evaluator.errors import ConfigError, DatasetError
from evaluator.imports.base import ImportColumns, ImportedDataset, ImportedRow, Numbers, cell_error, label_number

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
    datasets: dict[str, ImportedDataset] = {}
    for number, cells in enumerate(read_rows(path, names, _HINT)):
        row = dict(zip(names, cells, strict=True))
        name = str(row[chosen.dataset]) if chosen.dataset else path.stem
        labels = chosen.labels or _label_names(path, number, row[LABEL_NAMES])
        dataset = datasets.setdefault(name, ImportedDataset(name, labels, chosen.numbers, [], path.name))
        if labels != dataset.label_names:
            same = f"the labels of the dataset's first row, {list(dataset.label_names)}"
            raise cell_error(path, number, LABEL_NAMES, list(labels), same)
        dataset.rows.append(
            ImportedRow(
                query=str(row[chosen.query]) if chosen.query else str(number),
                prompt=str(row[chosen.prompt] or "") if chosen.prompt else "",
                gold=_label(path, number, chosen.gold, row[chosen.gold], labels),
                log_likelihoods=_log_likelihoods(path, number, row, labels, chosen),
            )
        )
    if not datasets:
        raise DatasetError(f"{path} has no rows.")
    return list(datasets.values())


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


def _label_names(path: Path, number: int, cell: Any) -> tuple[str, ...]:
    names = parsed(cell) if isinstance(cell, str) else cell
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise cell_error(path, number, LABEL_NAMES, cell, "a list of texts")
    return tuple(names)


def _label(path: Path, number: int, column: str, cell: Any, labels: Sequence[str]) -> int:
    """Return the index of a label from its name, or from an index."""
    if str(cell) in labels:
        return labels.index(str(cell))
    if (index := label_number(cell, len(labels))) is not None:
        return index
    allowed = f"one of {', '.join(labels)}, or a number from 0 to {len(labels) - 1}"
    raise cell_error(path, number, column, cell, allowed)


def _log_likelihoods(
    path: Path, number: int, row: Mapping[str, Any], labels: Sequence[str], columns: _Columns
) -> list[float]:
    first, *others = columns.scores
    if columns.numbers == "labels":
        pred = _label(path, number, first, row[first], labels)
        return [0.0 if label == pred else -math.inf for label in range(len(labels))]
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
