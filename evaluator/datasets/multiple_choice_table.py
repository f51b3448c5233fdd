"""Read a user's table of multiple-choice examples, where each row has its own choices."""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evaluator.config import TableColumns
from evaluator.datasets.multiple_choice import ChoiceRow, MultipleChoiceDataset, dataset_of_file
from evaluator.datasets.tables import parsed, read_rows
from evaluator.errors import DatasetError, shown
from evaluator.templates.choice_template import ChoiceTemplate

INPUT, CHOICES, GOLD = "input", "choices", "gold"
"""Default columns."""

_HINT = (
    "Say which hold the inputs, the choices and the correct choice with --input-column, --choices-column and "
    "--gold-column."
)


def load_choice_table(path: Path, columns: TableColumns, template: ChoiceTemplate) -> MultipleChoiceDataset:
    """Return the examples of a table, named after its file.

    Choices are a list of texts, in CSV a JSON array of them. The gold column holds the index of the correct choice
    from 0, its text, or a list of either where several are correct. Without an id column rows are numbered from 0.

    Raises DatasetError, naming file and row, for what choice_examples refuses, for values that cannot be read, and for
    several columns of inputs.
    """
    rows = _choice_rows(path, columns)
    return dataset_of_file(path, name=path.stem, read_as=columns, rows=rows, template=template)


def _choice_rows(path: Path, columns: TableColumns) -> Iterator[ChoiceRow]:
    inputs = columns.inputs or (INPUT,)
    if len(inputs) > 1:
        raise DatasetError(
            f"{path}: a table with choices has one column of inputs, got {', '.join(inputs)}. Name one --input-column."
        )
    id_column = [columns.example_id] if columns.example_id else []
    cells = read_rows(path, [*inputs, columns.choices or CHOICES, columns.gold or GOLD, *id_column], _HINT)
    for number, (text, choices, gold, *given_id) in enumerate(cells):
        where = f"{path}, row {number} (from 0)"
        example_id = _text(given_id[0], f"{where}, column {columns.example_id}") if id_column else str(number)
        listed = _choices(choices, where)
        correct = _correct(gold, listed, where)
        yield ChoiceRow(number, example_id, _text(text, f"{where}, column {inputs[0]}"), listed, correct)


def _text(cell: Any, where: str) -> str | None:
    """Return a text, or a number as a text."""
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, int) or (isinstance(cell, float) and math.isfinite(cell)):
        return str(cell)
    raise DatasetError(f"{where}: a text or a finite number was expected, got {shown(cell)}.")


def _choices(cell: Any, where: str) -> list[str | None]:
    values = parsed(cell) if isinstance(cell, str) else cell
    if not isinstance(values, list) or not all(value is None or isinstance(value, str) for value in values):
        raise DatasetError(f"{where}: choices must be a list of texts (in CSV a JSON array), got {shown(cell)}.")
    return values


def _correct(cell: Any, choices: Sequence[str | None], where: str) -> list[int]:
    """Return the indices of the correct choices. A text that equals a choice is that choice; numbers are indices."""
    content = parsed(cell) if isinstance(cell, str) and cell not in choices else cell
    values = content if isinstance(content, list) else [content]
    return sorted({_place(value, choices, where) for value in values if value is not None})


def _place(value: Any, choices: Sequence[str | None], where: str) -> int:
    as_text = choices.index(value) if isinstance(value, str) and value in choices else None
    is_whole = isinstance(value, int) or (isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,18}\s*", value))
    as_index = int(str(value).strip()) if is_whole and not isinstance(value, bool) else None
    if as_text is not None and as_index not in (None, as_text) and as_index in range(len(choices)):
        raise DatasetError(
            f"{where}: the correct choice {value!r} is both a choice's text and another one's number among {choices}. "
            "Write the numbers as numbers, in JSON lines or Parquet, or let choices and numbers differ."
        )
    place = as_text if as_text is not None else as_index
    if place is None:
        raise DatasetError(
            f"{where}: the correct choice {shown(value)} is neither one of {choices} nor a whole number."
        )
    return place
