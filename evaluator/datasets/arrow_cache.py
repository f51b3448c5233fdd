"""Cache converted tables as Arrow files, which are memory mapped."""

import hashlib
import logging
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from evaluator.config import cache_folder
from evaluator.errors import DatasetError

logger = logging.getLogger(__name__)


def cached_table(key: str, convert: Callable[[], pa.Table]) -> pa.Table:
    """Return the table cached under `key`; if there is none, call `convert` and cache its result.

    The key must change with everything that determines the rows. A file's name ends in the digest of its bytes, so a
    damaged file is detected before it is parsed, and replaced. Several processes may convert at once: each writes the
    same bytes, completely or not at all.

    Raises DatasetError if the folder cannot be read or written.
    """
    folder = cache_folder() / "datasets"
    try:
        table = _cached(folder, key)
        if table is None:
            table = convert()
            _write(folder, key, table)
    except OSError as error:
        raise DatasetError(
            f"Cannot write converted datasets to {folder}: {error}. Set EVALUATOR_CACHE to a folder with space."
        ) from error
    return table


def _cached(folder: Path, key: str) -> pa.Table | None:
    for path in sorted(folder.glob(f"{key}.*.arrow")):
        content = _map(path)
        if path.name == _file_name(key, content):
            return pa.ipc.open_file(content).read_all()
        logger.warning("%s has changed since it was written; the dataset is converted again.", path)
    return None


def _map(path: Path) -> pa.Buffer:
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()


def _write(folder: Path, key: str, table: pa.Table) -> None:
    content = pa.BufferOutputStream()
    with pa.ipc.new_file(content, table.schema) as writer:
        writer.write_table(table)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{key}.{uuid.uuid4().hex}"
    try:
        with temporary.open("xb") as file:
            file.write(content.getvalue())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(folder / _file_name(key, content.getvalue()))
    finally:
        temporary.unlink(missing_ok=True)


def _file_name(key: str, content: pa.Buffer) -> str:
    return f"{key}.{hashlib.sha256(content).hexdigest()}.arrow"
