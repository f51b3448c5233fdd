"""Read multiple-choice examples, which may have different choices and one or more correct choices.

Sources are tables with a column of choices, and BIG-bench tasks: a `task.json`, or a Parquet file of BIG-bench Lite
beside its `tasks.json`. Every file is a dataset. The template of a task has the prefixes in its file, with the defaults
of the json_task format.

A prediction is right if it is any of the `correct` choices, so a uniform guess is right with probability
len(correct) / len(choices).
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from evaluator.config import TableColumns
from evaluator.datasets.base import CHOICE_EXAMPLES, MultipleChoiceDataset
from evaluator.datasets.tables import cell_kind, cell_text, first_repeated, parsed, read_rows, table_stem
from evaluator.errors import DatasetError, shown
from evaluator.files.digests import short_digest
from evaluator.files.json_files import read_object
from evaluator.files.whole import file_digest
from evaluator.templates.template import ChoiceTemplate

INPUT, CHOICES, GOLD = "input", "choices", "gold"
"""Default names of the columns."""

_HINT = (
    "Say which hold the inputs, the choices and the correct choice with --input-column, --choices-column and "
    "--gold-column."
)

TASK_FILE = "task.json"
TASKS_FILE = "tasks.json"
"""File name of the list of tasks: stem of a table's file name in the same folder -> prefixes of the task."""

LITE_COLUMNS = ("input", "choices", "scores", "subtask", "row")
_LITE_HINT = (
    f"{TASKS_FILE} lists it as a task of BIG-bench Lite, which has these columns. Name others with --input-column, "
    "--choices-column and --gold-column."
)


class ChoiceRow(NamedTuple):
    """An example as it was read from a file, not checked yet."""

    row: int  # row number in the file, from 0
    example_id: str | None
    input: Any  # must be a text
    choices: Sequence[str | None]
    correct: Sequence[int]  # indices into choices


def dataset_of_file(
    path: Path,
    *,
    name: str,
    read_as: object,
    rows: Iterable[ChoiceRow],
    template: ChoiceTemplate,
    notes: Iterable[str] = (),
) -> MultipleChoiceDataset:
    """Check the examples of a file and return them as a dataset. Raises DatasetError as choice_examples does.

    Args:
        path: the file.
        name: name of the dataset.
        read_as: value that determines the rows in addition to the file's bytes, for the fingerprint.
        rows: examples in the file.
        template: template of the examples.
        notes: notes on changes to the rows, for the run record.
    """
    examples, changes = choice_examples(rows, str(path))
    return MultipleChoiceDataset(
        name=name,
        examples=examples,
        template=template,
        source=str(path),
        notes=(*changes, *notes),
        fingerprint=short_digest(repr((file_digest(path), read_as, template)).encode()),
    )


def choice_examples(rows: Iterable[ChoiceRow], source: str) -> tuple[pl.DataFrame, list[str]]:
    """Check examples and return them as CHOICE_EXAMPLES, in the given order, with notes on changes.

    A choice that occurs twice in an example, both times correct or both times wrong, counts once, because no score can
    tell the two apart. A note gives the number of such examples.

    Raises DatasetError, naming source and row, for a missing or repeated id, a missing input, fewer than two choices,
    a choice that is missing, blank, or both correct and wrong, and for an example in which no choice or every choice is
    correct.
    """
    examples, n_repeating, rows_by_id = [], 0, dict[str, int]()
    for row in rows:
        where = f"{source}, row {row.row} (from 0)"
        _require_example(row, where, rows_by_id)
        choices, correct = _without_repeats([str(choice) for choice in row.choices], set(row.correct), where)
        n_repeating += len(choices) < len(row.choices)
        examples.append((row.example_id, row.input, choices, correct, _shuffled(str(row.input), choices), row.row))
    if not examples:
        raise DatasetError(f"{source} holds no examples.")
    notes = [f"examples that repeat a choice, which counts once: {n_repeating}"] if n_repeating else []
    return pl.DataFrame(examples, schema=CHOICE_EXAMPLES, orient="row"), notes


