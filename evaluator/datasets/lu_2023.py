"""Read the published datasets of Lu et al. 2023 from local tables or the hub.

Prompts follow the paper (appendix A.2): a question with numbered options, and numbers as labels. A table is recognised
by its file name without the suffix.
"""

import hashlib
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import polars as pl

from evaluator.datasets import PAPER_TABLES, PROMPTS_FILE, PUBLISHED_TABLES, HubSource, PublishedTable, hub_repository
from evaluator.datasets.labelled_table import LABEL, NO_LABEL, LabelledFile
from evaluator.datasets.tables import SUFFIXES, table_in
from evaluator.errors import DatasetError
from evaluator.templates.template import MetaTemplate, Verbalizer


def published_tables(folder: Path, named: Collection[str]) -> dict[str, Path] | None:
    """Return name -> table for the named datasets in a folder, or for the datasets of the paper if `named` is empty.

    Return None if the folder holds neither a published table nor the published demonstrations. Raises DatasetError if
    `named` is empty and the folder holds no table of the paper.
    """
    tables = {name: table_in(folder, table.file) for name, table in PUBLISHED_TABLES.items()}
    if not any(tables.values()) and not (folder / PROMPTS_FILE).is_file():
        return None
    wanted = {name: path for name in named or PAPER_TABLES if (path := tables[name]) is not None}
    if not wanted and not named:
        raise DatasetError(
            f"{folder} holds none of the tables {expected_tables(PAPER_TABLES)}. Name others with --datasets."
        )
    return wanted


def published_file(name: str, path: Path) -> LabelledFile:
    """Return the reader of the table of a published dataset."""
    table = PUBLISHED_TABLES[name]
    return LabelledFile(
        name=name,
        path=path,
        training=table_in(path.parent, table.training_file),
        texts=table.texts,
        label=table.label,
        labels=table.labels,
        hint=f"{expected_tables([name])} is needed. If this is another table, give its file another name.",
        template=_template(table),
        # Numbers as labels are one token each (Lu et al. 2023, section 3).
        verbalizer=Verbalizer(label_names=tuple(map(str, range(len(table.options))))),
    )


def hub_file(name: str) -> LabelledFile:
    """Download a published dataset, unless it is in the hub's cache, and return its reader.

    Raises DatasetError if the hub lacks the dataset or cannot be reached, and for unexpected columns or labels.
    """
    table = PUBLISHED_TABLES[name]
    source = table.release
    if isinstance(source, str):
        raise DatasetError(
            f"{name} is not on the hub as it was published. Its authors released it on GitHub ({source}): put "
            f"that into a folder as {table.file}.csv or {expected_tables([name])}, and name the folder with --data."
        )
    hint = (
        f"Or put {expected_tables([name])} into a folder, with {table.training_file} if you have training rows, and "
        "name that with --data."
    )
    queries, training = (_hub_rows(source, split, table, hint) for split in (source.split, hub_repository.TRAINING))
    tables = {table.file: queries, table.training_file: training}
    folder = hub_repository.write_tables(f"{source.repository}-{queries.commit}", tables)
    notes = (
        f"from {source.repository} ({source.config}) on the hub, commit {queries.commit} of {hub_repository.PARQUET}",
        _comparison(source, queries.rows),
        *filter(None, (queries.note, training.note)),
    )
    return replace(published_file(name, folder / f"{table.file}.parquet"), notes=notes)


def _hub_rows(source: HubSource, split: str, table: PublishedTable, hint: str) -> hub_repository.HubRows:
    """Return a split of the hub with the columns and labels of the published table.

    Raises DatasetError for columns of other types and for unexpected labels.
    """
    name = hub_repository.HubName(repository=source.repository, config=source.config, split=split)
    columns_hint = f"Expected are {', '.join(source.texts)} and {LABEL}."
    part = hub_repository.read_split(name, source.texts, LABEL, columns_hint=columns_hint, hint=hint)
    dtypes = part.rows.schema
    if not all(dtypes[text] == pl.String for text in source.texts) or not dtypes[LABEL].is_integer():
        columns = ", ".join(f"{column} ({dtype})" for column, dtype in dtypes.items())
        raise DatasetError(
            f"{part.where}: the columns are {columns}; expected are {', '.join(source.texts)} (String) and {LABEL} "
            "(whole numbers)."
        )
    rows = part.rows[source.start : source.stop] if split == source.split else part.rows
    expected = [*range(len(source.labels)), NO_LABEL]
    if not rows[LABEL].is_in(expected).fill_null(False).all():
        labels = ", ".join(map(str, rows[LABEL].unique().sort()))
        raise DatasetError(f"{part.where}: labels {labels} where {', '.join(map(str, expected))} are expected.")
    labelled = hub_repository.with_label(replace(part, rows=rows), split, pl.col(LABEL) != NO_LABEL)
    names = dict(zip([*source.texts, LABEL], [*table.texts, table.label], strict=True))
    cells = pl.col(LABEL).replace_strict(dict(enumerate(source.labels)), return_dtype=pl.String)
    return replace(labelled, rows=labelled.rows.with_columns(cells).rename(names))


def _comparison(source: HubSource, rows: pl.DataFrame) -> str:
    """Return a note that says whether rows of the hub equal the published rows, by HubSource.digest."""
    lines = rows.select(pl.concat_str(pl.all().cast(pl.String), separator="\x1f")).to_series()
    if hashlib.sha256("\x1e".join(lines.to_list()).encode()).hexdigest() == source.digest:
        return f"its {rows.height:,} rows are the published ones, text for text and label for label"
    other = f"{rows.height:,} instead of {source.height:,}" if rows.height != source.height else "other texts or labels"
    return f"its rows differ from the published ones: {other}"


def expected_tables(names: Collection[str]) -> str:
    """Return the file names and columns of the given datasets, for error messages."""
    tables = [PUBLISHED_TABLES[name] for name in names]
    return "; ".join(f"{table.file}{SUFFIXES[-1]} ({', '.join((*table.texts, table.label))})" for table in tables)


def _template(table: PublishedTable) -> MetaTemplate:
    """Return the template of the published prompts: the texts, the question with numbered options, and the answer."""
    *first, last = (f"({number}) {option}" for number, option in enumerate(table.options))
    n_texts = len(table.texts)
    fields = ("CONTEXT",) if n_texts == 1 else tuple(f"SENTENCE{number + 1}" for number in range(n_texts))
    return MetaTemplate(
        input_prefixes=tuple(f"{field}: " for field in fields),
        input_affixes=(*["\n"] * (n_texts - 1), f"\nQUESTION: Is this {', '.join(first)}, or {last}?\n"),
        label_prefix="ANSWER: ",
        label_affix="\n\n",
    )
