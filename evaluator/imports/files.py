"""Read answers that another tool computed: tables, samples of lm-evaluation-harness, logs of decision services.

A table has a row for each request. The harness writes samples_TASK_DATE.jsonl with a row for each document. Logs of
decision services are read by decision_logs.py.

Source: lm_eval/result_schema.py and loggers/evaluation_tracker.py of EleutherAI/lm-evaluation-harness at 4e7e0d4.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from evaluator.config import ImportColumns, Numbers
from evaluator.datasets.sources import require_dataset_name
from evaluator.datasets.tables import JSON_LINES, column_names, ending, parsed, read_rows, table_stem
from evaluator.errors import ConfigError, DatasetError, shown
from evaluator.imports.answers import ImportedDataset, Reported, answers_frame, reported_probabilities
from evaluator.imports.decision_logs import log_kind, read_log
from evaluator.redaction import name_fault

PREDICTED = "pred"
"""Default name of the column with predicted labels."""

SCORES: Mapping[str, Numbers] = {
    "label_log_likelihoods": "log-likelihoods",
    "label_probs": "probabilities",
    PREDICTED: "labels",
}
"""Default name of a column with answers -> kind of its values; the first that the table has is read."""

LABEL_NAMES = "label_names"
"""Name of the column with the label space, a list in each row."""

SAMPLES = ("doc_id", "target", "arguments", "resps", "filter")
"""Columns by which samples of lm-evaluation-harness are recognised."""

NO_LABEL = -1
"""Index for a cell that names no label."""

_HINT = (
    "Say which columns hold the answers with --gold-column, --score-column and --numbers of `evaluator import`; its "
    "--labels names the labels in the order of the numbers."
)


class _Row(NamedTuple):
    """A row of a file."""

    path: Path
    number: int  # number of the row in the file, from 0
    cells: Mapping[str, Any]  # column -> value

    def error(self, column: str, allowed: str, value: object) -> DatasetError:
        """Return the error about a wrong cell: file, row, column, value, and allowed values in words."""
        where = f"{self.path}, row {self.number} (from 0), column {column!r}"
        return DatasetError(f"{where}: found {shown(value)}; allowed is {allowed}.")

    def text(self, column: str) -> str:
        """Return a cell as a text. Raises DatasetError for an empty cell."""
        if self.cells[column] is None:
            raise self.error(column, "a text or a number", None)
        return str(self.cells[column])


def read_files(paths: Sequence[Path], columns: ImportColumns, *, needs_gold: bool = True) -> list[ImportedDataset]:
    """Return the datasets of several files, in the order of the files.

    Args:
        paths: tables, samples of lm-evaluation-harness, and logs of decision services.
        columns: names of columns, for tables; of logs of decision services only `gold` is used.
        needs_gold: whether answers need a true label: tables without it are an error, and answers in logs are left out.

    Raises:
        DatasetError: wrong values, naming file, row and column; files without rows.
        ConfigError: two datasets of one name and part, files with different kinds of numbers, or options that do not
            fit the columns of a table.
    """
    datasets: list[ImportedDataset] = []
    for path in paths:
        keys = column_names(path) if ending(path) == JSON_LINES else [""]
        if not keys:
            raise DatasetError(f"{path} has no rows.")
        if ending(path) == ".json" or log_kind((*keys,)):
            read = read_log(path, columns.gold, needs_gold=needs_gold)
        else:
            is_samples = {*SAMPLES} <= {*keys}
            read = [_read_samples(path)] if is_samples else _read_table(path, columns, needs_gold=needs_gold)
        is_alone = [each.name for each in paths].count(path.name) == 1  # queries are identified by file and id
        datasets += read if is_alone else [dataset._replace(file=str(path)) for dataset in read]
    for dataset in datasets:
        require_dataset_name(dataset.name, dataset.file)
        labels = dataset.rows["label_names"].explode().unique().drop_nulls()
        if fault := next(filter(None, map(name_fault, labels)), None):
            raise DatasetError(f"{dataset.file}: the name of a label {fault}. Change it.")
    names = [(dataset.name, dataset.part) for dataset in datasets]
    if repeated := next((name for name, part in names if names.count((name, part)) > 1), None):
        raise ConfigError(f"Two of the files have a dataset {repeated!r}. Rename one of them, or import it by itself.")
    kinds = {dataset.numbers for dataset in datasets}
    if len(kinds) > 1:
        raise ConfigError(f"The files hold {' and '.join(sorted(kinds))}. Import each kind by itself.")
    return datasets


def _rows(path: Path, columns: Sequence[str], hint: str = "") -> Iterator[_Row]:
    """Yield the rows of a file with the cells of the columns. Raises DatasetError for a file without rows.

    Args:
        hint: sentence at the end of the error about a missing column.
    """
    number = -1
    for number, cells in read_rows(path, columns, hint):
        yield _Row(path, number, dict(zip(columns, cells, strict=True)))
    if number < 0:
        raise DatasetError(f"{path} has no rows.")


class _Columns(NamedTuple):
    """The columns to read from a table, and how to read them; None: no such column."""

    gold: str | None  # true label, a name or an index
    needs_gold: bool  # whether every row must have a true label
    scores: tuple[str, ...]  # one column of lists or predicted labels, or a column for each label
    numbers: Numbers  # kind of the values in `scores`
    labels: tuple[str, ...] | None  # label names in order; None: in the column LABEL_NAMES
    invalid: str | None  # as ImportColumns.invalid
    dataset: str | None  # name of the dataset
    query: str | None  # id of the query
    prompt: str | None  # text of the prompt

    def answer(self, row: _Row) -> Any:
        """Return the answer of a row: the cell of the column of `scores`, or a list of the cells of several columns."""
        cells = [row.cells[name] for name in self.scores]
        return cells if len(cells) > 1 else cells[0]


def _read_table(path: Path, given: ImportColumns, *, needs_gold: bool) -> list[ImportedDataset]:
    """Return the datasets of a table, in the order of their first rows."""
    columns = _chosen_columns(path, given, needs_gold=needs_gold)
    optional = [name for name in (columns.gold, columns.dataset, columns.query, columns.prompt) if name]
    names = [*columns.scores, *optional, *([] if columns.labels else [LABEL_NAMES])]
    datasets: dict[str, list[_Row]] = {}
    for row in _rows(path, names, _HINT):
        datasets.setdefault(row.text(columns.dataset) if columns.dataset else table_stem(path), []).append(row)
    return [_table_dataset(name, rows, columns) for name, rows in datasets.items()]


def _chosen_columns(path: Path, given: ImportColumns, *, needs_gold: bool) -> _Columns:
    present = column_names(path)
    scores = given.scores or next(((name,) for name in SCORES if name in present), None)
    if scores is None:
        raise DatasetError(f"{path} has none of the columns {', '.join(SCORES)}; it has {', '.join(present)}. {_HINT}")
    numbers = given.numbers or (SCORES.get(scores[0]) if len(scores) == 1 else None)
    if numbers is None:
        raise ConfigError(f"--score-column {','.join(scores)} needs --numbers, which says what the numbers are.")
    labels = given.labels or (None if LABEL_NAMES in present else scores if len(scores) > 1 else ())
    if labels == ():
        raise ConfigError(f"{path} has no column {LABEL_NAMES!r}: name the labels with --labels of `evaluator import`.")
    if labels and not 1 < len(labels) == len({*labels}):
        raise ConfigError(f"--labels takes two different names or more, got {', '.join(labels)}.")
    if given.invalid and numbers != "labels":
        raise ConfigError(f"--invalid {given.invalid} is about predicted labels, and {','.join(scores)} has {numbers}.")
    defaults = {"dataset": given.dataset, "query_id": given.query, "prompt": given.prompt}
    optional = [name or (default if default in present else None) for default, name in defaults.items()]
    gold = given.gold if needs_gold or numbers == "labels" or given.gold in present else None
    return _Columns(gold, needs_gold, scores, numbers, labels, given.invalid, *optional)


def _table_dataset(name: str, rows: Sequence[_Row], columns: _Columns) -> ImportedDataset:
    labels, note = columns.labels or _label_names(rows[0]), tuple[str, ...]()
    for row in rows:
        if not columns.labels and (names := _label_names(row)) != labels:
            raise row.error(LABEL_NAMES, f"the labels of the dataset's first row, {list(labels)}", list(names))
    if columns.numbers == "labels":  # write the predicted label as log-likelihoods: 0, and -inf for others
        assert columns.gold, "tables of labels have it"
        valid, note = _valid_predictions(rows, columns, labels)
        rows = valid if columns.invalid == "drop" else rows
        indices = _label_indices({columns.gold: rows, columns.scores[0]: valid}, labels)
        true, chosen = indices[columns.gold], indices[columns.scores[0]]
        golds: list[int | None] = [true[row.number] for row in rows]
        # An invalid prediction that counts as wrong becomes the label after the true one.
        predicted = [chosen.get(row.number, (true[row.number] + 1) % len(labels)) for row in rows]
        numbers = [[0.0 if index == label else -math.inf for index in range(len(labels))] for label in predicted]
    else:
        # Without needs_gold, rows with an empty cell have no true label.
        known = [row for row in rows if columns.gold and (columns.needs_gold or row.cells[columns.gold] is not None)]
        true = _label_indices({columns.gold: known}, labels)[columns.gold] if columns.gold else {}
        golds = [true.get(row.number) for row in rows]
        numbers = [_table_numbers(row, labels, columns) for row in rows]
    reported = Reported(numbers)
    if columns.numbers == "probabilities":
        where = ",".join(columns.scores)
        reported = reported_probabilities(
            numbers, lambda place, allowed: rows[place].error(where, allowed, columns.answer(rows[place]))
        )
    answers = answers_frame(
        [labels] * len(rows),
        reported.log_likelihoods,
        query=[row.text(columns.query) if columns.query else str(row.number) for row in rows],
        prompt=[str(row.cells[columns.prompt] or "") if columns.prompt else "" for row in rows],
        gold=golds,
    )
    return ImportedDataset(name, columns.numbers, answers, rows[0].path.name, reported.floor, (*note, *reported.notes))


def _valid_predictions(
    rows: Sequence[_Row], columns: _Columns, labels: Sequence[str]
) -> tuple[Sequence[_Row], tuple[str, ...]]:
    """Return the rows whose prediction is a label, and a note about the others; without --invalid return all rows."""
    if columns.invalid is None:
        return rows, ()
    column = columns.scores[0]
    readings = ([row for row in rows if read(row.cells[column], labels) != NO_LABEL] for read in (_named, _numbered))
    valid = max(readings, key=len)  # read as names, unless more cells are valid as indices
    if not valid and columns.invalid == "drop":
        allowed = f"one of {', '.join(labels)}: no row has a label, and --invalid wrong would count all as wrong"
        raise rows[0].error(column, allowed, rows[0].cells[column])
    counted = "left out" if columns.invalid == "drop" else "counted as wrong, as the label after the true one"
    note = f"{len(rows) - len(valid)} of {len(rows)} predictions name no label and are {counted}"
    return valid, (note,) if len(valid) < len(rows) else ()


def _label_names(row: _Row) -> tuple[str, ...]:
    names = parsed(row.cells[LABEL_NAMES])
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not is_list or not 1 < len(names) == len({*names}):
        raise row.error(
            LABEL_NAMES, 'a list of two or more different texts, in CSV as JSON: ["no", "yes"]', row.cells[LABEL_NAMES]
        )
    return tuple(names)


def _label_indices(columns: Mapping[str, Sequence[_Row]], labels: Sequence[str]) -> dict[str, dict[int, int]]:
    """Return the label index in each cell of some columns: column -> row number -> index.

    Cells are names of labels, or indices. Names can be numbers, so a cell can be ambiguous: all cells of all columns
    are read as names if possible, else all as indices; if neither is possible, each column by itself.

    Args:
        columns, labels: column -> rows to read, and label names in order.

    Raises DatasetError for a column that is neither all names nor all indices.
    """
    readings = [
        {column: {row.number: read(row.cells[column], labels) for row in rows} for column, rows in columns.items()}
        for read in (_named, _numbered)
    ]
    for indices in readings:
        if not any(NO_LABEL in of_rows.values() for of_rows in indices.values()):
            return indices
    found = {}
    for column, rows in columns.items():
        fitting = [indices[column] for indices in readings if NO_LABEL not in indices[column].values()]
        if not fitting:
            raise _not_a_label(rows, column, labels)
        found[column] = fitting[0]
    return found


def _named(cell: object, labels: Sequence[str]) -> int:
    """Return the index of the label whose name the cell is, or NO_LABEL, also for an empty cell.

    1.0 is also read as 1, and True and False also in lower case.
    """
    text = "" if cell is None else str(cell)
    forms = (text, text.removesuffix(".0"), text.lower() if isinstance(cell, bool) else text)
    return next((labels.index(form) for form in forms if form in labels), NO_LABEL)


def _numbered(cell: object, labels: Sequence[str]) -> int:
    """Return the label index, from 0, that a cell holds, or NO_LABEL; 1.0 is also read as 1."""
    number = int(text) if re.fullmatch("[0-9]{1,9}", text := str(cell).removesuffix(".0")) else len(labels)
    return number if number < len(labels) else NO_LABEL


def _not_a_label(rows: Sequence[_Row], column: str, labels: Sequence[str]) -> DatasetError:
    """Return the error about the first cell that is neither name nor index, else about the first that is no name."""
    unnamed = [row for row in rows if _named(row.cells[column], labels) == NO_LABEL]
    unknown = [row for row in unnamed if _numbered(row.cells[column], labels) == NO_LABEL]
    reason = f", or a number from 0 to {len(labels) - 1}" if unknown else ", since other rows have names"
    if unknown and column == PREDICTED:
        reason += (
            "; in `evaluator import` --invalid wrong counts other answers as wrong, --invalid drop leaves them out"
        )
    row = [*unknown, *unnamed][0]
    return row.error(column, f"one of {', '.join(labels)}{reason}", row.cells[column])


def _table_numbers(row: _Row, labels: Sequence[str], columns: _Columns) -> list[float]:
    cell = columns.answer(row)
    values = parsed(cell)
    where = ",".join(columns.scores)
    if not isinstance(values, list) or len(values) != len(labels):
        raise row.error(where, f"{len(labels)} numbers, one for each of {', '.join(labels)}", cell)
    numbers = [_number(value) for value in values]
    if columns.numbers == "log-likelihoods" and not _are_log_likelihoods(numbers):
        raise row.error(where, "log-likelihoods in nats: numbers of at most 0, not all -inf", cell)
    return numbers


def _are_log_likelihoods(numbers: Sequence[float]) -> bool:
    """Return whether numbers can be log-likelihoods: at most 0, and not all -inf, which is probability 0."""
    return all(value <= 0 for value in numbers) and max(numbers) > -math.inf


def _number(value: Any) -> float:
    """Return a value as a number; NaN, which every kind of numbers refuses, for other values."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _read_samples(path: Path) -> ImportedDataset:
    """Return the dataset of a file of samples of lm-evaluation-harness; all documents must have the same choices.

    A document has a row for each filter of the task: only rows of the first filter are read. Their answers are `resps`,
    or `filtered_resps` where the filter has changed the probabilities of the choices, as the methods of our export do.
    """
    rows = list(_rows(path, [*SAMPLES, *({"acc", "filtered_resps"} & {*column_names(path)})]))
    first, *others = dict.fromkeys(str(row.cells["filter"]) for row in rows)
    rows = [row for row in rows if str(row.cells["filter"]) == first]
    labels = _choices(rows[0])
    for row in rows:
        if (choices := _choices(row)) != labels:
            same = f"the choices of row 0, {list(labels)}: other choices are no labels"
            raise row.error("arguments", same, list(choices))
    numbers, log_likelihoods = _sample_answers(rows, len(labels))
    golds = _sample_golds(rows, labels, [each.index(max(each)) for each in log_likelihoods])
    asked = [str(row.cells["arguments"]["gen_args_0"]["arg_0"]) for row in rows]
    ids = [str(row.cells["doc_id"]) for row in rows]
    answers = answers_frame([labels] * len(rows), log_likelihoods, query=ids, prompt=asked, gold=golds)
    name = table_stem(path).partition("_")[2].rpartition("_")[0] or table_stem(path)
    notes = (f"of the filters {', '.join([first, *others])} the first is read",) if others else ()
    return ImportedDataset(name, numbers, answers, path.name, notes=notes)


