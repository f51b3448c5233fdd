"""Find and load datasets: the named datasets, and the user's files and folders.

The first rule that applies determines the datasets of a folder:

1. If it holds a published table or the published demonstrations of Lu et al. 2023: the tables of the named datasets, or
   of the datasets of the paper if the user names none.
2. If it or a folder below it holds `task.json` files: the tasks in these files.
3. Otherwise every table in the folder, except tables of training rows.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from evaluator.config import DataOptions, Options, TableColumns, flag, option_name
from evaluator.datasets import DATASETS, PUBLISHED_TABLES, SOURCES, lu_2023
from evaluator.datasets.base import AnyDataset
from evaluator.datasets.hub_repository import hub_labelled, hub_name
from evaluator.datasets.labelled_table import USER_TRAINING, LabelledFile, load_labelled, reworded, user_file
from evaluator.datasets.multiple_choice import CHOICES, TASK_FILE, choice_table, load_task_json, read_json, stated_task
from evaluator.datasets.question_table import question_tables
from evaluator.datasets.staicc import load_staicc
from evaluator.datasets.tables import SUFFIXES, column_names, ending, is_table, table_in, table_stem
from evaluator.errors import ConfigError, DatasetError, require_known
from evaluator.redaction import name_fault, printable
from evaluator.schemas import MEAN_OVER_DATASETS


class DatasetSource(NamedTuple):
    """A dataset that is not loaded yet, and the function that reads it."""

    name: str
    origin: str  # file, folder or package, for messages
    read: Callable[[], AnyDataset | LabelledFile]
    # "named": in DATASETS; "task": a BIG-bench task; "table": a table of the user, which options describe
    kind: Literal["named", "task", "table"] = "named"

    def load(self, *, query_every_row: bool = False) -> AnyDataset:
        """Load the dataset. Raises the errors of its reader and of load_labelled.

        Args:
            query_every_row: make every row of a labelled table without training rows a query and none a demonstration.
        """
        loaded = self.read()
        if isinstance(loaded, LabelledFile):
            return load_labelled(loaded, query_every_row=query_every_row)
        return loaded


def load_datasets(names: Sequence[str], data: DataOptions, *, query_every_row: bool = False) -> Iterator[AnyDataset]:
    """Load the datasets that dataset_sources returns, one after the other. Raises its errors and the loaders' errors.

    Args:
        names, data: as for dataset_sources.
        query_every_row: as for DatasetSource.load.
    """
    for source in dataset_sources(names, data):
        yield source.load(query_every_row=query_every_row)


def dataset_sources(names: Sequence[str], data: DataOptions) -> list[DatasetSource]:
    """Return the named StaICC datasets, the datasets in files and folders, and the datasets on the hub, in this order.

    Args:
        names: names in DATASETS. A published table is read from a path of `data` that holds it, else from the hub.
        data: files, folders, repositories on the hub, and whether published tables may be read from the hub.

    Raises:
        ConfigError: for a name that is not in DATASETS, and for options about tables where there is no table.
        DatasetError: for two datasets with the same name, a path that does not exist or holds no dataset, a named
            dataset that no path holds if the hub may not be used, and a table that cannot be read.
    """
    where = "; a table of --data is chosen by its file, --data FOLDER/FILE, and not by --datasets" if data.paths else ""
    require_known("There is no dataset", names, DATASETS, where=where)
    sources = [DatasetSource(name, STAICC, partial(load_staicc, name)) for name in names if name in SOURCES]
    published = [name for name in names if name in PUBLISHED_TABLES]
    for path in data.paths:
        sources += _path_sources(path, published, data)
    for word in data.repositories:
        name_on_hub = hub_name(word)
        read = partial(hub_labelled, name_on_hub, data)
        sources.append(DatasetSource(name_on_hub.dataset, f"hub:{word}", read, "table"))
    held = {source.name for source in sources if source.kind == "named"}
    missing = [name for name in dict.fromkeys(published) if name not in held]
    if missing and not data.hub:
        on_hub = [name for name in missing if not isinstance(PUBLISHED_TABLES[name].release, str)]
        hub = f", or have {', '.join(on_hub)} downloaded with --data hub" if on_hub else ""
        raise DatasetError(
            f"None of the paths in --data holds {lu_2023.expected_tables(missing)}. Name the folder that does{hub}."
        )
    sources += [DatasetSource(name, "the hub", partial(lu_2023.hub_file, name)) for name in missing]
    _require_different_names(sources)
    return sources if any(source.kind == "table" for source in sources) else _without_own_table(sources, data)


STAICC = "StaICC"
REWORDS = {"--template", "--labels", "--instruction"}
"""Options that set the text around examples. They apply to the user's tables, or to StaICC's datasets if there is no
table."""


def holds_published(words: Iterable[str]) -> bool:
    """Return whether any of the given values of --data is a folder with published tables."""
    folders = (Path(os.path.expanduser(word)) for word in words)
    return any(lu_2023.published_tables(folder, ()) for folder in folders if folder.is_dir())


def _path_sources(path: Path, named: Sequence[str], data: DataOptions) -> Iterator[DatasetSource]:
    """Yield the datasets of a file or folder; `named` are the published datasets that the user named."""
    if path.is_file() and data.questions is not None:
        for name, read in question_tables(path, data):
            yield DatasetSource(name, f"{path}, {data.questions}", read, "table")
        return
    if path.is_file():
        yield _file_source(path, path.parent, data)
        return
    if not path.is_dir():
        what = "is neither a file nor a folder" if path.exists() else "does not exist"
        raise DatasetError(f"{path} {what}. Name a file or a folder with --data.")
    if (published := lu_2023.published_tables(path, named)) is not None:
        for name, table in published.items():
            yield DatasetSource(name, str(table), partial(lu_2023.published_file, name, table))
        return
    found = sorted(file for file in path.rglob(TASK_FILE) if file.is_file())
    if not found:
        found = [file for file in sorted(path.iterdir()) if is_table(file) and not _is_training_table(file, data)]
    if shards := [file for file in found if re.search(r"-[0-9]{5}-of-(?!00001)[0-9]{5}$", table_stem(file))]:
        raise DatasetError(
            f"{shards[0]} holds a part of a table, and every file in a folder is a dataset of its own. Join the "
            "parts in one file, or name a dataset of the hub: --data hub:OWNER/NAME."
        )
    # With named datasets the folder may be empty: dataset_sources reports a dataset that is in no path.
    if not found and not named:
        raise DatasetError(f"{path} holds no {TASK_FILE} and no table ({', '.join(SUFFIXES)}).")
    for file in found:
        yield _file_source(file, path, data)


def _is_training_table(path: Path, data: DataOptions) -> bool:
    """Return whether a table holds the training rows of another table in its folder."""
    stem = table_stem(path)
    queries = table_in(path.parent, stem.removesuffix(USER_TRAINING)) if stem.endswith(USER_TRAINING) else None
    return queries is not None and not _has_choices(queries, data.columns)


def _file_source(path: Path, folder: Path, data: DataOptions) -> DatasetSource:
    """Return the dataset in a file: a BIG-bench task, a published table, a table of labels, or multiple choice.

    Args:
        path: the file.
        folder: the folder that the user named, or the parent folder of a file that the user named.
        data: the options about tables.
    """
    if ending(path) == ".json":
        return _task(path, folder, data)
    stem = table_stem(path)
    published = next((name for name, table in PUBLISHED_TABLES.items() if table.file == stem), None)
    if published and (data.columns.choices or CHOICES) not in column_names(path):
        return DatasetSource(published, str(path), partial(lu_2023.published_file, published, path))
    if not _has_choices(path, data.columns):
        return DatasetSource(stem, str(path), partial(user_file, path, data), "table")
    if given := _stated(data):
        raise ConfigError(
            f"{path} has choices in each row, and {', '.join(given)} is for tables of texts and labels. Leave it out."
        )
    return DatasetSource(stem, str(path), choice_table(path, data.columns), "table")


def _has_choices(path: Path, columns: TableColumns) -> bool:
    """Return whether a table is multiple choice: it is listed in tasks.json or has a column of choices."""
    return columns.choices is not None or stated_task(path) is not None or CHOICES in column_names(path)


def _task(path: Path, folder: Path, data: DataOptions) -> DatasetSource:
    """Return a BIG-bench task, named after its folder relative to the folder that the user named."""
    if given := _stated(data.columns, data):
        read_json(path)  # raises an error with another hint if the file is a table in JSON and not a task
        raise ConfigError(f"{path} is a BIG-bench task, and {', '.join(given)} is for tables. Leave it out.")
    name = path.stem
    if path.name == TASK_FILE:
        name = path.parent.name if path.parent == folder else path.parent.relative_to(folder).as_posix()
    return DatasetSource(name, str(path), partial(load_task_json, path, name), "task")


def _stated(*options: Options) -> list[str]:
    """Return the command-line flags of the options that have a value, except --data."""
    entries = [(entry, getattr(each, entry.name)) for each in options for entry in fields(each) if entry.metadata]
    return [flag(option_name(entry)) for entry, value in entries if value and entry.name != "paths"]


def _without_own_table(sources: list[DatasetSource], data: DataOptions) -> list[DatasetSource]:
    """Return sources without a user's table; options of REWORDS change the text of the StaICC datasets among them.

    Raises ConfigError for other options about tables, and for options of REWORDS without a StaICC dataset.
    """
    given = _stated(data.columns, data)
    if not given:
        return sources
    if {*given} <= REWORDS and any(source.origin == STAICC for source in sources):
        return [
            source._replace(read=partial(reworded, source.name, data)) if source.origin == STAICC else source
            for source in sources
        ]
    published = f" (published: {', '.join(source.name for source in sources)})"
    there = f"there is none{published}. Leave it out, or give the file another name" if data.paths else "no --data"
    way_out = "." if data.paths else " is given. Add --data FILE, or leave it out."
    raise ConfigError(f"{', '.join(given)} is for a table of your own in --data, and {there}{way_out}")


def require_dataset_name(name: str, origin: str) -> None:
    """Raise DatasetError for a name that cannot be printed on one line, and for MEAN_OVER_DATASETS.

    Tables use the name MEAN_OVER_DATASETS for the mean over datasets.
    """
    if fault := name_fault(name):
        raise DatasetError(f"{printable(origin)}: the name of a dataset {fault}. Change it.")
    if name == MEAN_OVER_DATASETS:
        raise DatasetError(
            f"{origin}: a dataset cannot be called {name!r}, the name of the mean over datasets in tables. Change it."
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
