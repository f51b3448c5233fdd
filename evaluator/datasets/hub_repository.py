"""Read labelled datasets of the Hugging Face hub; `--data hub:owner/name` reads a dataset as a user's table.

The hub has a Parquet copy of every public dataset at the revision PARQUET, in files `<config>/<split>/0000.parquet`,
`0001.parquet` and so on. Rows with texts and a label are written as tables to the cache, in one folder per commit;
later runs need no network. Label names are those in the features of the dataset if the label column has names there and
the user gives none.
"""

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from evaluator.config import DataOptions, cache_folder
from evaluator.datasets.base import write_cached
from evaluator.datasets.labelled_table import LABEL, NO_LABEL, TEXT, USER_TRAINING, LabelledFile, user_file
from evaluator.datasets.tables import class_names, column_names, read_columns, require_columns
from evaluator.errors import ConfigError, DatasetError
from evaluator.files.digests import short_digest
from evaluator.hub import hub_files, hub_snapshot

PARQUET = "refs/convert/parquet"
QUERY_SPLITS = ("test", "validation", "dev", "train")
"""Splits from which queries are read: the first split that exists and has labels."""

TRAINING = "train"
_NAME = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+)(/(?P<config>[\w.+-]+))?(/(?P<split>[\w.+-]+))?(@(?P<revision>[\w./-]+))?"
)
_COLUMNS_HINT = "Say which hold the texts and the label with --input-column A,B and --gold-column C."
_HINT = "Or download its tables and name them with --data."


@dataclass(frozen=True, kw_only=True)
class HubName:
    """A dataset on the hub, as `hub:OWNER/NAME[/CONFIG[/SPLIT]][@REVISION]` names it."""

    repository: str
    config: str | None = None  # None: "default", or the only config
    split: str | None = None  # split of the queries; None: the first of QUERY_SPLITS with labels
    revision: str | None = None  # a commit of PARQUET; None: the newest commit

    @property
    def dataset(self) -> str:
        """Return the name of the dataset in a run."""
        return "-".join(filter(None, (self.repository.partition("/")[2], self.config, self.split)))


@dataclass(frozen=True, kw_only=True)
class HubRows:
    """Rows of a split that have texts and a label."""

    rows: pl.DataFrame
    commit: str
    where: str  # name of the split, for messages
    note: str = ""  # note on rows that are left out
    label_names: tuple[str, ...]  # names of the labels 0, 1, ... in the dataset's features; empty: not stated


def hub_name(word: str) -> HubName:
    """Parse the text after `hub:`. Raises ConfigError if it does not have the form of HubName."""
    match = _NAME.fullmatch(word)
    if match is None:
        raise ConfigError(
            f"--data hub:{word}: it is no name on the hub. Write hub:OWNER/NAME[/CONFIG[/SPLIT]][@COMMIT]."
        )
    return HubName(**match.groupdict())


def hub_labelled(name: HubName, data: DataOptions) -> LabelledFile:
    """Download a dataset, unless it is in the hub's cache, and return the reader that reads it as a user's table.

    Raises DatasetError if the hub cannot be reached, lacks the dataset or denies access to it, if the dataset has
    several configs and `name` has none, and for a split without labels.
    """
    config, splits = _config(name)
    candidates = [name.split] if name.split else [split for split in QUERY_SPLITS if split in splits]
    if not candidates or candidates[0] not in splits:
        raise DatasetError(
            f"{name.repository} ({config}) on the hub has the splits {', '.join(splits)}. Name the split of the "
            f"queries: --data hub:{name.repository}/{config}/SPLIT."
        )
    texts, label = data.columns.inputs or (TEXT,), data.columns.gold or LABEL

    def labelled(split: str) -> HubRows:
        chosen = replace(name, config=config, split=split)
        part = read_split(chosen, texts, label, columns_hint=_COLUMNS_HINT, hint=_HINT)
        return with_label(part, split, pl.col(label) != NO_LABEL if part.label_names else pl.lit(True))

    notes: list[str] = []
    for split in candidates:
        queries = labelled(split)
        if queries.rows.height:
            break
        notes.append(f"no row of {split} has a label, so queries are from another split")
    else:
        raise DatasetError(f"{name.repository} ({config}) on the hub: no row of {', '.join(candidates)} has a label.")
    tables = {name.dataset: queries}
    if data.training is None and TRAINING in splits and split != TRAINING:
        tables[name.dataset + USER_TRAINING] = labelled(TRAINING)
    read_as = short_digest(json.dumps([queries.rows.columns, split]).encode())
    folder = write_tables(f"{name.repository}-{queries.commit}-{config}-{read_as}", tables)
    file = user_file(folder / f"{name.dataset}.parquet", data, queries.label_names)
    source = f"from {name.repository} ({config}, {split}) on the hub, commit {queries.commit} of {PARQUET}"
    return replace(file, notes=(source, *notes, *(part.note for part in tables.values() if part.note)))


