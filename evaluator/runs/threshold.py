"""`evaluator threshold`: choose, check and apply thresholds on the stored answers of finished runs and of tables."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from evaluator.config import ImportColumns, ThresholdOptions
from evaluator.datasets.base import ClassificationDataset, DecisionDataset, MultipleChoiceDataset
from evaluator.datasets.sources import dataset_sources
from evaluator.datasets.tables import JSON_LINES, column_names, ending, read_rows
from evaluator.errors import ConfigError, MetricError, StoreError, require_known, shown
from evaluator.files.json_files import read_record
from evaluator.files.whole import write_bytes
from evaluator.imports.answers import IMPORTED, answer_rows
from evaluator.imports.decision_logs import ASKED_TABLE
from evaluator.imports.files import read_files
from evaluator.methods.base import softmax
from evaluator.metrics import thresholds
from evaluator.metrics.thresholds import ThresholdFile, ThresholdReport
from evaluator.record import MeasuredRecord, require_every_query
from evaluator.redaction import csv_text
from evaluator.run.folder import config_from_json, read_table
from evaluator.run.folders import RUN_FILE, RunFolder
from evaluator.suites import SUITES

DEFINITION = "paper"
"""Definition whose predictions are used, because it leaves the label probabilities of the method unchanged."""


def threshold_report(
    *runs: str | Path, use: str | Path | None = None, check: str | Path | None = None, **given: Any
) -> ThresholdReport:
    """Choose thresholds on stored answers, and check them on a second table, as `evaluator threshold RUN` does.

    Args:
        runs: folder of a run, or a table of answers as `evaluator import` reads it; with costs, two of these: answers
            of a small model and of a large model to the same rows.
        use: thresholds.json, whose thresholds are checked on the run, so that none are chosen. Its method, part, option
            yes, group column and slice column are used unless others are given.
        check: run or table on which the thresholds are checked.
        given: fields of ThresholdOptions.

    Raises ConfigError, DatasetError, MetricError and StoreError for files that cannot be read or do not fit.
    """
    options = ThresholdOptions(**given)
    file = None if use is None else read_thresholds(Path(use))
    if file:
        options = as_chosen(replace(options, group_column=options.group_column or file.group_column), file)
    if len(runs) != (2 if options.costs else 1):
        raise ConfigError("--costs takes two runs, of a small model and a large one. Without it, name one run.")
    read = [read_answers(Path(path), options) for path in (*runs, check) if path]
    answers, *others = (thresholds.answer_rows(with_gold(each.rows), options.yes) for each in read)
    later = others[-1:] if check else [answers] if file else []
    if file is None:
        chosen = tuple(thresholds.choose_thresholds(answers, options))
        names = ("method", "assurance", "yes", "part", "group_column", "slice_column")
        same = {name: getattr(options, name) for name in names}
        file = ThresholdFile(model=read[0].model, thresholds=chosen, **same)
    for rows in later:
        require_questions(rows["question"], file)
    promised = [each for each in file.thresholds if each.threshold is not None]
    return ThresholdReport(
        file=file,
        model=read[0].model,
        parts=() if options.part else read[0].parts,
        coverage=thresholds.by_question(answers, by_slice=options.slice_column is not None),
        rows=answers,
        at=thresholds.accuracies_at(answers, options),
        checks=[thresholds.checked(rows, each) for rows in later for each in promised],
        routing=thresholds.route_rows(answers, others[0], options.costs) if options.costs else None,
    )


def as_chosen(options: ThresholdOptions, file: ThresholdFile) -> ThresholdOptions:
    """Fill options that were left out (method, part, yes, slice_column) with the values of a file of thresholds."""
    method = file.method if options.method == ThresholdOptions.method else options.method
    given = {name: getattr(options, name) or getattr(file, name) for name in ("part", "yes", "slice_column")}
    return replace(options, method=method, **given)


def apply_thresholds(answers: pl.DataFrame, thresholds_file: str | Path | ThresholdFile) -> pl.DataFrame:
    """Add `threshold` and `is_used` to answers (metrics.thresholds.apply_thresholds), from thresholds.json."""
    file = thresholds_file if isinstance(thresholds_file, ThresholdFile) else read_thresholds(Path(thresholds_file))
    return thresholds.apply_thresholds(answers, file.thresholds, file.yes)


def read_thresholds(path: Path) -> ThresholdFile:
    """Read thresholds.json. Raises StoreError if it is missing, damaged or of another version."""
    file = read_record(path, ThresholdFile, "Write it again with `evaluator threshold RUN --out FILE`.")
    if file is None or file.version != 1:
        raise StoreError(f"{path} holds no thresholds of this version. Write them with `evaluator threshold --out`.")
    return file


def write_answers(source: Path, path: Path, options: ThresholdOptions, file: ThresholdFile) -> None:
    """Write the answers of a run or table as CSV, with the decision whether each answer is used.

    Columns beside the keys of a row are the chosen option, the probability that is compared with the threshold (for a
    measure of the answer yes, the probability of yes), and `is_used`.
    """
    rows = read_answers(source, as_chosen(options, file)).rows
    require_questions(rows["dataset"], file)
    names = [name for name in ("dataset", "position", "query_id", "group", "slice") if name in rows.columns]
    # The answers may have no gold label, and answer_rows needs one: its value does not matter here.
    read = thresholds.answer_rows(rows.with_columns(gold=pl.lit(0, pl.Int64)), file.yes)
    answer = read.select("answer", probability=thresholds.compared(file.thresholds))
    table = rows.select(names).hstack(answer).hstack(apply_thresholds(rows, file).select("is_used"))
    write_bytes(path, csv_text(table).encode())


def with_gold(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the answers whose true option is known. Raises MetricError if there is none."""
    known = rows.drop_nulls("gold")
    if known.is_empty():
        raise MetricError("No answer has a true option, and thresholds are chosen and checked on those that have.")
    return known


