"""Datasets of in-context PVI from the Hugging Face hub: a name goes in, the tables that pvi_tables.py reads come out.

The hub keeps every public dataset as Parquet besides its own files, at the revision PARQUET, under
`<config>/<split>/0000.parquet` and on. What is downloaded stays in the hub's own cache, so that later runs need no
network; what is written of it, whole or not at all, lies in a folder named by repository and commit.

The hub's copies of Health Advice and Causal Language (medalpaca/medical_meadow_health_advice and _pubmed_causal) are no
source: they hold four fifths of the rows as instructions, and the first of Causal Language is answered "correlative"
where the corpus has "no relationship".
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import filelock
import polars as pl

from evaluator.config import LabelledColumns, cache_folder
from evaluator.errors import DatasetError
from evaluator.files import replacing
from evaluator.hub import hub_snapshot

PARQUET = "refs/convert/parquet"
TRAINING = "train"
LABEL = "label"
NO_GOLD = -1
"""The label of a row that annotators did not agree on."""


@dataclass(frozen=True, kw_only=True)
class HubSource:
    """Where a dataset lies on the hub, how its rows become those of the local table, and which rows are expected."""

    repository: str
    config: str
    split: str  # of the queries
    first: int = 0  # row of the split
    behind: int | None = None  # row behind the last; None: to the end
    height: int  # rows with a gold label, as published
    texts: tuple[str, ...]  # columns, in the order of the local table's
    labels: Mapping[int, str]  # label -> cell of the local table
    digest: str  # rows_digest of the published rows


_PAIR = ("premise", "hypothesis")
_NLI = {0: "entailment", 1: "neutral", 2: "contradiction"}

_COLA = HubSource(
    repository="nyu-mll/glue",
    config="cola",
    split="validation",  # the in-domain sentences, then the others
    behind=527,
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
        first=527,
        behind=None,
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
"""By the names of pvi_tables.py. All read the training split of their config as well."""

_ADVICE = "junwang4/detecting-health-advice"

RELEASED = {
    "health_advice": f"{_ADVICE}, data/annotations_structured_abstract.csv",
    "health_advice_unstructured": f"{_ADVICE}, data/annotations_unstructured_abstract.csv",
    "health_advice_discussion": f"{_ADVICE}, data/annotations_discussion.csv",
    "causal_language": "junwang4/causal-language-use-in-science, data/pubmed_causal_language_use.csv",
}
"""Where on GitHub the others were released."""


class HubTables(NamedTuple):
    """What was written of a dataset."""

    path: Path  # table of the queries; that of the training rows lies beside it
    notes: tuple[str, ...]  # where it is from, whether it is what was published, what was left out


def hub_tables(name: str, file: str, training_file: str, columns: LabelledColumns, mend: str) -> HubTables:
    """Download a dataset of HUB_SOURCES, where the hub's cache lacks it, and write it as local tables.

    Args:
        file, training_file: names of the tables, without suffix.
        columns: of these tables.
        mend: how to do without the hub.

    Raises DatasetError where the hub cannot be reached, lacks the dataset or keeps it from this user, and for a table
    with other columns or labels than expected.
    """
    source = HUB_SOURCES[name]
    snapshot = _download(source, mend)
    queries = _read(source, snapshot, source.split, columns)
    training = _read(source, snapshot, TRAINING, columns)
    folder = cache_folder() / "hub" / f"{source.repository.replace('/', '--')}-{snapshot.name}"
    _keep(folder, {file: queries.rows, training_file: training.rows})
    notes = (
        f"from {source.repository} ({source.config}) on the hub, commit {snapshot.name} of {PARQUET}",
        _comparison(source, queries.rows),
        *(part.left_out for part in (queries, training) if part.left_out),
    )
    return HubTables(folder / f"{file}.parquet", notes)


def rows_digest(rows: pl.DataFrame) -> str:
    """SHA-256 of what a table shows and asks: all cells as text, row by row, in the order of rows and columns.

    In UTF-8, with U+001F between the cells of a row and U+001E between rows.
    """
    lines = rows.select(pl.concat_str(pl.all().cast(pl.String), separator="\x1f")).to_series()
    return hashlib.sha256("\x1e".join(lines.to_list()).encode()).hexdigest()


class _Part(NamedTuple):
    rows: pl.DataFrame  # columns of the local table
    left_out: str  # a note; empty where nothing was


def _read(source: HubSource, snapshot: Path, split: str, columns: LabelledColumns) -> _Part:
    """A split as rows of the local table."""
    where = f"{source.repository} on the hub, {source.config}/{split} at commit {snapshot.name}"
    rows = _hub_rows(source, sorted((snapshot / source.config / split).glob("*.parquet")), where)
    if split == source.split:
        rows = rows[source.first : source.behind]
    known = [*source.labels, NO_GOLD]
    if not rows[LABEL].is_in(known).fill_null(False).all():
        found = ", ".join(map(str, rows[LABEL].unique().sort()))
        raise DatasetError(f"{where}: labels {found} where {', '.join(map(str, known))} are expected.")
    has_texts = pl.all_horizontal(pl.col(text).str.strip_chars() != "" for text in source.texts)
    kept = rows.filter(has_texts & (pl.col(LABEL) != NO_GOLD))
    n_lost = rows.height - kept.height
    note = f"{n_lost:,} of {rows.height:,} rows of {split} are left out: no gold label, or no text" if n_lost else ""
    own_names = dict(zip([*source.texts, LABEL], [*columns.texts, columns.label], strict=True))
    cells = pl.col(LABEL).replace_strict(dict(source.labels), return_dtype=pl.String)
    return _Part(kept.with_columns(cells).rename(own_names), note)


def _hub_rows(source: HubSource, files: list[Path], where: str) -> pl.DataFrame:
    """Texts and labels of a split's files."""
    if not files:
        raise DatasetError(
            f"{where}: there is no Parquet file. Try again with a network; if it stays so, the hub has moved them."
        )
    table = pl.scan_parquet(files)
    try:
        found = table.collect_schema()
        texts_fit = all(found.get(text) == pl.String for text in source.texts)
        if not texts_fit or not found.get(LABEL, pl.Null()).is_integer():
            columns = ", ".join(f"{name} ({dtype})" for name, dtype in found.items())
            raise DatasetError(
                f"{where}: the columns of {files[0].name} are {columns}; expected are "
                f"{', '.join(source.texts)} (String) and {LABEL} (whole numbers)."
            )
        return table.select(*source.texts, LABEL).collect()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DatasetError(f"{where}: {files[0]} and on cannot be read as Parquet ({error}). Remove them.") from error


def _comparison(source: HubSource, rows: pl.DataFrame) -> str:
    if rows_digest(rows) == source.digest:
        return f"its {rows.height:,} rows are the published ones, text for text and label for label"
    other = f"{rows.height:,} instead of {source.height:,}" if rows.height != source.height else "other texts or labels"
    return f"its rows differ from the published ones: {other}"


def _keep(folder: Path, tables: Mapping[str, pl.DataFrame]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(folder / ".lock"):
            for name, rows in tables.items():
                with replacing(folder / f"{name}.parquet") as file:
                    rows.write_parquet(file)
    except OSError as error:
        raise DatasetError(
            f"Cannot keep what came from the hub in {folder}: {error}. Set EVALUATOR_CACHE to a folder with space."
        ) from error


def _download(source: HubSource, mend: str) -> Path:
    """Folder of the files, named by their commit."""
    patterns = [f"{source.config}/{split}/*.parquet" for split in (source.split, TRAINING)]
    return hub_snapshot(source.repository, "dataset", patterns, revision=PARQUET, error=DatasetError, mend=mend)