def _config(name: HubName) -> tuple[str, list[str]]:
    """Return the config to read and its splits, from the list of files on the hub or, without a network, in its cache.

    Raises DatasetError if there are no Parquet files, or several configs and `name` does not say which.
    """
    splits: dict[str, list[str]] = {}
    for path in hub_files(name.repository, name.revision or PARQUET, error=DatasetError, hint=_HINT):
        parts = path.split("/")
        if len(parts) == 3 and path.endswith(".parquet") and parts[1] not in splits.setdefault(parts[0], []):
            splits[parts[0]].append(parts[1])
    if not splits:
        raise DatasetError(f"{name.repository} on the hub has no Parquet files. {_HINT}")
    config = name.config or ("default" if "default" in splits else next(iter(splits)))
    if config not in splits or (name.config is None and config != "default" and len(splits) > 1):
        raise DatasetError(
            f"{name.repository} on the hub has the configs {', '.join(splits)}. Name one: --data "
            f"hub:{name.repository}/CONFIG."
        )
    return config, splits[config]


def read_split(name: HubName, texts: Sequence[str], label: str, *, columns_hint: str, hint: str) -> HubRows:
    """Download a split, unless it is in the hub's cache, and return the texts and labels of all its rows.

    Args:
        name: the dataset; its config and split are set.
        texts: names of the text columns.
        label: name of the label column.
        columns_hint: what to do about a missing column, for messages.
        hint: how to provide the dataset without the hub, for messages.

    Raises DatasetError if the hub cannot be reached, lacks the dataset or denies access to it, and for a file that
    cannot be read or lacks a column.
    """
    pattern = f"{name.config}/{name.split}/*.parquet"
    revision = name.revision or PARQUET
    snapshot = hub_snapshot(name.repository, "dataset", [pattern], revision=revision, error=DatasetError, hint=hint)
    where = f"{name.repository} on the hub, {name.config}/{name.split} at commit {snapshot.name}"
    files = sorted(snapshot.glob(pattern))
    if not files:
        raise DatasetError(
            f"{where}: there is no Parquet file. Run once with a network; if it happens again, the hub has moved them. "
            f"{hint}"
        )
    columns = list(dict.fromkeys([*texts, label]))
    with _reading(where):
        present = column_names(files[0])
    require_columns(present, columns, where, columns_hint)
    with _reading(where):
        rows = pl.concat([read_columns(file, columns) for file in files], how="vertical_relaxed")
    return HubRows(rows=rows, commit=snapshot.name, where=where, label_names=tuple(class_names(files[0], label)))


@contextmanager
def _reading(where: str) -> Iterator[None]:
    """Add the name of the split to errors about its files."""
    try:
        yield
    except (DatasetError, pl.exceptions.PolarsError) as error:
        raise DatasetError(f"{where}: {error} Remove the file, to have it downloaded again.") from error


def with_label(part: HubRows, split: str, is_labelled: pl.Expr) -> HubRows:
    """Keep the rows that have a label and no missing or blank cell; add a note with the number of other rows."""
    is_whole = pl.all_horizontal(pl.all().cast(pl.String).str.strip_chars() != "")
    rows = part.rows.filter(is_whole.fill_null(False) & is_labelled)
    n_lost, n_rows = part.rows.height - rows.height, part.rows.height
    note = f"{n_lost:,} of {n_rows:,} rows of {split} are left out: no label, or no text" if n_lost else ""
    return replace(part, rows=rows, note=note)


def write_tables(name: str, tables: Mapping[str, HubRows]) -> Path:
    """Write the tables that have rows to a folder in the cache, and return this folder.

    Raises DatasetError as write_cached does.
    """
    folder = cache_folder() / "hub" / name.replace("/", "--")
    for stem, part in tables.items():
        if part.rows.height:
            content = io.BytesIO()
            part.rows.write_parquet(content)
            write_cached(folder / f"{stem}.parquet", content.getbuffer())
    return folder
