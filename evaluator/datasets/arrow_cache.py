"""Tables converted once and kept as Arrow files, memory mapped ever after."""

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
    """The table kept under `key`, or made by `convert` and kept; the key must change with whatever decides the rows.

    A file's name ends in the digest of its bytes, so a damaged one is known before it is parsed, and made anew. Many
    processes may convert at once: each writes the same bytes, whole or not at all.

    Raises DatasetError where the folder cannot be read or written.
    """
    folder = cache_folder() / "datasets"
    try:
        table = _kept(folder, key)
        if table is None:
            table = convert()
            _keep(folder, key, table)
    except OSError as error:
        raise DatasetError(
            f"Cannot keep converted datasets in {folder}: {error}. Set EVALUATOR_CACHE to a folder with space."
        ) from error
    return table


def _kept(folder: Path, key: str) -> pa.Table | None:
    for path in sorted(folder.glob(f"{key}.*.arrow")):
        content = _map(path)
        if path.name == _file_name(key, content):
            return pa.ipc.open_file(content).read_all()
        logger.warning("%s does not hold what was written there; the dataset is converted again.", path)
    return None


def _map(path: Path) -> pa.Buffer:
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()


def _keep(folder: Path, key: str, table: pa.Table) -> None:
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
