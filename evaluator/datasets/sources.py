"""Find and load datasets: named ones, and those in the user's files and folders.

The kind of a file is decided by the first of these rules that applies:

1. A `.json` file is a BIG-bench task.
2. A table with the name of a published table (lu_2023_tables.py) is that table, unless it has a column of choices.
3. A table that is listed in a `tasks.json` in its folder is multiple choice, with the columns of BIG-bench Lite if it
   is Parquet and the user names no columns.
4. A table is multiple choice if the user names a column of choices (`TableColumns.choices`) or it has the column
   `choices`.
5. Any other table holds texts and labels.

The datasets of a folder are decided by the first of these rules that applies:

1. If it holds a published table or the published demonstrations: the tables of the named datasets, or of the datasets
   of the paper if none is named.
2. If it or a folder below it holds a `task.json`: each of them.
3. Else each table in it, except tables of training rows.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from evaluator.config import DataOptions, TableColumns
from evaluator.datasets import DATASETS
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.bigbench import TASK_FILE, TASKS_FILE, load_lite, load_task_json, stated_task, template_of
from evaluator.datasets.hub_repository import hub_loader
from evaluator.datasets.labelled_table import LabelledFile, load_labelled
from evaluator.datasets.lu_2023 import (
    expected_tables,
    hub_file,
    is_published_folder,
    published_file,
    published_name,
    published_tables,
)
from evaluator.datasets.lu_2023_tables import ON_GITHUB, PUBLISHED_TABLES
from evaluator.datasets.multiple_choice import AnyDataset
from evaluator.datasets.multiple_choice_table import CHOICES, load_choice_table
from evaluator.datasets.staicc import load_staicc
from evaluator.datasets.staicc_sources import SOURCES
from evaluator.datasets.tables import SUFFIXES, column_names, table_in
from evaluator.datasets.user_table import USER_TRAINING, user_file
from evaluator.errors import ConfigError, DatasetError
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.templates.choice_template import ChoiceTemplate


@dataclass(frozen=True, kw_only=True)
class DatasetSource:
    """A dataset that can be loaded."""

    name: str
    origin: str  # for messages
    load: Callable[[], AnyDataset]
    is_own: bool = False  # a table of the user's own, which options can describe


def load_datasets(names: Sequence[str], data: DataOptions, *, query_every_row: bool = False) -> Iterator[AnyDataset]:
    """Load the datasets of dataset_sources one after the other. Raises as it does, and as each loader does."""
    for source in dataset_sources(names, data, query_every_row=query_every_row):
        yield source.load()


def dataset_sources(names: Sequence[str], data: DataOptions, *, query_every_row: bool = False) -> list[DatasetSource]:
    """Return the named datasets of StaICC, those in files and folders, and the named ones of the hub, in this order.

    Args:
        names: of DATASETS. A published table that is in a path of `data` is read from there, else from the hub.
        data: files, folders and whether the hub may be used.
        query_every_row: make every row of a labelled table without training rows a query and none a demonstration.

    Raises:
        ConfigError: a name that is not in DATASETS, options about tables where there is no table.
        DatasetError: two datasets with one name, a path that does not exist or holds no dataset, a named dataset that
            no path holds if the hub may not be used, a table that cannot be read.
    """
    for name in names:
        if name not in DATASETS:
            raise ConfigError(f"There is no dataset {name!r}. There are: {', '.join(DATASETS)}.")
    sources = [
        DatasetSource(name=name, origin="StaICC", load=partial(load_staicc, name)) for name in names if name in SOURCES
    ]
    published = [name for name in names if name in PUBLISHED_TABLES]
    missing = dict.fromkeys(published)
    for path in data.paths:
        if not path.is_file() and not path.is_dir():
            what = "is neither a file nor a folder" if path.exists() else "does not exist"
            raise DatasetError(f"{path} {what}. Name a file or a folder with --data.")
        tables = _published_tables(path, published, data.columns)
        for name, table in (tables or {}).items():
            sources.append(_labelled(name, table, partial(published_file, name, table), query_every_row))
            missing.pop(name, None)
        if tables is None:
            sources += _user_sources(path, published, data, query_every_row)
    sources += [_hub_source(word, data, query_every_row) for word in data.repositories]
    if missing and not data.hub:
        raise DatasetError(_missing_message(list(missing)))
    sources += [
        DatasetSource(name=name, origin="the hub", load=partial(_load_from_hub, name, query_every_row))
        for name in missing
    ]
    _require_different_names(sources)
    _require_own_table(sources, data)
    return sources


def _published_tables(path: Path, named: Sequence[str], columns: TableColumns) -> dict[str, Path] | None:
    """Return the published tables of a path by name, or None if it holds other data."""
    if path.is_dir():
        return published_tables(path, named) if is_published_folder(path) else None
    name = published_name(path)
    if name is None or path.suffix not in SUFFIXES or (columns.choices or CHOICES) in column_names(path):
        return None
    return {name: path}


def _user_sources(
    path: Path, named: Sequence[str], data: DataOptions, query_every_row: bool
) -> Iterator[DatasetSource]:
    """Yield the datasets of a user's file or folder."""
    if path.is_file():
        yield _file_source(path, path.parent, data, query_every_row)
        return
    tables = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    tasks = sorted(file for file in path.rglob(TASK_FILE) if file.is_file())
    files = tasks or [file for file in tables if not _is_training_table(file, data.columns)]
    # With named datasets the folder may be empty: dataset_sources reports those that are in no path.
    if not files and not named:
        raise DatasetError(f"{path} holds no {TASK_FILE} and no table ({', '.join(SUFFIXES)}).")
    for file in files:
        yield _file_source(file, path, data, query_every_row)


