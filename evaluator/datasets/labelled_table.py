"""Read tables of labelled texts, one row per example: queries, demonstrations and label space.

Demonstrations come from a table of training rows if there is one. Otherwise DEMONSTRATION_SHARE of each label's rows,
drawn with SPLIT_SEED, become demonstrations instead of queries.
"""

import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.datasets.base import EXAMPLES, ClassificationDataset, Labelled
from evaluator.datasets.tables import Table, read_texts
from evaluator.errors import DatasetError, shown
from evaluator.files.digests import short_digest
from evaluator.files.whole import file_digest
from evaluator.redaction import folded

DEMONSTRATION_SHARE = 0.1
MIN_DEMONSTRATIONS = 8  # of a label, but at most half its rows
SPLIT_SEED = 42
MAX_SINGLE_ROWS = 20  # rows that may all have different labels
NO_LABEL = -1
"""Label of rows that are published without one, and of rows whose annotators did not agree."""

_UNLABELLED = f"In data of Hugging Face {NO_LABEL} stands for no label. Remove these rows."
_NUMBER = r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?"


@dataclass(frozen=True, kw_only=True)
class LabelledFile(Labelled):
    """Files with labelled rows, and how to read them."""

    path: Path  # of the queries
    training: Path | None  # of the demonstrations; None: they are drawn from the same table
    texts: tuple[str, ...]  # columns
    label: str  # column
    labels: dict[str, int]  # cell of the label column -> index into the label space
    hint: str  # what to do if a column is missing
    n_training: int | None = None  # rows to set aside where there are no training rows; None: DEMONSTRATION_SHARE


class Split(NamedTuple):
    """EXAMPLES for demonstrations and for queries, and notes for the record."""

    demonstrations: pl.DataFrame
    queries: pl.DataFrame
    notes: tuple[str, ...] = ()


def load_labelled(file: LabelledFile, *, query_every_row: bool) -> ClassificationDataset:
    """Return the dataset of a table, without calibration examples.

    Args:
        query_every_row: make every row of a table without training rows a query and none a demonstration, for suites
            that take demonstrations from elsewhere.

    Raises DatasetError, naming file and row, for a file that cannot be read, a missing column, text or label, an
    unknown label, and rows that all have one label or too few of one.
    """
    queries, blank = table_examples(file, file.path)
    training, blank_training = (None, []) if file.training is None else table_examples(file, file.training)
    contents = [file_digest(path) for path in (file.path, file.training) if path is not None]
    texts = (file.template, file.verbalizer, file.alternative_templates, file.instructions)
    columns = (file.texts, file.label)
    identity = (file.name, contents, columns, file.labels, *texts, file.n_training, query_every_row)
    split = split_examples(
        queries,
        training,
        str(file.path),
        file.verbalizer.label_names,
        query_every_row=query_every_row,
        n_training=file.n_training,
    )
    known = {entry.name: getattr(file, entry.name) for entry in fields(Labelled)}
    return ClassificationDataset(
        demonstration=split.demonstrations,
        test=split.queries,
        text_fields=file.texts,
        fingerprint=short_digest(repr(identity).encode()),
        **known | {"notes": (*file.notes, *blank, *blank_training, *split.notes)},
    )


