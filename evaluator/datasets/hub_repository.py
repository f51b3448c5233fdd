"""Read a labelled dataset of the Hugging Face hub as a user's table: `--data hub:owner/name`.

The hub has a Parquet copy of every public dataset at the revision PARQUET, under `<config>/<split>/0000.parquet`. It is
converted once to tables in the cache, a folder for each commit; later runs need no network. Names of labels are
those of the dataset's features, where the label column has some and the user names none.
"""

import io
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from evaluator.config import DataOptions, cache_folder
from evaluator.datasets.labelled_table import LabelledFile
from evaluator.datasets.lu_2023_hub import PARQUET
from evaluator.datasets.table_text import read_table_text
from evaluator.datasets.tables import column_names, read_columns
from evaluator.datasets.user_table import LABEL, TEXT, USER_TRAINING, user_file
from evaluator.errors import ConfigError, DatasetError
from evaluator.files.digests import short_digest
from evaluator.files.json_files import parse_json
from evaluator.files.whole import write_bytes
from evaluator.hub import hub_files, hub_snapshot

QUERY_SPLITS = ("test", "validation", "dev", "train")
"""Splits that queries come from: the first that exists and has labels."""

TRAINING = "train"
NO_LABEL = -1
"""Label of rows that are published without one."""

_WORD = re.compile(
    r"(?P<repository>[\w.-]+/[\w.-]+)(/(?P<config>[\w.+-]+))?(/(?P<split>[\w.+-]+))?(@(?P<revision>[\w./-]+))?"
)
_HINT = "Or download its tables and name them with --data."


@dataclass(frozen=True, kw_only=True)
class HubName:
    """What `hub:OWNER/NAME[/CONFIG[/SPLIT]][@REVISION]` names."""

    repository: str
    config: str | None  # None: "default", or the only one
    split: str | None  # of the queries; None: the first of QUERY_SPLITS
    revision: str | None  # a commit of PARQUET; None: its newest

    @property
    def dataset(self) -> str:
        """Return the dataset's name in a run."""
        return "-".join(filter(None, (self.repository.partition("/")[2], self.config, self.split)))


def hub_name(word: str) -> HubName:
    """Read what follows `hub:`. Raises ConfigError."""
    found = _WORD.fullmatch(word)
    if found is None:
        raise ConfigError(
            f"--data hub:{word}: it is no name on the hub. Write hub:OWNER/NAME[/CONFIG[/SPLIT]][@COMMIT]."
        )
    return HubName(**found.groupdict())


def hub_labelled(name: HubName, data: DataOptions) -> LabelledFile:
    """Download a dataset, unless it is in the hub's cache, and return how to read it as a user's table.

    Raises DatasetError if the hub cannot be reached, lacks the dataset or denies access to it, if it has several
    configs and none is named, and for a split without labels.
    """
    config, splits = _config(name, _listed(name))
    candidates = [name.split] if name.split else [split for split in QUERY_SPLITS if split in splits]
    if not candidates or candidates[0] not in splits:
        raise DatasetError(
            f"{name.repository} ({config}) on the hub has the splits {', '.join(splits)}. Name that of the queries: "
            f"--data hub:{name.repository}/{config}/SPLIT."
        )
    notes: list[str] = []
    for split in candidates:
        rows = _rows(name, config, split, data)
        if rows.table.height:
            break
        notes.append(f"no row of {split} has a label, so queries are from another split")
    else:
        raise DatasetError(f"{name.repository} ({config}) on the hub: no row of {', '.join(candidates)} has a label.")
    has_training = data.training is None and TRAINING in splits and split != TRAINING
    training = _rows(name, config, TRAINING, data) if has_training else None
    folder = cache_folder() / "hub" / f"{name.repository.replace('/', '--')}-{rows.commit}-{config}-{rows.read}"
    _write(folder / f"{name.dataset}.parquet", rows.table)
    if training and training.table.height:
        _write(folder / f"{name.dataset}{USER_TRAINING}.parquet", training.table)
    if rows.labels and not (data.labels or read_table_text(data.template).labels):
        data = replace(data, labels=rows.labels)
    file = user_file(folder / f"{name.dataset}.parquet", data)
    source = f"from {name.repository} ({config}, {split}) on the hub, commit {rows.commit} of {PARQUET}"
    left_out = [part.note for part in (rows, training) if part and part.note]
    return replace(file, notes=(source, *notes, *left_out))


