"""Read tables of labelled texts with one example per row, and split them into queries and demonstrations.

Options and a template file describe a user's table: its columns, its labels, and the text around its examples.

Demonstrations are the rows of a table of training rows if there is one. Otherwise DEMONSTRATION_SHARE of the rows of
every label, drawn with SPLIT_SEED, are demonstrations instead of queries.
"""

import math
import random
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.config import DataOptions
from evaluator.datasets.base import EXAMPLES, ClassificationDataset, Labelled
from evaluator.datasets.staicc import load_staicc
from evaluator.datasets.tables import Table, class_names, read_texts, table_in, table_stem
from evaluator.errors import ConfigError, DatasetError, TemplateError, require_known, shown
from evaluator.files.digests import short_digest
from evaluator.files.toml_files import converted, read_toml, require_known_keys
from evaluator.files.whole import file_digest
from evaluator.redaction import folded
from evaluator.templates.template import Alternatives, MetaTemplate, Verbalizer, nine_templates

TEXT, LABEL = "text", "label"
"""Default names of the text column and the label column."""

USER_TRAINING = "_train"
"""Suffix of a table of training rows: NAME_train has the training rows of the user's table NAME."""

_HINT = (
    "Say which hold the texts and the label with --input-column A,B and --gold-column C; if each row has its "
    "own choices, say which column holds them with --choices-column."
)

DEMONSTRATION_SHARE = 0.1
MIN_DEMONSTRATIONS = 8  # per label, but at most half of the label's rows
SPLIT_SEED = 42
MAX_SINGLE_ROWS = 20  # a larger table in which all rows have different labels is refused
NO_LABEL = -1
"""Label of rows that are published without a label, and of rows whose annotators did not agree."""

_UNLABELLED = f"In data of Hugging Face {NO_LABEL} stands for no label. Remove these rows."
_NUMBER = r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,18})?"


@dataclass(frozen=True, kw_only=True)
class LabelledFile(Labelled):
    """Files with labelled rows, and how to read them."""

    path: Path  # table of the queries
    training: Path | None  # table of the demonstrations; None: demonstrations are drawn from `path`
    texts: tuple[str, ...]  # names of the text columns
    label: str  # name of the label column
    labels: dict[str, int]  # cell of the label column -> index into the label space
    hint: str  # what to do if a column is missing
    # Number of rows of `path` that become demonstrations if there is no `training`; None: DEMONSTRATION_SHARE.
    n_training: int | None = None


@dataclass(frozen=True, kw_only=True)
class TableText:
    """The content of a template file.

    A part that is None is made from the column names; for a StaICC dataset, the part of its default template is used.
    """

    instruction: str | None = None
    input_prefixes: tuple[str, ...] | None = None  # one prefix and one affix per input column
    input_affixes: tuple[str, ...] | None = None
    label_prefix: str | None = None
    label_affix: str | None = None
    query_prefix: str | None = None
    labels: dict[str, str] = field(default_factory=dict)  # cell of the gold column -> label name
    instructions: tuple[str, ...] = ()  # for methods that choose among several instructions
    # Levels of the nine templates of staicc-robustness:
    alternatives: Alternatives = field(default_factory=Alternatives)