def split_examples(
    queries: pl.DataFrame,
    demonstrations: pl.DataFrame | None,
    source: str,
    labels: Sequence[str],
    *,
    query_every_row: bool,
    n_training: int | None = None,
) -> Split:
    """Split EXAMPLES into demonstrations and queries, unless `demonstrations` are given.

    Raises DatasetError, naming `source`, for queries that all have one label, and as set_aside does.
    """
    if queries["gold"].n_unique() < 2:
        raise DatasetError(
            f"{source}: all {queries.height} rows have the same label, so there is nothing to classify. Give a "
            "table with two labels or more."
        )
    if queries.height > MAX_SINGLE_ROWS and queries["gold"].is_unique().all():
        raise DatasetError(f"{source}: {_another_column(queries)}")
    if demonstrations is not None:
        return Split(demonstrations, queries, tuple(repeat_notes(queries, demonstrations)))
    if query_every_row:
        return Split(queries.clear(), queries)
    demonstrations, rest = set_aside(queries, source, labels, n_training)
    note = (
        f"no training rows: {demonstrations.height} of {queries.height} rows, drawn by "
        f"label with seed {SPLIT_SEED}, are kept as demonstrations and are no queries"
    )
    if n_training and demonstrations.height < n_training:
        note += f": fewer than --training-rows {n_training}, because half of each label's rows stay queries"
    return Split(demonstrations, rest, (note, *repeat_notes(rest, demonstrations)))


def repeat_notes(queries: pl.DataFrame, demonstrations: pl.DataFrame) -> Iterator[str]:
    """Yield notes on texts that occur several times: among queries and demonstrations, and with different labels."""
    keys = [split.select("gold", key=text_key()) for split in (queries, demonstrations)]
    if n_leaks := int(keys[0]["key"].is_in(keys[1]["key"].implode()).sum()):
        yield f"{n_leaks} of {queries.height} queries have the same texts as a training row"
    if n_repeats := queries.height - keys[0]["key"].n_unique():
        yield f"{n_repeats} of {queries.height} queries repeat the texts of another query"
    labels = pl.concat(keys).group_by("key").agg(pl.col("gold").drop_nulls().n_unique())
    if n_contradicting := labels.filter(pl.col("gold") > 1).height:
        yield f"{n_contradicting} texts occur with different labels"


def text_key() -> pl.Expr:
    """Return a digest of all texts of EXAMPLES, 8 bytes: texts themselves, once more, would take too much memory."""
    return pl.col("texts").hash()


def table_examples(file: LabelledFile, path: Path) -> tuple[pl.DataFrame, list[str]]:
    """Return the rows of a table as EXAMPLES, in its order, and notes. Raises DatasetError as load_labelled does."""
    table = read_texts(path, [*file.texts, file.label], file.hint)
    for name in file.texts:
        refuse_rows(is_blank(name), table, path, f"{name} is missing or empty")
        refuse_nul(table, path, name)
    cells = label_cells(table, path, file.label)
    # Of a number the first label: a cell may write it in another way, 1 as 1.0.
    of_numbers = {as_number(cell): label for cell, label in reversed(file.labels.items())}
    labels = {cell: file.labels.get(cell, of_numbers.get(as_number(cell))) for cell in cells.unique()}
    unknown = [cell for cell, label in labels.items() if label is None]
    first = cells.filter(cells.is_in(unknown)).first()
    what = f"the label in {file.label} is {shown(first)}, none of {', '.join(file.labels)}"
    hint = _UNLABELLED if first == str(NO_LABEL) else "Name every label, or remove these rows."
    refuse_rows(pl.col(file.label).is_in(unknown), table, path, what, hint)
    examples = table.cells.select(
        source_row=table.rows,
        texts=pl.concat_list(file.texts),
        gold=cells.replace_strict(labels, return_dtype=pl.Int64),
    ).cast(EXAMPLES)
    return examples, [f"blank rows of {path.name} that are skipped: {table.n_blank}"] if table.n_blank else []


def as_number(cell: str) -> Decimal | str:
    """Return the number that a cell writes, exactly; another text, as the code 01 is, unchanged."""
    return Decimal(cell) if re.fullmatch(_NUMBER, cell) else cell


def label_cells(table: Table, path: Path, column: str) -> pl.Series:
    """Return the cells of a label column. Raises DatasetError for a missing or blank one."""
    refuse_rows(is_blank(column), table, path, f"the label in {column} is missing or blank")
    return table.cells[column]


