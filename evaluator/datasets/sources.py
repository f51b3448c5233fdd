"""Find and load datasets: named ones, and the user's files and folders.

The datasets of a folder are decided by the first of these rules that applies:

1. If it holds a published table or the published demonstrations: the tables of the named datasets, or of the datasets
   of the paper if none is named.
2. If it or a folder below it holds a `task.json`: each of them.
3. Else each table in it, except tables of training rows.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from evaluator.config import DataOptions, TableColumns
from evaluator.datasets import DATASETS, PUBLISHED_TABLES, SOURCES, bigbench, lu_2023
from evaluator.datasets.base import AnyDataset
from evaluator.datasets.hub_repository import hub_labelled, hub_name
from evaluator.datasets.labelled_table import LabelledFile, load_labelled
from evaluator.datasets.multiple_choice import CHOICES, load_choice_table
from evaluator.datasets.question_table import question_tables
from evaluator.datasets.staicc import load_staicc
from evaluator.datasets.tables import SUFFIXES, column_names, ending, is_table, table_in, table_stem
from evaluator.datasets.user_table import USER_TRAINING, reworded, user_file
from evaluator.errors import ConfigError, DatasetError, require_known
from evaluator.options import Options, flag, option_name
from evaluator.redaction import name_fault, printable
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.templates.template import ChoiceTemplate


class DatasetSource(NamedTuple):
    """A dataset that can be loaded."""

    name: str
    origin: str  # for messages
    read: Callable[[], AnyDataset | LabelledFile]
    kind: Literal["named", "task", "table"] = "named"  # in DATASETS; of BIG-bench; the user's, which options describe

    def load(self, *, query_every_row: bool = False) -> AnyDataset:
        """Load the dataset. Raises as its reader and load_labelled do.

        Args:
            query_every_row: make every row of a labelled table without training rows a query and none a demonstration.
        """
        loaded = self.read()
        if isinstance(loaded, LabelledFile):
            return load_labelled(loaded, query_every_row=query_every_row)
        return loaded


def load_datasets(names: Sequence[str], data: DataOptions, *, query_every_row: bool = False) -> Iterator[AnyDataset]:
    """Load the datasets of dataset_sources one after the other. Raises as it does, and as each loader does."""
    for source in dataset_sources(names, data):
        yield source.load(query_every_row=query_every_row)


def dataset_sources(names: Sequence[str], data: DataOptions) -> list[DatasetSource]:
    """Return the named datasets of StaICC, the datasets in files and folders, and the named ones of the hub, in order.

    Args:
        names: of DATASETS. A published table that is in a path of `data` is read from there, else from the hub.
        data: files, folders and whether the hub may be used.

    Raises:
        ConfigError: a name that is not in DATASETS, options about tables where there is no table.
        DatasetError: two datasets with one name, a path that does not exist or holds no dataset, a named dataset that
            no path holds if the hub may not be used, a table that cannot be read.
    """
    require_known("There is no dataset", names, DATASETS)
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
    if not any(source.kind == "table" for source in sources) and {*_stated(data)} & REWORDS:
        sources = [
            source._replace(read=partial(reworded, source.name, data)) if source.origin == STAICC else source
            for source in sources
        ]
    _require_own_table(sources, data)
    return sources


STAICC = "StaICC"
REWORDS = {"--template", "--labels", "--instruction"}
"""Options that state the text around examples: of a user's table, or of StaICC's datasets if there is no table."""


def holds_published(words: Iterable[str]) -> bool:
    """Return whether a value of --data is a folder with published tables."""
    folders = (Path(word).expanduser() for word in words)
    return any(lu_2023.published_tables(folder, ()) for folder in folders if folder.is_dir())


class _File(NamedTuple):
    """A file that the user named, or that is in a folder that the user named."""

    path: Path
    folder: Path  # that the user named, or the folder of the file
    data: DataOptions

    @property
    def published(self) -> str | None:
        """The published table with the name of the file, unless the file has a column of choices."""
        name = next((name for name, table in PUBLISHED_TABLES.items() if table.file == table_stem(self.path)), None)
        if name is None or ending(self.path) not in SUFFIXES:
            return None
        return None if (self.data.columns.choices or CHOICES) in column_names(self.path) else name

    @property
    def has_choices(self) -> bool:
        """Whether a table is multiple choice: a task of tasks.json, or with a column of choices."""
        named = self.data.columns.choices is not None
        return named or bigbench.stated_task(self.path) is not None or CHOICES in column_names(self.path)

    def refuse(self, options: Sequence[str], what: str) -> None:
        """Raise ConfigError for options that do not apply to the file."""
        if options:
            raise ConfigError(f"{self.path} {what.format(', '.join(options))}. Leave it out.")


def _path_sources(path: Path, named: Sequence[str], data: DataOptions) -> Iterator[DatasetSource]:
    """Yield the datasets of a file or folder; `named` are the published ones that the user named."""
    if path.is_file() and data.questions is not None:
        for name, read in question_tables(path, data):
            yield DatasetSource(name, f"{path}, {data.questions}", read, "table")
        return
    if path.is_file():
        yield _file_source(_File(path, path.parent, data))
        return
    if not path.is_dir():
        what = "is neither a file nor a folder" if path.exists() else "does not exist"
        raise DatasetError(f"{path} {what}. Name a file or a folder with --data.")
    if (published := lu_2023.published_tables(path, named)) is not None:
        for name, table in published.items():
            yield DatasetSource(name, str(table), partial(lu_2023.published_file, name, table))
        return
    found = sorted(file for file in path.rglob(bigbench.TASK_FILE) if file.is_file())
    if not found:
        tables = sorted(filter(is_table, path.iterdir()))
        found = [file for file in tables if not _is_training_table(file, data)]
    # With named datasets the folder may be empty: dataset_sources reports a dataset that is in no path.
    if not found and not named:
        raise DatasetError(f"{path} holds no {bigbench.TASK_FILE} and no table ({', '.join(SUFFIXES)}).")
    for file in found:
        yield _file_source(_File(file, path, data))


def _is_training_table(path: Path, data: DataOptions) -> bool:
    """Return whether a table holds the training rows of another table in its folder."""
    queries = table_in(path.parent, table_stem(path).removesuffix(USER_TRAINING))
    is_named = table_stem(path).endswith(USER_TRAINING) and queries is not None
    return is_named and not _File(queries or path, path.parent, data).has_choices


def _file_source(file: _File) -> DatasetSource:
    """Return the dataset in a file, by the first kind of file whose condition holds."""
    if ending(file.path) == ".json":
        return _task(file)
    if (name := file.published) is not None:
        return DatasetSource(name, str(file.path), partial(lu_2023.published_file, name, file.path))
    if file.has_choices:
        return _choice_table(file)
    return DatasetSource(table_stem(file.path), str(file.path), partial(user_file, file.path, file.data), "table")


def _task(file: _File) -> DatasetSource:
    """Return a task of BIG-bench, named after its folder relative to the one that the user named."""
    given = [*_stated(file.data.columns), *_stated(file.data)]
    if given:
        bigbench.read_json(file.path)  # a table in JSON has another way out than a task
    file.refuse(given, "is a BIG-bench task, and {} is for tables")
    name = file.path.stem
    if file.path.name == bigbench.TASK_FILE:
        relative = file.path.parent.relative_to(file.folder).as_posix()
        name = file.path.parent.name if relative == "." else relative
    return DatasetSource(name, str(file.path), partial(bigbench.load_task_json, file.path, name), "task")


def _choice_table(file: _File) -> DatasetSource:
    """Return a table of multiple choice, with the columns of BIG-bench Lite if tasks.json lists it, by default."""
    file.refuse(_stated(file.data), "has choices in each row, and {} is for tables of texts and labels")
    path, columns, task = file.path, file.data.columns, bigbench.stated_task(file.path)
    read: Callable[[], AnyDataset]
    if task is not None and path.suffix == ".parquet" and columns == TableColumns():
        read = partial(bigbench.load_lite, path, task)
    else:
        template = ChoiceTemplate()
        if task is not None:
            template = bigbench.template_of(task, f"{path.parent / bigbench.TASKS_FILE}, {path.stem}")
        read = partial(load_choice_table, path, columns, template)
    return DatasetSource(table_stem(path), str(path), read, "table")


def _stated(options: Options) -> list[str]:
    """Return the options that were given, except --data."""
    given = [entry for entry in fields(options) if entry.metadata and getattr(options, entry.name)]
    return [flag(option_name(entry)) for entry in given if entry.name != "paths"]


def _require_own_table(sources: Sequence[DatasetSource], data: DataOptions) -> None:
    """Raise ConfigError for options about tables where no dataset is the user's own table."""
    given = [*_stated(data.columns), *_stated(data)]
    is_reworded = {*given} <= REWORDS and any(source.origin == STAICC for source in sources)
    if given and not is_reworded and not any(source.kind == "table" for source in sources):
        published = f" (published: {', '.join(source.name for source in sources)})"
        there = f"there is none{published}. Leave it out, or give the file another name" if data.paths else "no --data"
        way_out = "." if data.paths else " is given. Add --data FILE, or leave it out."
        raise ConfigError(f"{', '.join(given)} is for a table of your own in --data, and {there}{way_out}")


def require_dataset_name(name: str, origin: str) -> None:
    """Raise DatasetError for a name of several lines, and for the one that tables give to the mean over datasets."""
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