def user_file(path: Path, data: DataOptions, label_names: Sequence[str] = ()) -> LabelledFile:
    """Return the reader of a user's table; template parts that `data` does not set are made from the column names.

    Args:
        path: the table.
        data: options of the user about columns, labels and template.
        label_names: names of the labels 0, 1, ..., used unless `data` names the labels; if empty, the names in the
            metadata of the file.

    Raises DatasetError if the labels cannot be read, and for an id column, which labelled tables do not use;
    TemplateError as read_table_text does, and for a template whose number of fields differs from the input columns.
    """
    columns = data.columns
    if columns.example_id is not None:
        raise DatasetError(
            f"{path}: rows of a table of texts and labels are numbered, so leave out --id-column {columns.example_id}; "
            "only a table with choices in each row uses it."
        )
    texts, label = columns.inputs or (TEXT,), columns.gold or LABEL
    stated = read_table_text(data.template)
    classes = {str(number): name for number, name in enumerate(label_names or class_names(path, label))}
    names = data.labels or stated.labels or classes or {name: name for name in _label_values(path, label)}
    distinct = list(dict.fromkeys(names.values()))
    with _naming(data.template or "--instruction"):
        template = table_template(stated, data.instruction, texts, label)
        template.require_fields(texts)
        if hole := re.search(rf"{{\s*({'|'.join(map(re.escape, (*texts, label)))})\s*}}", repr(template)):
            raise TemplateError(f"{hole[0]} is no hole, but text. Drop it: each cell follows its prefix.")
        alternatives = nine_templates(template, stated.alternatives)
    with _naming(path):
        verbalizer = Verbalizer(label_names=tuple(distinct))
    return LabelledFile(
        name=table_stem(path),
        path=path,
        training=training_table(path, data),
        n_training=data.training_rows,
        texts=texts,
        label=label,
        labels={cell: distinct.index(name) for cell, name in names.items()},
        hint=_HINT,
        template=template,
        verbalizer=verbalizer,
        alternative_templates=alternatives,
        instructions=stated.instructions,
    )


def reworded(name: str, data: DataOptions) -> ClassificationDataset:
    """Load a StaICC dataset with the template and label names in `data`; parts that `data` does not set are unchanged.

    If the template is changed, the nine templates of staicc-robustness are made from it, as for a user's table. New
    label names are given for the dataset's label names. Raises TemplateError for a template that does not fit the
    dataset, and for a label name that the dataset does not have.
    """
    dataset, stated = load_staicc(name), read_table_text(data.template)
    names, own = data.labels or stated.labels, dataset.verbalizer.label_names
    require_known(f"{name} has no label", names, own, TemplateError, listed="It has")
    verbalizer = Verbalizer(label_names=tuple(names.get(label, label) for label in own))
    with _naming(data.template):
        template = _with_stated(dataset.template, stated, data.instruction)
        template.require_fields(dataset.text_fields)
        is_new = template != dataset.template or stated.alternatives != Alternatives()
        templates = nine_templates(template, stated.alternatives) if is_new else dataset.alternative_templates
    instructions = stated.instructions or dataset.instructions
    identity = (dataset.fingerprint, templates, template, verbalizer, instructions)
    return replace(
        dataset,
        template=template,
        verbalizer=verbalizer,
        alternative_templates=templates,
        instructions=instructions,
        notes=(*dataset.notes, "its template or label names are the user's, not the benchmark's"),
        fingerprint=short_digest(repr(identity).encode()),
    )


@contextmanager
def _naming(path: Path | str | None) -> Iterator[None]:
    """Add the name of the file to errors about its template or its labels."""
    try:
        yield
    except TemplateError as error:
        raise TemplateError(f"{path}: {error}") from error


def table_template(stated: TableText, instruction: str | None, texts: tuple[str, ...], label: str) -> MetaTemplate:
    """Return the template in `stated`; missing parts are made from the names of the text and label columns."""
    prefixes = stated.input_prefixes or tuple(f"{name}: " for name in texts)
    affixes = ("\n",) * len(prefixes)
    made = MetaTemplate(input_prefixes=prefixes, input_affixes=affixes, label_prefix=f"{label}: ", label_affix="\n\n")
    return _with_stated(made, stated, instruction)


def _with_stated(template: MetaTemplate, stated: TableText, instruction: str | None) -> MetaTemplate:
    """Replace the parts of a template that `stated` sets.

    An `instruction` from the options replaces the one in the file; the separator of demonstrations follows it.
    """
    given = {entry.name: getattr(stated, entry.name) for entry in fields(MetaTemplate)}
    template = replace(template, **{part: text for part, text in given.items() if text not in (None, ())})
    return replace(template, instruction=instruction + template.label_affix) if instruction else template


def training_table(path: Path, data: DataOptions) -> Path | None:
    """Return the path of the training rows of a user's table: the stated file, or NAME_train; None without one."""
    return data.training or table_in(path.parent, table_stem(path) + USER_TRAINING)