def set_aside(
    examples: pl.DataFrame, source: str, labels: Sequence[str], n_rows: int | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Draw demonstrations from each label's rows; return them and the rest, each in the order of the table.

    A row whose texts occur more than once is never drawn, so that no query has the texts of a demonstration.

    Args:
        examples: EXAMPLES.
        source: for messages.
        labels: names of the labels, for messages.
        n_rows: to draw, in proportion to the labels; None: DEMONSTRATION_SHARE of each label's, MIN_DEMONSTRATIONS at
            least. Never more than half of a label's.

    Raises DatasetError, naming `source`, for a label with a single row, and for one whose rows are all repeats.
    """
    demonstration_rows: list[int] = []
    share = DEMONSTRATION_SHARE if n_rows is None else n_rows / examples.height
    at_least = MIN_DEMONSTRATIONS if n_rows is None else 1
    marked = examples.with_row_index("index").with_columns(is_unique=text_key().is_unique())
    for (gold,), rows in sorted(marked.partition_by("gold", as_dict=True).items()):
        if rows.height < 2:
            raise _single_row(examples, source, labels, gold)
        unique = rows.filter("is_unique")["index"].to_list()
        if not unique:
            raise DatasetError(
                f"{source}: the texts of all {rows.height} rows with the label {labels[gold]!r} occur in several rows, "
                "so that a demonstration would be a query as well. Remove repeated rows."
            )
        n_demonstrations = min(max(math.ceil(share * rows.height), at_least), rows.height // 2, len(unique))
        draw = random.Random(f"demonstrations of label {gold}, seed {SPLIT_SEED}")
        demonstration_rows += draw.sample(unique, n_demonstrations)
    is_demonstration = pl.int_range(pl.len()).is_in(demonstration_rows)
    return examples.filter(is_demonstration), examples.filter(~is_demonstration)


def _single_row(examples: pl.DataFrame, source: str, labels: Sequence[str], gold: int) -> DatasetError:
    """Return the error of a label with a single row, with what may have been meant."""
    row = examples.filter(gold=gold)["source_row"].item()
    same = [other for other, name in enumerate(labels) if other != gold and folded(name) == folded(labels[gold])]
    hint = "A label needs two, a demonstration and a query. Add rows or remove this one."
    if same:
        hint = f"Did you mean {labels[same[0]]!r} ({examples.filter(gold=same[0]).height} rows)? {hint}"
    elif labels[gold] == str(NO_LABEL):
        hint = _UNLABELLED
    elif examples.height > MAX_SINGLE_ROWS and 2 * examples["gold"].n_unique() > examples.height:
        hint = _another_column(examples)
    return DatasetError(f"{source}: only one row has the label {labels[gold]!r}, row {row} (from 0). {hint}")


def _another_column(examples: pl.DataFrame) -> str:
    return (
        f"There are {examples['gold'].n_unique()} different labels in {examples.height} rows. Is it the column of the "
        "label? Name another with --gold-column."
    )


def is_blank(column: str) -> pl.Expr:
    """Return whether a text is missing, or white space alone."""
    return pl.col(column).fill_null("").str.strip_chars() == ""


def refuse_rows(bad: pl.Expr, table: Table, path: Path, what: str, hint: str = "Fill or remove them.") -> None:
    """Raise DatasetError, naming the first of them, if some rows are bad."""
    rows = table.rows.filter(table.cells.select(bad).to_series())
    if len(rows):
        raise DatasetError(
            f"{path}, row {rows[0]} (from 0): {what}, as in {len(rows)} of {table.cells.height} rows. {hint}"
        )


def refuse_nul(table: Table, path: Path, column: str) -> None:
    """Raise DatasetError for a text with the character NUL, which tokenizers drop or take for the end of a text."""
    has_nul = pl.col(column).fill_null("").str.contains("\0", literal=True)
    refuse_rows(has_nul, table, path, f"{column} contains the character NUL (U+0000)", "Remove it.")