def _file_source(path: Path, folder: Path, data: DataOptions, query_every_row: bool) -> DatasetSource:
    """Return the dataset of a file that is not a published table."""
    columns = data.columns
    if path.suffix == ".json":
        if given := [*_stated_columns(data), *_stated_texts(data)]:
            raise ConfigError(f"{path} is a BIG-bench task, and {', '.join(given)} is for tables. Leave it out.")
        name = _task_name(path, folder)
        return DatasetSource(name=name, origin=str(path), load=partial(load_task_json, path, name))
    load: Callable[[], AnyDataset]
    task = stated_task(path)
    if task is not None and columns == TableColumns() and path.suffix == ".parquet":
        load = partial(load_lite, path, task)
    elif _has_choices(path, columns):
        template = ChoiceTemplate() if task is None else template_of(task, f"{path.parent / TASKS_FILE}, {path.stem}")
        load = partial(load_choice_table, path, columns, template)
    else:
        return replace(_labelled(path.stem, path, partial(user_file, path, data), query_every_row), is_own=True)
    if given := _stated_texts(data):
        raise ConfigError(
            f"{path} has choices in each row, and {', '.join(given)} is for tables of texts and labels. Leave it out."
        )
    return DatasetSource(name=path.stem, origin=str(path), load=load, is_own=True)


def _stated_texts(data: DataOptions) -> list[str]:
    """Return the options about tables of texts and labels that were given."""
    options: dict[str, object] = {
        "--training-data": data.training,
        "--training-rows": data.training_rows,
        "--labels": data.labels,
        "--template": data.template,
        "--instruction": data.instruction,
    }
    return [option for option, value in options.items() if value]


def _stated_columns(data: DataOptions) -> list[str]:
    """Return the options about columns of tables that were given."""
    columns = data.columns
    options: dict[str, object] = {
        "--input-column": columns.inputs,
        "--choices-column": columns.choices,
        "--gold-column": columns.gold,
        "--id-column": columns.example_id,
    }
    return [option for option, value in options.items() if value]


def _require_own_table(sources: Sequence[DatasetSource], data: DataOptions) -> None:
    """Raise ConfigError for options about tables where no dataset is the user's own table."""
    given = [*_stated_columns(data), *_stated_texts(data)]
    if given and not any(source.is_own for source in sources):
        known = f" (published: {', '.join(source.name for source in sources)})" if data.paths else ""
        raise ConfigError(
            f"{', '.join(given)} is for a table of your own in --data, and there is none{known}. Leave it out; a file "
            "with the name of a published table needs another name."
        )


def _has_choices(path: Path, columns: TableColumns) -> bool:
    """Return whether a table is multiple choice (rules 3 and 4)."""
    return columns.choices is not None or stated_task(path) is not None or CHOICES in column_names(path)


def _is_training_table(path: Path, columns: TableColumns) -> bool:
    """Return whether a table holds the training rows of another table in its folder."""
    queries = table_in(path.parent, path.stem.removesuffix(USER_TRAINING))
    return path.stem.endswith(USER_TRAINING) and queries is not None and not _has_choices(queries, columns)


def _task_name(path: Path, folder: Path) -> str:
    """Return the name of a BIG-bench task: the path of its folder relative to `folder`, which the user named."""
    if path.name != TASK_FILE:
        return path.stem
    relative = path.parent.relative_to(folder).as_posix()
    return path.parent.name if relative == "." else relative


def _labelled(name: str, path: Path, file: Callable[[], LabelledFile], query_every_row: bool) -> DatasetSource:
    def load() -> ClassificationDataset:
        return load_labelled(file(), query_every_row=query_every_row)

    return DatasetSource(name=name, origin=str(path), load=load)


def _hub_source(word: str, data: DataOptions, query_every_row: bool) -> DatasetSource:
    """Return a labelled dataset of the hub."""
    name, file = hub_loader(word, data)

    def load() -> ClassificationDataset:
        return load_labelled(file(), query_every_row=query_every_row)

    return DatasetSource(name=name, origin=f"hub:{word}", load=load, is_own=True)


def _load_from_hub(name: str, query_every_row: bool) -> ClassificationDataset:
    return load_labelled(hub_file(name), query_every_row=query_every_row)


def _missing_message(missing: Sequence[str]) -> str:
    on_hub = [name for name in missing if name not in ON_GITHUB]
    hub = f", or have {', '.join(on_hub)} downloaded with --data hub" if on_hub else ""
    return f"None of the paths in --data holds {expected_tables(missing)}. Name the folder that does{hub}."


def require_dataset_name(name: str, origin: str) -> None:
    """Raise DatasetError for the name that tables give to the mean over datasets."""
    if name == MEAN_OVER_DATASETS:
        raise DatasetError(
            f"{origin}: a dataset cannot be called {name!r}, the name of the mean over datasets in tables. Give the "
            "file another name."
        )


def _require_different_names(sources: Sequence[DatasetSource]) -> None:
    origins: dict[str, str] = {}
    for source in sources:
        require_dataset_name(source.name, source.origin)
        if source.name in origins:
            raise DatasetError(
                f"Two datasets are called {source.name!r}, one from {origins[source.name]} and one from {source.origin}"
                ". Name it once, or give its file another name."
            )
        origins[source.name] = source.origin