def _label_values(path: Path, column: str) -> list[str]:
    """Return the distinct labels in a column, sorted as numbers if all are whole numbers, else as text.

    Two cells that write the same number, such as 1 and 1.0, are one label.
    """
    cells: list[str] = label_cells(read_texts(path, [column], _HINT), path, column).unique().sort().to_list()
    values = [*{as_number(cell): cell for cell in reversed(cells)}.values()][::-1]
    return sorted(values, key=int) if all(re.fullmatch("[0-9]{1,18}", value) for value in values) else values


def read_table_text(path: Path | None) -> TableText:
    """Read a template file, TOML with the fields of TableText; without a path, return the defaults.

    Raises TemplateError, naming file and key, for a file that cannot be read, an unknown key, or a value of a wrong
    type.
    """
    if path is None:
        return TableText()
    content = read_toml(path, TemplateError)
    require_known_keys(content.get("alternatives", {}), Alternatives, TemplateError, str(path))
    return converted(content, TableText, TemplateError, str(path), "Texts are in quotes, lists of them in [ ].")


def read_labels(stated: str) -> dict[str, str]:
    """Return cell of the gold column -> label name, in order, from `cell=name,cell=name` or a TOML file.

    A TOML file has lines `cell = "name"`. Several cells may have the same name. Raises ConfigError for text in another
    form, a cell that occurs twice, and a file that cannot be read.
    """
    if "=" not in stated:
        if not Path(stated).is_file() and Path(stated).suffix != ".toml":
            raise ConfigError(
                f"--labels {stated} is no file. Give CELL=NAME,CELL=NAME, as in 1=bad,5=great, or a TOML file."
            )
        content = read_toml(Path(stated), ConfigError)
        wrong = next((key for key, name in content.items() if not isinstance(name, str)), None)
        if wrong is not None:
            raise ConfigError(f'{stated}: {wrong} must be a text, as in {wrong} = "name", got {content[wrong]!r}.')
        return content
    labels: dict[str, str] = {}
    for pair in stated.split(","):
        cell, separator, name = (part.strip() for part in pair.partition("="))
        if not separator or not cell or not name:
            raise ConfigError(f"--labels {stated}: {pair!r} is no cell=name, as in 1=bad,5=great.")
        if cell in labels:
            raise ConfigError(f"--labels {stated}: the cell {cell!r} has two names. Give it one.")
        labels[cell] = name
    return labels


class Split(NamedTuple):
    """Demonstrations and queries, both EXAMPLES, and notes for the run record."""

    demonstrations: pl.DataFrame
    queries: pl.DataFrame
    notes: tuple[str, ...] = ()