def _require_example(row: ChoiceRow, where: str, rows_by_id: dict[str, int]) -> None:
    """Check an example, and record its row under its id in `rows_by_id`."""
    if not row.example_id:
        raise DatasetError(f"{where}: the example has no id. Give every row one, or name no id column.")
    if row.example_id in rows_by_id:
        raise DatasetError(
            f"{where}: example id {row.example_id!r} is used in row {rows_by_id[row.example_id]} as well. Make ids "
            "different, or name no id column to have rows numbered."
        )
    rows_by_id[row.example_id] = row.row
    if row.input is None:
        raise DatasetError(f"{where}: the input is missing.")
    if not isinstance(row.input, str):
        raise DatasetError(f"{where}: the input must be a text, got {shown(row.input)}.")
    blank = [index for index, choice in enumerate(row.choices) if choice is None or not choice.strip()]
    if blank:
        raise DatasetError(f"{where}: choice {blank[0]} (from 0) of {list(row.choices)} is missing or blank.")
    if not row.correct:
        raise DatasetError(f"{where}: no choice of {list(row.choices)} is correct.")
    outside = [index for index in row.correct if not 0 <= index < len(row.choices)]
    if outside:
        raise DatasetError(
            f"{where}: the correct choice is given as number {outside[0]}, but there are {len(row.choices)} choices, "
            "counted from 0."
        )


def _without_repeats(choices: list[str], correct: set[int], where: str) -> tuple[list[str], list[int]]:
    """Return the distinct choices, and the indices of the correct choices among them."""
    is_correct: dict[str, bool] = {}
    for index, choice in enumerate(choices):
        if is_correct.setdefault(choice, index in correct) != (index in correct):
            raise DatasetError(f"{where}: choice {choice!r} occurs twice, once as correct and once as wrong.")
    if len(is_correct) < 2:
        raise DatasetError(f"{where}: an example needs two choices or more, got {choices}.")
    if all(is_correct.values()):
        raise DatasetError(f"{where}: every one of the choices {choices} is correct, so no answer can be wrong.")
    return list(is_correct), [index for index, correct_choice in enumerate(is_correct.values()) if correct_choice]


def _shuffled(text: str, choices: Sequence[str]) -> list[str]:
    """Return the choices in a pseudo-random order that depends only on the example.

    In BIG-bench, the order also depends on earlier examples, because one generator draws all permutations.
    """
    return sorted(choices, key=lambda choice: hashlib.blake2b(f"{text}\0{choice}".encode(), digest_size=8).digest())


def choice_table(path: Path, columns: TableColumns) -> Callable[[], MultipleChoiceDataset]:
    """Return the reader of a table with choices in every row; its dataset is named after the file.

    A Parquet file that `tasks.json` lists is read with the columns of BIG-bench Lite, unless `columns` names columns.

    Raises DatasetError for a `tasks.json` that cannot be read. The reader raises DatasetError, naming file and row, as
    choice_examples does, for values that cannot be read, and for several input columns.
    """
    template, task = ChoiceTemplate(), stated_task(path)
    if task is not None:
        template = template_of(task, f"{path.parent / TASKS_FILE}, {path.stem}")
    is_lite = task is not None and path.suffix == ".parquet" and columns == TableColumns()

    def read() -> MultipleChoiceDataset:
        rows = _lite_rows(path) if is_lite else _choice_rows(path, columns)
        name = table_stem(path)
        return dataset_of_file(path, name=name, read_as=name if is_lite else columns, rows=rows, template=template)

    return read


def _lite_rows(path: Path) -> Iterator[ChoiceRow]:
    """Yield the rows of a BIG-bench Lite task. Ids are `subtask/row`, because row numbers restart in every subtask."""
    for number, (text, choices, scores, subtask, source_row) in read_rows(path, LITE_COLUMNS, _LITE_HINT):
        where = f"{path}, row {number} (from 0)"
        listed = choice_list(choices, where)
        example_id = f"{subtask}/{source_row}" if subtask else str(source_row)
        yield ChoiceRow(number, example_id, text, listed, correct_of_scores(scores, len(listed), where))