def require_questions(asked: pl.Series, file: ThresholdFile) -> None:
    """Raise ConfigError if thresholds are for named questions, and none of these is among the questions `asked`."""
    named = {each.question for each in file.thresholds if each.question is not None}
    if named and not named & {*asked}:
        raise ConfigError(
            f"The thresholds are for {', '.join(sorted(named))}, and the answers are to "
            f"{', '.join(sorted({*asked}))}. A table names its question in the column dataset."
        )


class Answers(NamedTuple):
    """The stored answers of a run or table."""

    model: str
    rows: pl.DataFrame  # a row for each answer; has `group` and `slice` if their columns are named
    parts: tuple[str, ...] = ()  # all parts of a run, the part of these answers first


def read_answers(source: Path, options: ThresholdOptions, *, needs_probabilities: bool = True) -> Answers:
    """Return the answers of a run or table; without --part, the answers of the first part of a run's suite.

    Raises MetricError for answers without probabilities, if `needs_probabilities`.
    """
    columns = {"group": options.group_column, "slice": options.slice_column}
    named = {name: column for name, column in columns.items() if column is not None}
    alone = MetricError(f"{source} has answers without probabilities, which thresholds are compared with.")
    if (source / RUN_FILE).is_file():
        record = RunFolder(source).measured
        require_every_query(record, str(source))
        rows, parts = _run_answers(source, record, options)
        measured = {*read_table(source, "metrics", record.tables).filter(part=parts[0])["metric"]}
        if needs_probabilities and "accuracy" in measured and "true_label_probability" not in measured:
            raise alone
        return Answers(record.model.title, _with_columns(source, record, rows, named), parts)
    if source.is_dir():
        raise StoreError(f"{source} holds no run, and is no table of answers.")
    datasets = [each for each in read_files([source], ImportColumns(), needs_gold=False) if each.part == IMPORTED]
    if needs_probabilities and any(each.numbers == "labels" for each in datasets):
        raise alone
    rows = answer_rows(datasets).with_columns(label_probs=softmax(pl.col("log_likelihoods")))
    return Answers(source.stem, _with_cells(rows, source, named) if named else rows)


def _run_answers(out: Path, record: MeasuredRecord, options: ThresholdOptions) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """Return the predictions of one part by one method, and all parts. Raises ConfigError if there are none."""
    predictions = read_table(out, "predictions", record.tables).filter(definition=DEFINITION)
    methods, present = (predictions[name].unique().sort().to_list() for name in ("method", "part"))
    # In the suites' order, in which the unchanged form of typed questions is the first part.
    parts = [part for of_suite in record.prompts.parts.values() for part in of_suite if part in present]
    require_known(f"{out} has no answers by the method", [options.method], methods)
    part = options.part or (IMPORTED if IMPORTED in parts else parts[0])
    require_known(f"{out} has no part", [part], parts)
    rows = predictions.filter(method=options.method, part=part).sort("dataset", "position")
    return rows, (part, *(other for other in parts if other != part))


