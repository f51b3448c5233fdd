"""Read tables of labelled texts, one row per example: queries, demonstrations and label space.

Demonstrations come from a table of training rows if there is one. Otherwise DEMONSTRATION_SHARE of each label's rows,
drawn with SPLIT_SEED, become demonstrations instead of queries.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.config import TableColumns
from evaluator.datasets.base import EXAMPLES, ClassificationDataset
from evaluator.datasets.table_files import SUFFIXES, read_rows
from evaluator.errors import DatasetError
from evaluator.files import file_digest, short_digest
from evaluator.templates.template import MetaTemplate, Verbalizer

TEXT, LABEL = "text", "label"
"""Default columns of a user's table."""

USER_TRAINING = "_train"
"""Ending of the name of a user's table of training rows, after the name of the table of queries."""

DEMONSTRATION_SHARE = 0.1
MIN_DEMONSTRATIONS = 8  # of a label, or half its rows where these are fewer than twice as many
SPLIT_SEED = 42

_HINT = (
    "Say which hold the texts and the label with --input-column A,B and --gold-column C; if each row has its "
    "own choices, say which column holds them with --choices-column."
)


@dataclass(frozen=True, kw_only=True)
class LabelledFile:
    """Files with labelled rows, and how to read them."""

    name: str  # of the dataset
    path: Path  # of the queries
    training: Path | None  # of the demonstrations; None: they are drawn from the same table
    texts: tuple[str, ...]  # columns
    label: str  # column
    labels: Mapping[str, int]  # cell of the label column -> index into the label space
    hint: str  # what to do if a column is missing
    template: MetaTemplate
    verbalizer: Verbalizer
    notes: tuple[str, ...] = ()  # where the file is from, for the record


class Split(NamedTuple):
    """EXAMPLES for demonstrations and for queries, and notes for the record."""

    demonstrations: pl.DataFrame
    queries: pl.DataFrame
    notes: tuple[str, ...] = ()


def load_labelled(file: LabelledFile, *, query_every_row: bool) -> ClassificationDataset:
    """Return the dataset of a table, without calibration examples.

    Args:
        query_every_row: make every row of a table without training rows a query, and none a demonstration, because
            demonstrations come from elsewhere.

    Raises DatasetError, naming file and row, for a file that cannot be read, a missing column, text or label, an
    unknown label, and rows that all have one label or too few of one.
    """
    training = None if file.training is None else table_examples(file, file.training)
    split = split_examples(table_examples(file, file.path), training, str(file.path), query_every_row=query_every_row)
    return ClassificationDataset(
        name=file.name,
        calibration=split.queries.clear(),
        demonstration=split.demonstrations,
        test=split.queries,
        text_fields=file.texts,
        template=file.template,
        verbalizer=file.verbalizer,
        notes=(*file.notes, *split.notes),
        fingerprint=_fingerprint(file, query_every_row),
    )


def user_file(path: Path, columns: TableColumns) -> LabelledFile:
    """Return how to read a user's table; its prompts are made of the names of its columns and labels.

    Raises DatasetError where the labels cannot be read, and for an id column, which labelled tables do not use.
    """
    if columns.example_id is not None:
        raise DatasetError(
            f"{path}: rows of a table of texts and labels are numbered, so leave out --id-column {columns.example_id}; "
            "only a table with choices in each row uses it."
        )
    texts, label = columns.inputs or (TEXT,), columns.gold or LABEL
    names = _label_values(path, label)
    return LabelledFile(
        name=path.stem,
        path=path,
        training=table_in(path.parent, path.stem + USER_TRAINING),
        texts=texts,
        label=label,
        labels={name: index for index, name in enumerate(names)},
        hint=_HINT,
        template=MetaTemplate(
            input_prefixes=tuple(f"{name}: " for name in texts),
            input_affixes=("\n",) * len(texts),
            label_prefix=f"{label}: ",
            label_affix="\n\n",
        ),
        verbalizer=Verbalizer(label_names=tuple(names)),
    )


def table_in(folder: Path, stem: str) -> Path | None:
    """Return the table of this name in a folder, whichever suffix it has, or None."""
    return next((path for suffix in SUFFIXES if (path := folder / f"{stem}{suffix}").is_file()), None)