def _choices(row: _Row) -> tuple[str, ...]:
    """Return the continuations of a document, without spaces around them. Raises DatasetError for other tasks."""
    arguments = row.cells["arguments"]
    requests = list(arguments.values()) if isinstance(arguments, dict) else []
    texts = [request.get("arg_1") if isinstance(request, dict) else None for request in requests]
    choices = tuple(text.strip() for text in texts if isinstance(text, str))
    is_numbered = requests and list(arguments) == [f"gen_args_{place}" for place in range(len(requests))]
    different = {*filter(None, choices)}  # acc_mutual_info asks each choice twice
    if not is_numbered or not 2 <= len(requests) == len(different) or "arg_0" not in requests[0]:
        allowed = "gen_args_0, gen_args_1, ..., each with a context arg_0 and another continuation arg_1"
        raise row.error("arguments", f"{allowed}: a multiple-choice task", [*choices] if choices else arguments)
    return choices


def _sample_answers(rows: Sequence[_Row], n_labels: int) -> tuple[Numbers, list[list[float]]]:
    """Return the kind of the answers, and the log-likelihood of each choice, [rows, n_labels].

    They are `resps`, in the vocabulary, or `filtered_resps`, in the choices alone, if only these exist or agree with
    the accuracy.
    """
    raw, filtered = ([_responses(row, name, n_labels) for row in rows] for name in ("resps", "filtered_resps"))
    agree = all(raw) and all(filtered) and np.allclose(softmax(raw, 1), softmax(filtered, 1), rtol=0, atol=1e-9)
    if all(filtered) and not agree:
        return "probabilities", filtered
    for row, numbers in zip(rows, raw, strict=True):
        if not numbers:
            raise row.error("resps", f"{n_labels} log-likelihoods of at most 0, not all -inf", row.cells["resps"])
    return "log-likelihoods", raw