def load_labelled(file: LabelledFile, *, query_every_row: bool) -> ClassificationDataset:
    """Read a labelled table as a dataset without calibration examples.

    Args:
        file: the reader of the table.
        query_every_row: make every row of a table without training rows a query and none a demonstration, for suites
            that have other demonstrations.

    Raises DatasetError, naming file and row, for a file that cannot be read, a missing column, text or label, an
    unknown label, rows that all have the same label, and a label with too few rows.
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

    Args:
        queries: EXAMPLES.
        demonstrations: EXAMPLES of a table of training rows, or None.
        source: name of the file, for messages.
        labels: names of the labels, for messages.
        query_every_row: without `demonstrations`, make every row a query.
        n_training: number of rows to draw as demonstrations, as for set_aside.

    Raises DatasetError, naming `source`, for queries that all have the same label, for a table of more than
    MAX_SINGLE_ROWS rows that all have different labels, and as set_aside does.
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
    """Yield notes on repeated texts: in queries and demonstrations, in several queries, and with different labels."""
    keys = [split.select("gold", key=text_key()) for split in (queries, demonstrations)]
    if n_leaks := int(keys[0]["key"].is_in(keys[1]["key"].implode()).sum()):
        yield f"{n_leaks} of {queries.height} queries have the same texts as a training row"
    if n_repeats := queries.height - keys[0]["key"].n_unique():
        yield f"{n_repeats} of {queries.height} queries repeat the texts of another query"
    labels = pl.concat(keys).group_by("key").agg(pl.col("gold").drop_nulls().n_unique())
    if n_contradicting := labels.filter(pl.col("gold") > 1).height:
        yield f"texts with different labels: {n_contradicting}"


def text_key() -> pl.Expr:
    """Return an 8-byte hash of the texts of an example; a copy of the texts would need too much memory."""
    return pl.col("texts").hash()


def table_examples(file: LabelledFile, path: Path) -> tuple[pl.DataFrame, list[str]]:
    """Return the rows of a table as EXAMPLES, in the order of the table, and notes.

    Raises DatasetError as load_labelled does.
    """
    table = read_texts(path, [*file.texts, file.label], file.hint)
    for name in file.texts:
        refuse_rows(is_blank(name), table, path, f"{name} is missing or empty")
        refuse_nul(table, path, name)
    cells = label_cells(table, path, file.label)
    # A cell may write the number of a label differently, as 1.0 for 1. Of two labels with one number, the first counts.
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
    """Return the exact number in a cell; other text, for example a code with a leading zero such as 01, unchanged."""
    return Decimal(cell) if re.fullmatch(_NUMBER, cell) else cell


def label_cells(table: Table, path: Path, column: str) -> pl.Series:
    """Return the cells of a label column. Raises DatasetError for a missing or blank cell."""
    refuse_rows(is_blank(column), table, path, f"the label in {column} is missing or blank")
    return table.cells[column]


def set_aside(
    examples: pl.DataFrame, source: str, labels: Sequence[str], n_rows: int | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Draw demonstrations from the rows of every label; return demonstrations and other rows in the table's order.

    A row whose texts occur more than once is never drawn, so that no query has the texts of a demonstration.

    Args:
        examples: EXAMPLES.
        source: name of the file, for messages.
        labels: names of the labels, for messages.
        n_rows: number of rows to draw in total, in proportion to the labels, at least one per label. None:
            DEMONSTRATION_SHARE of the rows of every label, at least MIN_DEMONSTRATIONS. At most half of the rows of a
            label are drawn.

    Raises DatasetError, naming `source`, for a label with a single row, and for a label whose rows are all repeated.
    """
    demonstration_rows: list[int] = []
    share = DEMONSTRATION_SHARE if n_rows is None else n_rows / examples.height
    at_least = MIN_DEMONSTRATIONS if n_rows is None else 1
    marked = examples.with_row_index("index").with_columns(is_unique=text_key().is_unique())
    for (gold,), rows in sorted(marked.partition_by("gold", as_dict=True).items()):
        if rows.height < 2:
            raise _single_row(examples, source, labels, gold)
        unique = rows.filter("is_unique")["index"].to_list()  # candidates: rows whose texts occur only once
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
    """Return the error for a label with a single row, with a hint at the likely mistake."""
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
    """Return whether the cell is missing or only white space."""
    return pl.col(column).fill_null("").str.strip_chars() == ""


def refuse_rows(bad: pl.Expr, table: Table, path: Path, what: str, hint: str = "Fill or remove them.") -> None:
    """Raise DatasetError, naming the first bad row, if `bad` is true for any row.

    Args:
        bad: condition on the columns of `table`.
        table, path: the table and its file.
        what: what is wrong with a bad row.
        hint: what to do about it.
    """
    rows = table.rows.filter(table.cells.select(bad).to_series())
    if len(rows):
        raise DatasetError(
            f"{path}, row {rows[0]} (from 0): {what}, as in {len(rows)} of {table.cells.height} rows. {hint}"
        )


def refuse_nul(table: Table, path: Path, column: str) -> None:
    """Raise DatasetError for a text with the character NUL, which some tokenizers drop or read as the end of a text."""
    has_nul = pl.col(column).fill_null("").str.contains("\0", literal=True)
    refuse_rows(has_nul, table, path, f"{column} contains the character NUL (U+0000)", "Remove it.")
