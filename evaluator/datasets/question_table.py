"""Read tables whose rows are the inputs of typed questions."""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import polars as pl

from evaluator.config import DataOptions
from evaluator.datasets.base import DECISION_EXAMPLES, DecisionDataset
from evaluator.datasets.labelled_table import TEXT, is_blank, refuse_nul, refuse_rows, repeat_notes, training_table
from evaluator.datasets.tables import parsed, read_texts
from evaluator.decisions.answers import Gold, TypedAnswer, gold_index
from evaluator.decisions.questions import Option, Question, are_different, listed_options, read_questions
from evaluator.errors import DatasetError, shown
from evaluator.files.digests import short_digest
from evaluator.files.whole import file_digest


def question_tables(path: Path, data: DataOptions) -> Iterator[tuple[str, Callable[[], DecisionDataset]]]:
    """Yield name and reader of the datasets of a table: one dataset for each question and number of options.

    Raises DatasetError for a file of questions or a column of options that cannot be read.
    """
    assert data.questions is not None, "the caller has them"
    questions = read_questions(data.questions)
    for question in questions:
        others = tuple(other for other in questions if other is not question and other.options_column is None)
        read = partial(_read, path, data, question, others)
        sizes = {len(options) for options in _row_options(path, question)} if question.options_column else {0}
        for size in sorted(sizes):
            name = question.name if len(sizes) == 1 else f"{question.name} ({size} options)"
            yield name, partial(read, name, size)


def _read(
    path: Path, data: DataOptions, question: Question, others: tuple[Question, ...], name: str, size: int
) -> DecisionDataset:
    """Read the dataset of a question about a table: the rows with `size` options, or all rows if `size` is 0.

    Args:
        others: the other questions about the same rows.
        name: name of the dataset.
    """
    training = training_table(path, data)
    files = [file for file in (path, training) if file is not None]
    tables = [question_examples(file, data, question) for file in files]
    if size:
        tables = [table.filter(pl.col("options").list.len() == size) for table in tables]
    examples = tables[0]
    shown_rows = tables[1] if training else examples.clear()
    named = pl.col("options").list.get(pl.col("gold"))
    splits = [rows.select(texts=pl.concat_list("input"), gold=named) for rows in (examples, shown_rows)]
    notes = [*repeat_notes(*splits)]
    if n_unknown := examples["gold"].null_count():
        notes.append(f"{n_unknown} of {examples.height} rows have no true option: they are asked and not measured")
    return DecisionDataset(
        name=name,
        question=question,
        examples=examples,
        demonstrations=shown_rows.filter(pl.col("gold").is_not_null()),
        others=others,
        source=str(path),
        notes=tuple(notes),
        fingerprint=short_digest(
            repr((name, [file_digest(file) for file in files], question, others, data.columns.inputs)).encode()
        ),
    )


def question_examples(path: Path, data: DataOptions, question: Question) -> pl.DataFrame:
    """Read DECISION_EXAMPLES from a table.

    Raises DatasetError, naming file, row and question, for a missing column or input, and for options or a gold cell
    that cannot be read.
    """
    inputs = data.columns.inputs or (TEXT,)
    # The input may show the options, but not the true one.
    shown_columns = [*inputs, *([question.options_column] if question.options_column else [])]
    hint = f"--input-column A,B names the input; `gold` and `options_column` are of the question {question.name!r}."
    columns = [*dict.fromkeys(shown_columns), *([question.gold] if question.gold else [])]
    read = read_texts(path, columns, hint, structured=(question.options_column, question.gold))
    table, rows, _ = read
    blank = pl.all_horizontal(is_blank(name) for name in inputs)
    refuse_rows(blank, read, path, f"{', '.join(inputs)} is missing or empty")
    for name in inputs:
        refuse_nul(read, path, name)
    # The input is the text of a single column, or "name: text" lines for several columns.
    text = pl.col(inputs[0])
    if len(inputs) > 1:
        named = [pl.format("{}: {}", pl.lit(name), pl.col(name).fill_null("")) for name in inputs]
        text = pl.concat_str(named, separator="\n")
    spaces = _row_options(path, question) if question.options_column else [question.options] * table.height
    cells = table[question.gold].to_list() if question.gold else [None] * table.height
    golds = [
        _gold(cell, question, options, f"{path}, row {number} (from 0), question {question.name!r}")
        for number, cell, options in zip(rows, cells, spaces, strict=True)
    ]
    return table.select(
        row=rows,
        input=text,
        options=pl.Series([[option.name for option in options] for options in spaces]),
        descriptions=pl.Series([[option.description for option in options] for options in spaces]),
        gold=pl.Series([gold for gold, _ in golds], dtype=pl.Int64),
        soft_gold=pl.Series([soft for _, soft in golds], dtype=pl.List(pl.Float64)),
    ).cast(DECISION_EXAMPLES)


