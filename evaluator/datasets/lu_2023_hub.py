"""Download the datasets of Lu et al. 2023 that the Hugging Face hub has, and write them as the published tables.

The hub has a Parquet copy of every public dataset at the revision PARQUET, under
`<config>/<split>/0000.parquet` and on. Downloads stay in the hub's cache, so that later runs need no network; the
tables made from them are in a folder of our cache named by repository and commit.

The hub's copies of Health Advice and Causal Language (medalpaca/medical_meadow_health_advice and _pubmed_causal) are
not used: they hold four fifths of the rows, rewritten as instructions, and the first row of Causal Language has the
answer "correlative" where the corpus has "no relationship".
"""

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import filelock
import polars as pl

from evaluator.config import cache_folder
from evaluator.datasets.lu_2023_tables import PUBLISHED_TABLES, PublishedTable
from evaluator.datasets.tables import column_names, read_columns
from evaluator.errors import DatasetError, WriteError
from evaluator.files.whole import write_bytes
from evaluator.hub import hub_snapshot

PARQUET = "refs/convert/parquet"
TRAINING = "train"
LABEL = "label"
NO_GOLD = -1
"""Label of a row whose annotators did not agree."""


@dataclass(frozen=True, kw_only=True)
class HubSource:
    """Where a dataset is on the hub, how to convert its rows to those of the published table, and their digest."""

    repository: str
    config: str
    split: str  # of the queries
    start: int = 0  # first row of the split
    stop: int | None = None  # row after the last; None: the end of the split
    height: int  # rows with a gold label, as published
    texts: tuple[str, ...]  # columns, in the order of the published table's
    labels: Mapping[int, str]  # label -> cell of the published table
    digest: str  # rows_digest of the published rows


_PAIR = ("premise", "hypothesis")
_NLI = {0: "entailment", 1: "neutral", 2: "contradiction"}

_COLA = HubSource(
    repository="nyu-mll/glue",
    config="cola",
    split="validation",  # the in-domain sentences, then the others
    stop=527,
    height=527,
    texts=("sentence",),
    labels={0: "0", 1: "1"},
    digest="5bd8b702f576f2c0d012de9c5c61ec25f109d9912c1dda142b5c02797e0bd8f8",
)
_SNLI = HubSource(
    repository="stanfordnlp/snli",
    config="plain_text",
    split="test",
    height=9824,
    texts=_PAIR,
    labels=_NLI,
    digest="85f7ca59c7e4063359b81d7ab42dca7918de74832625f1826ba12d967fc1fdb3",
)

HUB_SOURCES = {
    "boolq": HubSource(
        repository="aps/super_glue",
        config="boolq",
        split="validation",
        height=3270,
        texts=("question", "passage"),
        labels={0: "false", 1: "true"},
        digest="08dc076b41ca69a9d0a808aa12c7c090b814490c66a059e8c965fb04033939f2",
    ),
    "cola": _COLA,
    "multinli": HubSource(
        repository="nyu-mll/multi_nli",
        config="default",
        split="validation_matched",
        height=9815,
        texts=_PAIR,
        labels=_NLI,
        digest="2f518855f115746ed2aa72a69253f3a3ebc2fa974704f01d348ee3d4ba8e8467",
    ),
    "rte": HubSource(
        repository="nyu-mll/glue",
        config="rte",
        split="validation",
        height=277,
        texts=("sentence1", "sentence2"),
        labels={0: "entailment", 1: "not_entailment"},
        digest="186107406b832f0c0ea446d06df8d07dff64b1852b51cad297a45302c96b74af",
    ),
    "snli": _SNLI,
    "cola_out_of_domain": replace(
        _COLA,
        start=527,
        stop=None,
        height=516,
        digest="ecc6aa13c7f23136cb89b005b43cf9dc5b228c22f05a4268513a9e2f0e266a2a",
    ),
    "snli_dev": replace(
        _SNLI,
        split="validation",
        height=9842,
        digest="c5aee25e11198127d76b29dca63c400156b7c017b9cde27b8d88f1f73d829104",
    ),
}
"""Sources by the names of PUBLISHED_TABLES. The training split of each config is read as well."""


class HubTables(NamedTuple):
    """The tables of a downloaded dataset."""

    path: Path  # table of the queries; the table of training rows is in the same folder
    notes: tuple[str, ...]  # source of the rows, whether they equal the published ones, how many are left out


