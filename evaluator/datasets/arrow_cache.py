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

DIGEST = b"sha256 of the rows"


def cached_table(key: str, convert: Callable[[], pa.Table]) -> pa.Table:
    """The table kept under `key`, made by `convert` where there is none; the key changes with whatever decides the rows.

    A damaged file is made anew. Many processes may convert at once: each writes the same bytes, whole or not at all.
    Raises DatasetError where the folder cannot be written.
    """
    folder = cache_folder() / "datasets"
    path = folder / f"{key}.arrow"
    if path.exists():
        table = _read_whole(path)
        if table is not None:
            return table
        logger.warning("%s does not hold what was written there; it is made again.", path)
    table = convert()
    try:
        _write(path, table)
    except OSError as error:
        raise DatasetError(
            f"Cannot keep the converted dataset in {folder}: {error}. Set EVALUATOR_CACHE to a folder with space."
        ) from error
    return table


def _read_whole(path: Path) -> pa.Table | None:
    """The memory-mapped table, or None where its rows are not those that were written."""
    try:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        table.validate()
    except (pa.ArrowException, OSError):
        return None
    written = (table.schema.metadata or {}).get(DIGEST)
    return table if written == _digest(table) else None


def _write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = table.combine_chunks().replace_schema_metadata({DIGEST: _digest(table)})
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _digest(table: pa.Table) -> bytes:
    """Of the rows as Arrow writes them, lengths included; about a millisecond a megabyte."""
    digest = hashlib.sha256()
    for batch in table.to_batches():
        digest.update(batch.serialize())
    return digest.hexdigest().encode()
