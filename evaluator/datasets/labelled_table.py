"""A table of labelled texts, one row an example, becomes a dataset: queries, rows to demonstrate with, label space.

Demonstrations come from a table of training rows where there is one. Otherwise DEMONSTRATION_SHARE of each label's rows
are set aside for them by SPLIT_SEED, and never asked.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from evaluator.config import LabelledColumns
from evaluator.datasets.base import EXAMPLES, ClassificationDataset
from evaluator.datasets.multiple_choice_table import read_rows
from evaluator.errors import DatasetError
from evaluator.files import file_digest, short_digest
from evaluator.templates.template import MetaTemplate, Verbalizer

DEMONSTRATION_SHARE = 0.1
FEWEST_DEMONSTRATIONS = 8  # of a label, or half its rows where these are fewer than twice as many
SPLIT_SEED = 42


@dataclass(frozen=True, kw_only=True)
class LabelledFile:
    """Where labelled rows lie and how they are read."""

    name: str  # of the dataset
    path: Path  # of the queries
    training: Path | None  # of the rows to demonstrate with; None: set aside from the same table
    columns: LabelledColumns
    labels: Mapping[str, int]  # cell of the label column -> index into the label space
    mend: str  # what to do about a missing column
    template: MetaTemplate
    verbalizer: Verbalizer
    notes: tuple[str, ...] = ()  # where the file is from, for the record


def load_labelled(file: LabelledFile, *, ask_all: bool) -> ClassificationDataset:
    """The dataset of a table; without calibration examples.

    Args:
        ask_all: ask every row of a table without training rows and demonstrate with none of them, because
            demonstrations come from elsewhere.

    Raises DatasetError, naming file and row, for a file that cannot be read, a missing column, text or label, an
    unknown label, and rows of one label alone or too few of one.
    """
    queries = table_examples(file, file.path)
    if queries["gold"].n_unique() < 2:
        raise DatasetError(
            f"{file.path}: all {queries.height} rows have the same label, so an input tells nothing about it. Give a "
            "table with two labels or more."
        )
    notes = file.notes
    if file.training is not None:
        demonstrations = table_examples(file, file.training)
    elif ask_all:
        demonstrations = queries.clear()
    else:
        demonstrations, queries = set_aside(queries, str(file.path))
        notes += (
            f"no training rows: {demonstrations.height} of {demonstrations.height + queries.height} rows, drawn by "
            f"label with seed {SPLIT_SEED}, are kept to demonstrate with and not asked",
        )
    return ClassificationDataset(
        name=file.name,
        calibration=queries.clear(),
        demonstration=demonstrations,
        test=queries,
        text_fields=file.columns.texts,
        template=file.template,
        verbalizer=file.verbalizer,
        notes=notes,
        fingerprint=_fingerprint(file, ask_all),
    )


def table_examples(file: LabelledFile, path: Path) -> pl.DataFrame:
    """The rows of one table as EXAMPLES, in its order. Raises DatasetError as load_labelled does."""
    table = read_texts(path, [*file.columns.texts, file.columns.label], file.mend)
    for name in file.columns.texts:
        _refuse_rows(table[name].fill_null("").str.strip_chars() == "", path, f"{name} is missing or empty")
    cells = table[file.columns.label]
    _refuse_rows(
        ~cells.is_in(list(file.labels)).fill_null(False),
        path,
        f"the label in {file.columns.label} is none of {', '.join(file.labels)}",
    )
    return table.select(
        source_row=pl.int_range(pl.len()),
        texts=pl.concat_list(file.columns.texts),
        gold=cells.replace_strict(dict(file.labels), return_dtype=pl.Int64),
    ).cast(EXAMPLES)


def read_texts(path: Path, columns: Sequence[str], mend: str) -> pl.DataFrame:
    """These columns of a table as texts. Raises DatasetError where it cannot be read, lacks one or has no rows."""
    rows = list(read_rows(path, columns, mend))
    if not rows:
        raise DatasetError(f"{path} holds no rows.")
    try:
        return pl.DataFrame(rows, schema=list(columns), orient="row", infer_schema_length=None).cast(pl.String)
    except (TypeError, pl.exceptions.PolarsError) as error:
        raise DatasetError(
            f"{path}: the columns {', '.join(columns)} must each hold one kind of value: {error}"
        ) from error


def label_values(path: Path, column: str, mend: str) -> list[str]:
    """The different labels of a table, whole numbers by size and all else by spelling; raises as read_texts does."""
    values: list[str] = read_texts(path, [column], mend)[column].drop_nulls().unique().sort().to_list()
    return sorted(values, key=int) if all(value.isdecimal() for value in values) else values


def set_aside(examples: pl.DataFrame, source: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows to demonstrate with, and the rest, each in the order of the table. Raises DatasetError for a lone row."""
    kept: list[int] = []
    for (gold,), rows in sorted(examples.with_row_index("at").partition_by("gold", as_dict=True).items()):
        if rows.height < 2:
            raise DatasetError(
                f"{source}: one row alone has the label number {gold} (from 0), row {rows['source_row'][0]} (from 0). "
                "A label needs two, one to demonstrate with and one to ask. Add rows or remove this one."
            )
        wanted = max(math.ceil(DEMONSTRATION_SHARE * rows.height), FEWEST_DEMONSTRATIONS)
        draw = random.Random(f"demonstrations of label {gold}, seed {SPLIT_SEED}")
        kept += draw.sample(rows["at"].to_list(), min(wanted, rows.height // 2))
    is_kept = pl.int_range(pl.len()).is_in(kept)
    return examples.filter(is_kept), examples.filter(~is_kept)


def _refuse_rows(bad: pl.Series, path: Path, what: str) -> None:
    if bad.any():
        raise DatasetError(
            f"{path}, row {bad.arg_max()} (from 0): {what}, as in {bad.sum()} of {len(bad)} rows. Mend or remove them."
        )


def _fingerprint(file: LabelledFile, ask_all: bool) -> str:
    files = [path for path in (file.path, file.training) if path is not None]
    contents = [file_digest(path) for path in files]
    identity = (file.name, contents, file.columns, dict(file.labels), file.template, file.verbalizer, ask_all)
    return short_digest(repr(identity).encode())