def hub_tables(name: str, hint: str) -> HubTables:
    """Download a dataset of HUB_SOURCES, unless the hub's cache has it, and write it as the published tables.

    Args:
        name: of the dataset.
        hint: how to provide the dataset without the hub, for error messages.

    Raises DatasetError if the hub cannot be reached, lacks the dataset or denies access to it, and for a table with
    other columns or labels than expected.
    """
    source, table = HUB_SOURCES[name], PUBLISHED_TABLES[name]
    snapshot = _download(source, hint)
    queries = _read(source, snapshot, source.split, table)
    training = _read(source, snapshot, TRAINING, table)
    folder = cache_folder() / "hub" / f"{source.repository.replace('/', '--')}-{snapshot.name}"
    _write(folder, {table.file: queries.rows, table.training_file: training.rows})
    notes = (
        f"from {source.repository} ({source.config}) on the hub, commit {snapshot.name} of {PARQUET}",
        _comparison(source, queries.rows),
        *(part.left_out for part in (queries, training) if part.left_out),
    )
    return HubTables(folder / f"{table.file}.parquet", notes)


def rows_digest(rows: pl.DataFrame) -> str:
    """Return the SHA-256 of all cells as UTF-8 text, with U+001F between the cells of a row and U+001E between rows."""
    lines = rows.select(pl.concat_str(pl.all().cast(pl.String), separator="\x1f")).to_series()
    return hashlib.sha256("\x1e".join(lines.to_list()).encode()).hexdigest()


class _SplitTable(NamedTuple):
    rows: pl.DataFrame  # columns of the published table
    left_out: str  # a note on rows left out, or empty


def _read(source: HubSource, snapshot: Path, split: str, table: PublishedTable) -> _SplitTable:
    """Return a split as rows of the published table."""
    where = f"{source.repository} on the hub, {source.config}/{split} at commit {snapshot.name}"
    rows = _hub_rows(source, sorted((snapshot / source.config / split).glob("*.parquet")), where)
    if split == source.split:
        rows = rows[source.start : source.stop]
    expected = [*source.labels, NO_GOLD]
    if not rows[LABEL].is_in(expected).fill_null(False).all():
        labels = ", ".join(map(str, rows[LABEL].unique().sort()))
        raise DatasetError(f"{where}: labels {labels} where {', '.join(map(str, expected))} are expected.")
    has_texts = pl.all_horizontal(pl.col(text).str.strip_chars() != "" for text in source.texts)
    labelled = rows.filter(has_texts & (pl.col(LABEL) != NO_GOLD))
    n_lost = rows.height - labelled.height
    note = f"{n_lost:,} of {rows.height:,} rows of {split} are left out: no gold label, or no text" if n_lost else ""
    names = dict(zip([*source.texts, LABEL], [*table.texts, table.label], strict=True))
    cells = pl.col(LABEL).replace_strict(dict(source.labels), return_dtype=pl.String)
    return _SplitTable(labelled.with_columns(cells).rename(names), note)


def _hub_rows(source: HubSource, files: list[Path], where: str) -> pl.DataFrame:
    """Return the texts and labels in a split's files."""
    if not files:
        raise DatasetError(
            f"{where}: there is no Parquet file. Try again with a network; if it happens again, the hub has moved them."
        )
    expected = [*source.texts, LABEL]
    try:
        tables = [read_columns(file, column_names(file)) for file in files]
    except DatasetError as error:
        raise DatasetError(f"{where}: {error} Remove it, to have it downloaded again.") from error
    for file, table in zip(files, tables, strict=True):
        schema = table.schema
        texts_fit = all(schema.get(text) == pl.String for text in source.texts)
        if not texts_fit or not schema.get(LABEL, pl.Null()).is_integer():
            columns = ", ".join(f"{name} ({dtype})" for name, dtype in schema.items())
            raise DatasetError(
                f"{where}: the columns of {file.name} are {columns}; expected are "
                f"{', '.join(source.texts)} (String) and {LABEL} (whole numbers)."
            )
    return pl.concat(table.select(expected) for table in tables)


def _comparison(source: HubSource, rows: pl.DataFrame) -> str:
    if rows_digest(rows) == source.digest:
        return f"its {rows.height:,} rows are the published ones, text for text and label for label"
    other = f"{rows.height:,} instead of {source.height:,}" if rows.height != source.height else "other texts or labels"
    return f"its rows differ from the published ones: {other}"


def _write(folder: Path, tables: Mapping[str, pl.DataFrame]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / ".lock"):
            for name, rows in tables.items():
                content = io.BytesIO()
                rows.write_parquet(content)
                write_bytes(folder / f"{name}.parquet", content.getbuffer())
    except (OSError, WriteError) as error:
        raise DatasetError(
            f"Cannot write tables from the hub to {folder}: {error}. Set EVALUATOR_CACHE to a folder with space."
        ) from error


def _download(source: HubSource, hint: str) -> Path:
    """Download the queries and the training rows; return their folder, which is named by the commit."""
    patterns = [f"{source.config}/{split}/*.parquet" for split in (source.split, TRAINING)]
    return hub_snapshot(source.repository, "dataset", patterns, revision=PARQUET, error=DatasetError, hint=hint)