@dataclass(frozen=True, kw_only=True)
class _Split:
    """The rows of a split that have a text and a label."""

    table: pl.DataFrame
    labels: dict[str, str]  # cell -> name, where the features say so
    commit: str
    read: str  # digest of the columns that were read
    note: str  # on rows that are left out


def _listed(name: HubName) -> list[str]:
    """Return the paths of the dataset's files: those on the hub, or without a network those in the hub's cache."""
    revision = name.revision or PARQUET
    return hub_files(name.repository, revision, error=DatasetError, hint=_HINT)


def _config(name: HubName, files: Sequence[str]) -> tuple[str, list[str]]:
    """Return the config to read and its splits."""
    splits: dict[str, list[str]] = {}
    for path in files:
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


def _rows(name: HubName, config: str, split: str, data: DataOptions) -> _Split:
    """Download a split and return its rows that have texts and a label."""
    pattern = f"{config}/{split}/*.parquet"
    revision = name.revision or PARQUET
    snapshot = hub_snapshot(name.repository, "dataset", [pattern], revision=revision, error=DatasetError, hint=_HINT)
    files = sorted((snapshot / config / split).glob("*.parquet"))
    where = f"{name.repository} on the hub, {config}/{split} at commit {snapshot.name}"
    if not files:
        raise DatasetError(f"{where}: it is not in the local hub cache. Run once with a network. {_HINT}")
    texts, label = data.columns.inputs or (TEXT,), data.columns.gold or LABEL
    columns = list(dict.fromkeys([*texts, label]))
    _require_columns(column_names(files[0]), columns, where)
    table = pl.concat([read_columns(file, columns) for file in files], how="vertical_relaxed")
    names = _label_names(files[0], label)
    is_whole = pl.all_horizontal(pl.col(column).cast(pl.String).str.strip_chars() != "" for column in columns)
    is_labelled = pl.col(label) != NO_LABEL if names else pl.lit(True)
    kept = table.filter(is_whole.fill_null(False) & is_labelled)
    lost = table.height - kept.height
    return _Split(
        table=kept,
        labels={str(number): label_name for number, label_name in enumerate(names)},
        commit=snapshot.name,
        read=short_digest(json.dumps([columns, split]).encode()),
        note=f"{lost:,} of {table.height:,} rows of {split} are left out: no label, or no text" if lost else "",
    )


def _require_columns(present: Sequence[str], columns: Sequence[str], where: str) -> None:
    if missing := [column for column in columns if column not in present]:
        raise DatasetError(
            f"{where}: there is no column {missing[0]!r}. It has: {', '.join(present)}. Say which hold the texts and "
            "the label with --input-column A,B and --gold-column C."
        )


def _label_names(file: Path, label: str) -> list[str]:
    """Return the names of the label column's numbers, as the package `datasets` writes features; [] without any."""
    metadata = pq.read_schema(file).metadata or {}
    feature = _at(metadata.get(b"huggingface", b"{}"), "info", "features", label)
    names = feature.get("names") if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" else None
    return [str(name) for name in names] if isinstance(names, list) else []


def _at(content: bytes, *keys: str) -> Any:
    """Return the value at these keys of a JSON text, or None."""
    try:
        found = parse_json(content)
    except ValueError:
        return None
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def _write(path: Path, rows: pl.DataFrame) -> None:
    content = io.BytesIO()
    rows.write_parquet(content)
    write_bytes(path, content.getbuffer())


def hub_loader(word: str, data: DataOptions) -> tuple[str, Callable[[], LabelledFile]]:
    """Return the dataset's name in a run, and what reads it."""
    name = hub_name(word)
    return name.dataset, lambda: hub_labelled(name, data)
