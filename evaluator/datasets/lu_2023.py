"""Read the published datasets of Lu et al. 2023 from local tables or the hub.

Their prompts follow the paper (appendix A.2): a question that numbers the options, and numbers as labels. A table is
recognised by its file's name without the suffix.
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from evaluator.datasets.labelled_table import LabelledFile
from evaluator.datasets.lu_2023_hub import hub_tables
from evaluator.datasets.lu_2023_tables import (
    ON_GITHUB,
    PAPER_TABLES,
    PROMPTS_FILE,
    PUBLISHED_TABLES,
    PublishedTable,
)
from evaluator.datasets.tables import SUFFIXES, table_in
from evaluator.errors import DatasetError
from evaluator.templates.template import MetaTemplate, Verbalizer


def published_name(path: Path) -> str | None:
    """Return the name of the published dataset whose file name a path has, or None."""
    return next((name for name, table in PUBLISHED_TABLES.items() if table.file == path.stem), None)


def is_published_folder(folder: Path) -> bool:
    """Return whether a folder holds a published table or the published demonstrations."""
    return bool(_tables_in(folder, PUBLISHED_TABLES)) or (folder / PROMPTS_FILE).is_file()


def published_tables(folder: Path, named: Collection[str]) -> dict[str, Path]:
    """Return the tables of the named datasets that a folder holds, or those of the paper if no dataset is named.

    Raises DatasetError if no dataset is named and the folder holds none of the paper.
    """
    tables = _tables_in(folder, named or PAPER_TABLES)
    if not tables and not named:
        raise DatasetError(
            f"{folder} holds none of the tables {expected_tables(PAPER_TABLES)}. Name others with --datasets."
        )
    return tables


def published_file(name: str, path: Path) -> LabelledFile:
    """Return how to read the table of a published dataset."""
    table = PUBLISHED_TABLES[name]
    return LabelledFile(
        name=name,
        path=path,
        training=table_in(path.parent, table.training_file),
        texts=table.texts,
        label=table.label,
        labels=table.cells,
        hint=f"{expected_tables([name])} is needed. If this is another table, give its file another name.",
        template=_template(table),
        # Numbers as labels are one token each (Lu et al. 2023, section 3).
        verbalizer=Verbalizer(label_names=tuple(map(str, range(len(table.options))))),
    )


def hub_file(name: str) -> LabelledFile:
    """Download a published dataset from the hub and return how to read it.

    Raises DatasetError if the hub does not have it, and as hub_tables does.
    """
    table = PUBLISHED_TABLES[name]
    if name in ON_GITHUB:
        raise DatasetError(
            f"{name} is not on the hub as it was published. Its authors released it on GitHub ({ON_GITHUB[name]}): put "
            f"that into a folder as {table.file}.csv or {expected_tables([name])}, and name the folder with --data."
        )
    hint = (
        f"Or put {expected_tables([name])} into a folder, with {table.training_file} if you have training rows, and "
        "name that with --data."
    )
    downloaded = hub_tables(name, hint)
    return replace(published_file(name, downloaded.path), notes=downloaded.notes)


def expected_tables(names: Collection[str]) -> str:
    """Return the names and columns of the files of some datasets, for error messages."""
    tables = [(PUBLISHED_TABLES[name].file, _columns(PUBLISHED_TABLES[name])) for name in names]
    return "; ".join(f"{file}{SUFFIXES[-1]} ({', '.join(columns)})" for file, columns in tables)


def _tables_in(folder: Path, names: Collection[str]) -> dict[str, Path]:
    return {name: path for name in names if (path := table_in(folder, PUBLISHED_TABLES[name].file)) is not None}


def _columns(table: PublishedTable) -> tuple[str, ...]:
    return (*table.texts, table.label)


def _template(table: PublishedTable) -> MetaTemplate:
    """Return the template of the published prompts: the texts, the question with numbered options, the answer."""
    *first, last = (f"({number}) {option}" for number, option in enumerate(table.options))
    n_texts = len(table.texts)
    fields = ("CONTEXT",) if n_texts == 1 else tuple(f"SENTENCE{number + 1}" for number in range(n_texts))
    return MetaTemplate(
        input_prefixes=tuple(f"{field}: " for field in fields),
        input_affixes=(*["\n"] * (n_texts - 1), f"\nQUESTION: Is this {', '.join(first)}, or {last}?\n"),
        label_prefix="ANSWER: ",
        label_affix="\n\n",
    )