def _choice_rows(path: Path, columns: TableColumns) -> Iterator[ChoiceRow]:
    """Yield the rows of a table. Without an id column, the id of an example is its row number from 0.

    Choices are a list of texts, in CSV a JSON array. The gold column holds the index of the correct choice from 0, its
    text, or a list of indices or texts if several choices are correct.
    """
    inputs = columns.inputs or (INPUT,)
    if len(inputs) > 1:
        raise DatasetError(
            f"{path}: a table with choices has one column of inputs, got {', '.join(inputs)}. Name one --input-column."
        )
    id_column = [columns.example_id] if columns.example_id else []
    cells = read_rows(path, [*inputs, columns.choices or CHOICES, columns.gold or GOLD, *id_column], _HINT)
    for number, (text, choices, gold, *given_id) in cells:
        where = f"{path}, row {number} (from 0)"
        example_id = _text(given_id[0], f"{where}, column {columns.example_id}") if id_column else str(number)
        listed = choice_list(choices, where)
        correct = _correct(gold, listed, where)
        yield ChoiceRow(number, example_id, _text(text, f"{where}, column {inputs[0]}"), listed, correct)


def _text(cell: Any, where: str) -> str | None:
    """Return a cell as text, with numbers written as cell_text writes them. Raises DatasetError for other values."""
    if cell is not None:
        cell_kind(cell, where)
    return cell_text(cell)


def choice_list(cell: Any, where: str) -> list[str | None]:
    """Return the choices in a cell. Raises DatasetError unless the cell is a list of texts."""
    values = parsed(cell)
    if not isinstance(values, list) or not all(value is None or isinstance(value, str) for value in values):
        raise DatasetError(f"{where}: choices must be a list of texts (in CSV a JSON array), got {shown(cell)}.")
    return values


def _correct(cell: Any, choices: Sequence[str | None], where: str) -> list[int]:
    """Return the indices of the correct choices. A text that equals a choice is that choice; numbers are indices."""
    content = cell if cell in choices else parsed(cell)
    values = content if isinstance(content, list) else [content]
    return [_index(value, choices, where) for value in values if value is not None]


def _index(value: Any, choices: Sequence[str | None], where: str) -> int:
    as_text = choices.index(value) if isinstance(value, str) and value in choices else None
    written = str(cell_text(value)).strip(" \t")
    is_whole = isinstance(value, int | float | str) and re.fullmatch(r"-?[0-9]{1,18}", written)
    as_index = int(written) if is_whole else None
    if as_text is not None and as_index not in (None, as_text) and as_index in range(len(choices)):
        raise DatasetError(
            f"{where}: the correct choice {value!r} is both a choice's text and another choice's number among "
            f"{choices}. Write the numbers as numbers, in JSON lines or Parquet, or let choices and numbers differ."
        )
    index = as_text if as_text is not None else as_index
    if index is None:
        raise DatasetError(
            f"{where}: the correct choice {shown(value)} is neither one of {choices} nor a whole number."
        )
    return index


def load_task_json(path: Path, name: str) -> MultipleChoiceDataset:
    """Read a `task.json`. Exact repeats of examples are dropped, as in BIG-bench, and a note gives their number.

    Raises DatasetError, naming file and row, as choice_examples does and for examples without target scores.
    """
    task = read_json(path)
    examples = task.get("examples")
    if not isinstance(examples, list):
        raise DatasetError(f"{path} is not a BIG-bench task: it has no list of `examples`.")
    distinct = {json.dumps(example): row for row, example in reversed(list(enumerate(examples)))}
    rows = sorted(distinct.values())
    n_repeats = len(examples) - len(rows)
    return dataset_of_file(
        path,
        name=name,
        read_as=name,
        rows=(_task_row(examples[row], row, path) for row in rows),
        template=template_of(task, str(path)),
        notes=[f"exact repeats of an example, of which the first is kept: {n_repeats}"] if n_repeats else [],
    )


