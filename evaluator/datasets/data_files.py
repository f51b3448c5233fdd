"""A file or folder that a user names becomes datasets: a dataset a file."""

from collections.abc import Iterator
from pathlib import Path

from evaluator.config import TableColumns
from evaluator.datasets.bigbench import TASKS_FILE, load_lite, load_task_json, read_json, template_of
from evaluator.datasets.multiple_choice import MultipleChoiceDataset
from evaluator.datasets.multiple_choice_table import SUFFIXES, load_user_table
from evaluator.errors import DatasetError
from evaluator.templates.choice_template import ChoiceTemplate

TASK_FILE = "task.json"


def load_data(path: Path, columns: TableColumns) -> Iterator[MultipleChoiceDataset]:
    """Every dataset of a file or folder.

    A `.json` file is a BIG-bench task. A table that a `tasks.json` beside it names takes its prefixes from there, and
    is read as BIG-bench Lite where it has its columns. Any other table is shown as a BIG-bench task that states no
    prefixes. A folder gives each `task.json` in it and below it, or else each table in it.

    Raises DatasetError where there is nothing to read, and as the loaders do.
    """
    if path.is_file():
        yield _load_file(path, columns, path.parent)
        return
    if not path.is_dir():
        raise DatasetError(f"{path} is not there. Name a file or a folder with --data.")
    files = sorted(path.rglob(TASK_FILE)) or sorted(each for each in path.iterdir() if each.suffix in SUFFIXES)
    if not files:
        raise DatasetError(f"{path} holds no {TASK_FILE} and no table ({', '.join(SUFFIXES)}).")
    for file in files:
        yield _load_file(file, columns, path)


def _load_file(path: Path, columns: TableColumns, folder: Path) -> MultipleChoiceDataset:
    if path.suffix == ".json":
        inner = path.parent.relative_to(folder).as_posix()
        name = path.stem if path.name != TASK_FILE else path.parent.name if inner == "." else inner
        return load_task_json(path, name)
    task = _stated_task(path)
    if task is None:
        return load_user_table(path, columns, ChoiceTemplate())
    if columns == TableColumns() and path.suffix == ".parquet":
        return load_lite(path, task)
    return load_user_table(path, columns, template_of(task, f"{path.parent / TASKS_FILE}, {path.stem}"))


def _stated_task(path: Path) -> dict[str, object] | None:
    """What `tasks.json` beside a table says of it."""
    stated = path.parent / TASKS_FILE
    tasks = read_json(stated).get("tasks") if stated.is_file() else None
    task = tasks.get(path.stem) if isinstance(tasks, dict) else None
    return task if isinstance(task, dict) else None