def _responses(row: _Row, column: str, n_labels: int) -> list[float]:
    """Return the log-likelihood of each choice from [[log-likelihood, is_greedy], ...]; [] for any other cell.

    `resps` has a list of such pairs in place of each pair, one for each repeat.
    """
    try:
        pairs = [choice[0] if column == "resps" else choice for choice in row.cells[column]]
        numbers = [float(pair[0]) for pair in pairs]
    except (TypeError, ValueError, IndexError, KeyError, OverflowError):
        return []
    return numbers if len(numbers) == n_labels and _are_log_likelihoods(numbers) else []


def _sample_golds(rows: Sequence[_Row], labels: Sequence[str], likeliest: Sequence[int]) -> list[int]:
    """Return the index of the true choice of each row.

    The target is the text of a choice or its index. If the choices are numbers, it is ambiguous: then the reading is
    chosen that agrees with the accuracy which the harness logged in the column `acc`.

    Args:
        labels: choices in order.
        likeliest: index of the choice with the highest log-likelihood, for each row.
    """
    targets = [str(row.cells["target"]).strip() for row in rows]
    for read in (_named, _numbered):
        golds = [read(target, labels) for target in targets]
        logged = zip((row.cells.get("acc") for row in rows), golds, likeliest, strict=True)
        if NO_LABEL not in golds and all(acc is None or bool(acc) == (gold == best) for acc, gold, best in logged):
            return golds
    for row, target in zip(rows, targets, strict=True):
        if _named(target, labels) == _numbered(target, labels) == NO_LABEL:
            raise row.error(
                "target", f"one of {', '.join(labels)}, or a number from 0 to {len(labels) - 1}", row.cells["target"]
            )
    raise DatasetError(
        f"{rows[0].path}: no reading of the column 'target' gives the accuracy in the column 'acc', neither as a "
        f"choice's text nor as its number among {', '.join(labels)}."
    )
