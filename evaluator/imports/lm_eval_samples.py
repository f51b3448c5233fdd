"""Read the samples that lm-evaluation-harness logs of a task: samples_TASK_DATE.jsonl, a row for each document.

Source: lm_eval/result_schema.py and loggers/evaluation_tracker.py of EleutherAI/lm-evaluation-harness at 4e7e0d4.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluator.datasets.table_files import column_names, read_rows
from evaluator.errors import DatasetError
from evaluator.imports.base import ImportedDataset, ImportedRow, cell_error, label_number

COLUMNS = ("doc_id", "target", "arguments", "resps", "filter")


def is_samples(path: Path) -> bool:
    """Return whether a file holds samples of lm-evaluation-harness."""
    return path.suffix == ".jsonl" and {*COLUMNS} <= {*column_names(path)}


def read_samples(path: Path) -> ImportedDataset:
    """Return the log-likelihoods of a task whose documents all have the same choices.

    A document with several filters has several rows, with the same responses: those of the first filter are read.
    Raises DatasetError, naming file, row and column, for a task that is not of this kind.
    """
    rows, first = [], None
    has_accuracy = "acc" in column_names(path)
    for number, cells in enumerate(read_rows(path, [*COLUMNS, *(["acc"] if has_accuracy else [])], "")):
        row = dict(zip([*COLUMNS, "acc"], cells, strict=False))
        first = first or row
        if row["filter"] != first["filter"]:
            continue
        choices = _choices(path, number, row["arguments"])
        if choices != _choices(path, 0, first["arguments"]):
            same = f"the choices of row 0, {list(_choices(path, 0, first['arguments']))}: other choices are no labels"
            raise cell_error(path, number, "arguments", list(choices), same)
        rows.append((number, row))
    if first is None:
        raise DatasetError(f"{path} has no rows.")
    labels = _choices(path, 0, first["arguments"])
    log_likelihoods = [_log_likelihoods(path, number, row["resps"], len(labels)) for number, row in rows]
    golds = _golds(path, rows, labels, [row.index(max(row)) for row in log_likelihoods])
    return ImportedDataset(
        name=path.stem.partition("_")[2].rpartition("_")[0] or path.stem,
        label_names=labels,
        numbers="log-likelihoods",
        file=path.name,
        rows=[
            ImportedRow(
                query=str(row["doc_id"]),
                prompt=str(row["arguments"]["gen_args_0"]["arg_0"]),
                gold=gold,
                log_likelihoods=numbers,
            )
            for (_, row), gold, numbers in zip(rows, golds, log_likelihoods, strict=True)
        ],
    )


def _choices(path: Path, number: int, arguments: Any) -> tuple[str, ...]:
    """Return the continuations of a document, without the spaces around them."""
    allowed = "gen_args_0, gen_args_1, ..., each with a context arg_0 and a continuation arg_1: a multiple-choice task"
    requests = list(arguments.values()) if isinstance(arguments, dict) else []
    if len(requests) < 2 or list(arguments) != [f"gen_args_{place}" for place in range(len(requests))]:
        raise cell_error(path, number, "arguments", arguments, allowed)
    texts = [request.get("arg_1") if isinstance(request, dict) else None for request in requests]
    choices = tuple(text.strip() for text in texts if isinstance(text, str))
    if len(choices) < len(requests) or "arg_0" not in requests[0]:
        raise cell_error(path, number, "arguments", arguments, allowed)
    return choices


def _log_likelihoods(path: Path, number: int, responses: Any, n_labels: int) -> list[float]:
    """Return the log-likelihood of each choice from [[[log-likelihood, is_greedy]], ...]."""
    try:
        numbers = [float(repeats[0][0]) for repeats in responses]
    except (TypeError, ValueError, IndexError, KeyError, OverflowError):
        numbers = []
    if len(numbers) != n_labels or not all(-math.inf < value <= 0 for value in numbers):
        raise cell_error(path, number, "resps", responses, f"{n_labels} log-likelihoods, finite and at most 0")
    return numbers


def _golds(
    path: Path, rows: Sequence[tuple[int, Mapping[str, Any]]], labels: Sequence[str], likeliest: Sequence[int]
) -> list[int]:
    """Return the index of the true choice of each row.

    The target is the text of a choice or its number, and where choices are numbers themselves it could be either: the
    accuracy that the harness logged tells which.
    """
    for golds in (list(_by_text(rows, labels)), list(_by_number(rows, labels))):
        logged = [row.get("acc") for _, row in rows]
        agrees = all(
            acc is None or bool(acc) == (gold == best) for acc, gold, best in zip(logged, golds, likeliest, strict=True)
        )
        if None not in golds and agrees:
            return [gold for gold in golds if gold is not None]
    for number, row in rows:
        if str(row["target"]).strip() not in labels and label_number(row["target"], len(labels)) is None:
            allowed = f"one of {', '.join(labels)}, or a number from 0 to {len(labels) - 1}"
            raise cell_error(path, number, "target", row["target"], allowed)
    raise DatasetError(
        f"{path}: no reading of the column 'target' gives the accuracy in the column 'acc', neither as a choice's text "
        f"nor as its number among {', '.join(labels)}."
    )


def _by_text(rows: Sequence[tuple[int, Mapping[str, Any]]], labels: Sequence[str]) -> Iterator[int | None]:
    for _, row in rows:
        target = str(row["target"]).strip()
        yield labels.index(target) if target in labels else None


def _by_number(rows: Sequence[tuple[int, Mapping[str, Any]]], labels: Sequence[str]) -> Iterator[int | None]:
    for _, row in rows:
        yield label_number(row["target"], len(labels))
