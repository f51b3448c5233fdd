"""A user's table of multiple-choice examples: CSV, JSON lines or Parquet, with the names of its columns stated."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.config import TableColumns
from evaluator.datasets.multiple_choice import ChoiceRow, MultipleChoiceDataset, dataset_of_file
from evaluator.errors import DatasetError
from evaluator.templates.choice_template import ChoiceTemplate

SUFFIXES = (".csv", ".jsonl", ".parquet")

_NAME_COLUMNS = (
    "Say which hold the inputs, the choices and the correct choice with --input-column, --choices-column and "
    "--gold-column."
)


def load_user_table(path: Path, columns: TableColumns, template: ChoiceTemplate) -> MultipleChoiceDataset:
    """The examples of a table, named after its file.

    Choices are a list of texts, in CSV a JSON array of them. The gold column holds the index of the correct choice
    from 0, its text, or a list of either where several are correct. Without an id column rows are numbered from 0.

    Raises DatasetError, naming file and row, for what choice_examples refuses and for values that cannot be read.
    """
    rows = _choice_rows(path, columns)
    return dataset_of_file(path, name=path.stem, read_as=columns, rows=rows, template=template)


def read_rows(path: Path, columns: Sequence[str], mend: str = _NAME_COLUMNS) -> Iterator[tuple[Any, ...]]:
    """These cells of every row of a CSV (all of them text), JSON lines or Parquet file, in its order.

    Raises DatasetError where it cannot be read or lacks a column; `mend` then says what to do about it.
    """
    if path.suffix == ".jsonl":
        yield from _json_rows(path, columns, mend)
        return
    if path.suffix not in SUFFIXES:
        raise DatasetError(f"{path}: a table must end in {', '.join(SUFFIXES)}; a BIG-bench task in .json.")
    try:
        table = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path, infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DatasetError(f"{path} cannot be read as a {path.suffix} file: {error}") from error
    _require_columns(table.columns, columns, str(path), mend)
    yield from table.select(columns).iter_rows()


def _json_rows(path: Path, columns: Sequence[str], mend: str) -> Iterator[tuple[Any, ...]]:
    """Read as JSON itself, because Polars would turn numbers among texts into texts."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(line for line in lines if line.strip()):
        content = _parsed(line)
        where = f"{path}, row {number} (from 0)"
        if not isinstance(content, dict):
            raise DatasetError(f"{where}: a JSON object was expected, got {line[:60]!r}.")
        _require_columns(content, columns, where, mend)
        yield tuple(content[name] for name in columns)


def _require_columns(found: Iterable[str], columns: Sequence[str], where: str, mend: str) -> None:
    missing = [name for name in columns if name not in found]
    if missing:
        raise DatasetError(f"{where} has no column {missing[0]!r}. It has: {', '.join(found)}. {mend}")


def _choice_rows(path: Path, columns: TableColumns) -> Iterator[ChoiceRow]:
    id_column = [columns.example_id] if columns.example_id else []
    cells = read_rows(path, [columns.input, columns.choices, columns.gold, *id_column])
    for number, (text, choices, gold, *given_id) in enumerate(cells):
        where = f"{path}, row {number} (from 0)"
        example_id = str(number) if not id_column else None if given_id[0] is None else str(given_id[0])
        listed = _choices(choices, where)
        correct = _correct(gold, listed, where)
        yield ChoiceRow(number, example_id, None if text is None else str(text), listed, correct)


def _choices(cell: Any, where: str) -> list[str | None]:
    values = _parsed(cell) if isinstance(cell, str) else cell
    if not isinstance(values, list) or not all(value is None or isinstance(value, str) for value in values):
        raise DatasetError(f"{where}: choices must be a list of texts (in CSV a JSON array), got {cell!r}.")
    return values


def _correct(cell: Any, choices: Sequence[str | None], where: str) -> list[int]:
    """Places of the correct choices. A text that equals a choice is that choice, any other whole number an index."""
    parsed = _parsed(cell) if isinstance(cell, str) and cell not in choices else cell
    values = parsed if isinstance(parsed, list) else [parsed]
    return sorted({_place(value, choices, where) for value in values if value is not None})


def _place(value: Any, choices: Sequence[str | None], where: str) -> int:
    as_text = choices.index(value) if value in choices else None
    whole = isinstance(value, int) or (isinstance(value, str) and value.strip().isdecimal())
    as_index = int(value) if whole and not isinstance(value, bool) else None
    if as_text is not None and as_index not in (None, as_text) and as_index in range(len(choices)):
        raise DatasetError(
            f"{where}: the correct choice {value!r} is both a choice's text and another one's number among {choices}. "
            "Write the numbers as numbers, in JSON lines or Parquet, or let choices and numbers differ."
        )
    place = as_text if as_text is not None else as_index
    if place is None:
        raise DatasetError(f"{where}: the correct choice {value!r} is neither one of {choices} nor a whole number.")
    return place


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