def template_of(task: Mapping[str, Any], where: str) -> ChoiceTemplate:
    """Return the template of a task, with the defaults of the json_task format for missing parts.

    Args:
        task: the content of a `task.json`, or an entry of `tasks.json`.
        where: name of the task, for messages.

    Raises DatasetError for values of a wrong type.
    """
    defaults = {
        "task_prefix": "",
        "example_input_prefix": "\nQ: ",
        "example_output_prefix": "\nA: ",
        "choice_prefix": "\n  choice: ",
        "few_shot_example_separator": "\n",
    }
    parts = {key: task.get(key, default) for key, default in defaults.items()}
    append_choices = task.get("append_choices_to_input", True)
    wrong = [key for key, value in parts.items() if not isinstance(value, str)]
    if wrong or not isinstance(append_choices, bool):
        raise DatasetError(f"{where}: prefixes must be texts and append_choices_to_input true or false; check {wrong}.")
    return ChoiceTemplate(
        # The published `inputs` of all examples, demonstrations included, begin with the prefix of the task.
        input_prefix=parts["task_prefix"] + parts["example_input_prefix"],
        output_prefix=parts["example_output_prefix"],
        choice_prefix=parts["choice_prefix"] if append_choices else None,
        separator=parts["few_shot_example_separator"],
    )


class JsonObject(dict[str, Any]):
    """A JSON object that remembers the first key that occurs twice in its text, if any."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated = first_repeated(key for key, _ in pairs)


def read_json(path: Path) -> JsonObject:
    """Read the JSON object in a file. Raises DatasetError if there is none, or if a top-level key occurs twice."""
    hint = "If it is a table, write it as JSON lines: an object for each row, in a file that ends in .jsonl."
    content = read_object(path, DatasetError, hint, json.JSONDecoder(object_pairs_hook=JsonObject))
    assert isinstance(content, JsonObject), "by the decoder"
    if content.repeated is not None:
        raise DatasetError(
            f"{path}: the key {content.repeated!r} occurs twice, and one value would be lost. Remove one of them."
        )
    return content


def stated_task(path: Path) -> JsonObject | None:
    """Return the entry of a table in the `tasks.json` of its folder, or None without such an entry."""
    index = path.parent / TASKS_FILE
    tasks = read_json(index).get("tasks") if index.is_file() else None
    task = tasks.get(path.stem) if isinstance(tasks, dict) else None
    return task if isinstance(task, JsonObject) else None


def _task_row(example: Any, row: int, path: Path) -> ChoiceRow:
    scores = example.get("target_scores") if isinstance(example, dict) else None
    where = f"{path}, row {row} (from 0)"
    if not isinstance(scores, JsonObject):
        raise DatasetError(f"{where}: the example has no `target_scores`, so it is not multiple choice.")
    if scores.repeated is not None:
        raise DatasetError(f"{where}: the choice {scores.repeated!r} occurs twice. Remove one of the two.")
    correct = correct_of_scores(list(scores.values()), len(scores), where)
    return ChoiceRow(row, str(row), example.get("input"), list(scores), correct)


def correct_of_scores(scores: Any, n_choices: int, where: str) -> list[int]:
    """Return the indices of the correct choices: the choices with the highest BIG-bench score, if it is above 0.

    So a choice with a lower positive score is wrong, and all choices with the highest score are correct.

    Args:
        scores: list of n_choices numbers; checked here.
        n_choices: number of choices.
        where: file and row, for messages.

    Raises DatasetError, naming `where`, unless `scores` has a finite number for every choice.
    """
    numbers = isinstance(scores, list) and all(
        isinstance(score, (int, float)) and not isinstance(score, bool) and -math.inf < score < math.inf
        for score in scores
    )
    if not numbers or len(scores) != n_choices:
        raise DatasetError(
            f"{where}: {n_choices} choices need as many scores, all finite numbers, got {shown(scores)}."
        )
    best = max(scores, default=0)
    return [index for index, score in enumerate(scores) if score == best] if best > 0 else []
