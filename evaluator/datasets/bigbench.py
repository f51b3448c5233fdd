"""Read multiple-choice tasks of BIG-bench: a `task.json`, or a Parquet file of BIG-bench Lite with its `tasks.json`.

Each file is a dataset. Its template has the prefixes in the task's file; defaults are those of the json_task format.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evaluator.datasets.base import MultipleChoiceDataset
from evaluator.datasets.multiple_choice import ChoiceRow, choice_list, correct_of_scores, dataset_of_file
from evaluator.datasets.tables import read_rows
from evaluator.errors import DatasetError, shown
from evaluator.files.json_files import read_object
from evaluator.templates.template import ChoiceTemplate

TASK_FILE = "task.json"
TASKS_FILE = "tasks.json"
"""The file with the prefixes of the tables in its folder, by the stem of a table's file name."""

LITE_COLUMNS = ("input", "choices", "scores", "subtask", "row")
_LITE_HINT = (
    f"{TASKS_FILE} lists it as a task of BIG-bench Lite, which has these columns. Name others with --input-column, "
    "--choices-column and --gold-column."
)


def load_task_json(path: Path, name: str) -> MultipleChoiceDataset:
    """Return the examples of a `task.json`. Exact repeats are dropped, as by BIG-bench, and counted in a note.

    Raises DatasetError, naming file and row, for what choice_examples refuses and for examples without target scores.
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
        notes=[f"{n_repeats} examples are exact repeats; the first of each is kept"] if n_repeats else [],
    )


def load_lite(path: Path, template: ChoiceTemplate) -> MultipleChoiceDataset:
    """Return a task of BIG-bench Lite: columns input, choices, scores, subtask and row. Raises as load_task_json does.

    Ids are `subtask/row`, because row numbers begin anew in each subtask.
    """

    def rows() -> Iterator[ChoiceRow]:
        for number, cells in read_rows(path, LITE_COLUMNS, _LITE_HINT):
            text, choices, scores, subtask, source_row = cells
            where = f"{path}, row {number} (from 0)"
            listed = choice_list(choices, where)
            example_id = f"{subtask}/{source_row}" if subtask else str(source_row)
            yield ChoiceRow(number, example_id, text, listed, _correct(scores, listed, where))

    return dataset_of_file(path, name=path.stem, read_as=path.stem, rows=rows(), template=template)


def template_of(task: Mapping[str, Any], where: str) -> ChoiceTemplate:
    """Return the template of a task, with the defaults of the json_task format for the parts that it leaves out.

    `where` names the task in error messages.
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
        # The published `inputs` of every example, demonstrations included, begin with the task's prefix.
        input_prefix=parts["task_prefix"] + parts["example_input_prefix"],
        output_prefix=parts["example_output_prefix"],
        choice_prefix=parts["choice_prefix"] if append_choices else None,
        separator=parts["few_shot_example_separator"],
    )


class JsonObject(dict[str, Any]):
    """A JSON object with the keys that it repeats in its file."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]


def read_json(path: Path) -> JsonObject:
    """Return the JSON object in a file. Raises DatasetError if there is none or it repeats a key at the top level."""
    hint = "If it is a table, write it as JSON lines: an object for each row, in a file that ends in .jsonl."
    content = read_object(path, DatasetError, hint, json.JSONDecoder(object_pairs_hook=JsonObject))
    assert isinstance(content, JsonObject), "by the decoder"
    if content.repeated:
        raise DatasetError(
            f"{path}: the key {content.repeated[0]!r} occurs twice, and one value would be lost. Remove one of them."
        )
    return content


def stated_task(path: Path) -> JsonObject | None:
    """Return the entry of a table in the `tasks.json` of its folder, or None."""
    index = path.parent / TASKS_FILE
    tasks = read_json(index).get("tasks") if index.is_file() else None
    task = tasks.get(path.stem) if isinstance(tasks, dict) else None
    return task if isinstance(task, JsonObject) else None


def _task_row(example: Any, row: int, path: Path) -> ChoiceRow:
    scores = example.get("target_scores") if isinstance(example, dict) else None
    where = f"{path}, row {row} (from 0)"
    if not isinstance(scores, JsonObject):
        raise DatasetError(f"{where}: the example has no `target_scores`, so it is not multiple choice.")
    if scores.repeated:
        raise DatasetError(f"{where}: the choice {scores.repeated[0]!r} occurs twice. Remove one of the two.")
    return ChoiceRow(row, str(row), example.get("input"), list(scores), _correct(list(scores.values()), scores, where))


def _correct(scores: Any, choices: Any, where: str) -> list[int]:
    n_choices = len(choices)
    numbers = isinstance(scores, list) and all(
        isinstance(score, (int, float)) and not isinstance(score, bool) and -math.inf < score < math.inf
        for score in scores
    )
    if not numbers or len(scores) != n_choices:
        raise DatasetError(
            f"{where}: {n_choices} choices need as many scores, all finite numbers, got {shown(scores)}."
        )
    return correct_of_scores(scores)