def split_examples(
    queries: pl.DataFrame, demonstrations: pl.DataFrame | None, source: str, *, query_every_row: bool
) -> Split:
    """Split EXAMPLES into demonstrations and queries; those given as demonstrations are taken as they are.

    Raises DatasetError, naming `source`, for queries that all have one label, and as set_aside does.
    """
    if queries["gold"].n_unique() < 2:
        raise DatasetError(
            f"{source}: all {queries.height} rows have the same label, so there is nothing to classify. Give a "
            "table with two labels or more."
        )
    if demonstrations is not None:
        return Split(demonstrations, queries)
    if query_every_row:
        return Split(queries.clear(), queries)
    demonstrations, rest = set_aside(queries, source)
    note = (
        f"no training rows: {demonstrations.height} of {queries.height} rows, drawn by "
        f"label with seed {SPLIT_SEED}, are kept as demonstrations and are no queries"
    )
    return Split(demonstrations, rest, (note,))


def table_examples(file: LabelledFile, path: Path) -> pl.DataFrame:
    """Return the rows of a table as EXAMPLES, in its order. Raises DatasetError as load_labelled does."""
    table = read_texts(path, [*file.texts, file.label], file.hint)
    for name in file.texts:
        _refuse_rows(table[name].fill_null("").str.strip_chars() == "", path, f"{name} is missing or empty")
    cells = table[file.label]
    _refuse_rows(
        ~cells.is_in(list(file.labels)).fill_null(False),
        path,
        f"the label in {file.label} is none of {', '.join(file.labels)}",
    )
    return table.select(
        source_row=pl.int_range(pl.len()),
        texts=pl.concat_list(file.texts),
        gold=cells.replace_strict(dict(file.labels), return_dtype=pl.Int64),
    ).cast(EXAMPLES)


def read_texts(path: Path, columns: Sequence[str], hint: str) -> pl.DataFrame:
    """Return columns of a table as texts. Raises DatasetError if it lacks one or has no rows, or is unreadable."""
    rows = list(read_rows(path, columns, hint))
    if not rows:
        raise DatasetError(f"{path} holds no rows.")
    try:
        return pl.DataFrame(rows, schema=list(columns), orient="row", infer_schema_length=None).cast(pl.String)
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise DatasetError(
            f"{path}: the columns {', '.join(columns)} must each hold one kind of value: {error}"
        ) from error


def set_aside(examples: pl.DataFrame, source: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Draw demonstrations from each label's rows; return them and the rest, each in the order of the table.

    Raises DatasetError, naming `source`, for a label with a single row.
    """
    kept: list[int] = []
    for (gold,), rows in sorted(examples.with_row_index("at").partition_by("gold", as_dict=True).items()):
        if rows.height < 2:
            raise DatasetError(
                f"{source}: only one row has label number {gold} (from 0), row {rows['source_row'][0]} (from 0). "
                "A label needs two, a demonstration and a query. Add rows or remove this one."
            )
        wanted = max(math.ceil(DEMONSTRATION_SHARE * rows.height), MIN_DEMONSTRATIONS)
        draw = random.Random(f"demonstrations of label {gold}, seed {SPLIT_SEED}")
        kept += draw.sample(rows["at"].to_list(), min(wanted, rows.height // 2))
    is_kept = pl.int_range(pl.len()).is_in(kept)
    return examples.filter(is_kept), examples.filter(~is_kept)


def _refuse_rows(bad: pl.Series, path: Path, what: str) -> None:
    if bad.any():
        raise DatasetError(
            f"{path}, row {bad.arg_max()} (from 0): {what}, as in {bad.sum()} of {len(bad)} rows. Fill or remove them."
        )


def _label_values(path: Path, column: str) -> list[str]:
    """Return the different labels of a table, whole numbers by size and others by spelling. Raises as read_texts."""
    values: list[str] = read_texts(path, [column], _HINT)[column].drop_nulls().unique().sort().to_list()
    return sorted(values, key=int) if all(value.isdecimal() for value in values) else values


def _fingerprint(file: LabelledFile, query_every_row: bool) -> str:
    contents = [file_digest(path) for path in (file.path, file.training) if path is not None]
    labels = dict(file.labels)
    columns = (file.texts, file.label)
    identity = (file.name, contents, columns, labels, file.template, file.verbalizer, query_every_row)
    return short_digest(repr(identity).encode())