def _with_columns(out: Path, record: MeasuredRecord, rows: pl.DataFrame, named: dict[str, str]) -> pl.DataFrame:
    """Add columns of the tables from which a run's queries come.

    Args:
        out: folder of the run.
        record: its record.
        rows: answers, with dataset and query_id.
        named: name of the added column -> column of the table.
    """
    if not named:
        return rows
    config = config_from_json(record.prompts.config, where=str(out / RUN_FILE))
    if record.model.kind == IMPORTED:
        if len(config.data.paths) != 1:
            raise ConfigError(f"{out} was imported from several tables: import each by itself to use their columns.")
        return _with_cells(rows, config.data.paths[0], named)
    every_row = any(SUITES[name].queries_every_row(config) for name in config.suites)
    tables = []
    for source in dataset_sources(config.datasets, config.data):
        dataset = source.load(query_every_row=every_row)
        path = Path(dataset.source if isinstance(dataset, DecisionDataset) else source.origin)
        if isinstance(dataset, MultipleChoiceDataset) or not path.is_file():
            raise ConfigError(f"{source.name} is no labelled table of your own: it has no column {[*named.values()]}.")
        own = _cells(path, named)
        if isinstance(dataset, DecisionDataset):  # query_id is the number of the row
            cells = own.rename({"row": "query_id"})
        else:
            taken = SUITES[config.suites[0]].take(dataset, config)  # in the order of the suite's queries
            queries = (taken if isinstance(taken, ClassificationDataset) else dataset).test.select(row="source_row")
            cells = queries.join(own, on="row", how="left", maintain_order="left").drop("row")
            cells = cells.with_columns(query_id=pl.int_range(pl.len()))
        tables.append(cells.with_columns(dataset=pl.lit(source.name)))
    cells_of_all = pl.concat(tables, how="diagonal_relaxed")
    return rows.join(cells_of_all, on=["dataset", "query_id"], how="left", maintain_order="left")


def _with_cells(rows: pl.DataFrame, path: Path, named: dict[str, str]) -> pl.DataFrame:
    """Add columns of a table of answers to its answers, which within a dataset are in the order of the table."""
    is_asked = ending(path) == JSON_LINES and ASKED_TABLE in column_names(path)
    cells = _asked_cells(rows, path, named) if is_asked else _cells(path, named).drop("row")
    if rows["dataset"].n_unique() > 1 and not is_asked:
        hint = "By it the rows of several datasets are told apart, so that logs of several questions have no columns."
        own = [str(name) for _, (name,) in read_rows(path, ["dataset"], hint)]
        if {*own} != {*rows["dataset"]}:  # the run was imported with another --dataset-column
            raise ConfigError(f"{path}: the column dataset names other datasets than the answers. Rename the columns.")
        cells = cells.with_columns(dataset=pl.Series(own)).sort("dataset", maintain_order=True).drop("dataset")
    if cells.height != rows.height:
        raise ConfigError(
            f"{path} has {cells.height} rows and {rows.height} answers, so that its columns are not those of the "
            "answers. Remove rows without an answer, such as refusals; if it has changed since, import it again."
        )
    return rows.sort("dataset", "position").hstack(cells)


def _asked_cells(rows: pl.DataFrame, log: Path, named: dict[str, str]) -> pl.DataFrame:
    """Return columns of the table of `evaluator ask` for answers in its log, in the order of dataset and position."""
    asked = read_files([log], ImportColumns(), needs_gold=not rows["gold"].null_count())
    of_part = (each for each in asked if each.part == rows["part"][0])
    ids = pl.concat(each.rows.select(dataset=pl.lit(each.name), row=pl.col("query").cast(pl.Int64)) for each in of_part)
    _, (table,) = next(read_rows(log, [ASKED_TABLE], ""))
    cells = ids.join(_cells(Path(table), named), on="row", how="left", maintain_order="left")
    return cells.sort("dataset", maintain_order=True).drop("dataset", "row")


def _cells(path: Path, named: dict[str, str]) -> pl.DataFrame:
    """Return columns of a table as texts, named by the keys of `named`, and `row`, the number of each row."""
    columns = list(dict.fromkeys(named.values()))
    hint = "Say which with --group-column and --slice-column."
    numbers, rows = zip(*read_rows(path, columns, hint), strict=True)
    for number, cells in zip(numbers, rows, strict=True):
        if nested := [cell for cell in cells if isinstance(cell, list | dict)]:
            raise ConfigError(
                f"{path}, row {number} (from 0): a group or slice is a text or a number, got {shown(nested[0])}."
            )
    # Types are inferred from all rows: the first hundred may be empty, or whole numbers.
    table = pl.DataFrame(list(rows), schema=columns, orient="row", strict=False, infer_schema_length=None)
    named_columns = (pl.col(column).cast(pl.String).alias(name) for name, column in named.items())
    return table.select(pl.Series("row", numbers, dtype=pl.Int64), *named_columns)