def _row_options(path: Path, question: Question) -> list[tuple[Option, ...]]:
    """Read the options of every row from the question's options column.

    A cell is a JSON list, a JSON object of names and descriptions, or texts separated by "|". Raises DatasetError,
    naming the row, for fewer than two options, and for equal or blank options.
    """
    column = question.options_column
    assert column is not None, "the caller has checked"
    rows = []
    hint = f"`options_column` of the question {question.name!r} names it."
    table = read_texts(path, [column], hint, structured=[column])
    for number, cell in zip(table.rows, table.cells[column], strict=True):
        value = parsed(cell or "")
        stated = value.split("|") if isinstance(value, str) else value if isinstance(value, list | dict) else []
        options = listed_options(stated, question.none)
        is_text = all(isinstance(name, str | int | float) for name in stated)
        if not is_text or not are_different([option.name for option in options]):
            raise DatasetError(
                f"{path}, row {number} (from 0), column {column}: two options or more are needed, all different texts "
                f'and none blank, as a|b or ["a", "b"]; found {shown(cell)}. Case and white space make no difference.'
            )
        rows.append(tuple(options))
    return rows


def _gold(cell: str | None, question: Question, options: Sequence[Option], where: str) -> Gold:
    """Return the true option that a gold cell states; an empty cell means the option `none`, or unknown without one."""
    names = tuple(option.name for option in options)
    if cell is None or not cell.strip():
        return (None if question.none is None else names.index(question.none)), None
    # Levels may be given by number, unless their names are numbers: then 3 could mean the level named 3 or number 3.
    numbered = question.kind == "score" and not any(name.isdecimal() for name in names)
    asked = TypedAnswer(names, (), {str(n): name for n, name in enumerate(names)} if numbered else {})
    value = parsed(cell)
    try:
        return gold_index(value if isinstance(value, dict | list) else cell, asked)
    except DatasetError as error:
        raise DatasetError(f"{where}: {error}.") from error


def drawn_demonstrations(
    examples: pl.DataFrame, n_shots: int, seed: int, how: str = "balanced", number: int = 0
) -> list[int]:
    """Draw the row numbers of n_shots examples with a gold option, or of all such examples if there are fewer.

    Args:
        examples: DECISION_EXAMPLES.
        n_shots: number of demonstrations to draw.
        seed: seed of the order of rows.
        how: "balanced": from every option in turn; "cover": one of every option, then any; "first": the first rows.
        number: number of the demonstration set; every set has a different random order.
    """
    order = list(range(examples.height))
    if how != "first":
        random.Random(f"demonstrations, seed {seed}" + f", set {number}" * bool(number)).shuffle(order)
    rows = examples.select("gold", place=pl.int_range(pl.len()))[order].filter(pl.col("gold").is_not_null())
    turn = pl.int_range(pl.len()).over("gold")  # number of earlier rows with the same option
    turns = {"balanced": turn, "cover": turn.clip(upper_bound=1), "first": pl.int_range(pl.len())}
    return rows.sort(turns[how], maintain_order=True)["place"].head(n_shots).to_list()
