"""Read examples from a pickle of plain values; refuse a pickle that names any global, without running it."""

import io
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from evaluator.errors import DatasetError

TABLE = pa.schema([("texts", pa.list_(pa.string())), ("gold", pa.int64())])
"""The schema of all rows of a dataset, in the order of its file."""


class _PlainUnpickler(pickle.Unpickler):
    """Unpickles plain values only: these need no globals, and without globals a pickle cannot run code."""

    def __init__(self, content: bytes, path: Path) -> None:
        super().__init__(io.BytesIO(content))
        self._path = path

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise DatasetError(
            f"{self._path}: asks for the global {module_name}.{global_name}, which could run code. Nothing was run. "
            "A dataset file holds lists, strings and numbers only; do not trust this one."
        )

    def persistent_load(self, pid: Any) -> NoReturn:
        raise DatasetError(f"{self._path}: asks for the outside object {pid!r}; do not trust this file.")


def read_examples(content: bytes, path: Path, *, text_fields: Sequence[str], n_labels: int) -> pa.Table:
    """Return a pickled list of (texts, label index) as a TABLE, one row per example.

    Raises DatasetError, naming the file and the row, where the pickle is damaged, asks for a global, or has a row that
    is not one string per text field with a label in range(n_labels).
    """
    rows = _unpickle(content, path)
    if not isinstance(rows, list):
        raise DatasetError(f"{path}: expected a list of examples, found {type(rows).__name__}.")
    for number, row in enumerate(rows):
        if not _is_example(row, len(text_fields), n_labels):
            raise DatasetError(
                f"{path}, row {number}: expected ([{', '.join(text_fields)}], label) with strings and a label "
                f"from 0 to {n_labels - 1}, found {row!r:.200}."
            )
    return pa.table([[texts for texts, _ in rows], [label for _, label in rows]], schema=TABLE)


def _unpickle(content: bytes, path: Path) -> object:
    try:
        return _PlainUnpickler(content, path).load()
    except DatasetError:
        raise
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DatasetError(
            f"{path}: not a whole pickle ({type(error).__name__}: {error}). Install it again."
        ) from error


def _is_example(row: object, n_fields: int, n_labels: int) -> bool:
    if not (isinstance(row, tuple) and len(row) == 2):
        return False
    texts, label = row
    return (
        isinstance(texts, list)
        and len(texts) == n_fields
        and all(isinstance(text, str) and _is_unicode(text) for text in texts)
        and type(label) is int  # not a bool
        and 0 <= label < n_labels
    )


def _is_unicode(text: str) -> bool:
    """Return False for lone surrogates, which a pickle can hold but UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
