"""Keep converted tables in the cache: as Arrow files, which are memory mapped, or as any other file."""

import logging
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from evaluator.config import cache_folder
from evaluator.errors import DatasetError, WriteError
from evaluator.files.digests import bytes_digest
from evaluator.files.whole import write_bytes

logger = logging.getLogger(__name__)


def cached_table(key: str, convert: Callable[[], pa.Table]) -> pa.Table:
    """Return the table cached under `key`; if there is none, call `convert` and cache its result.

    The key must change with everything that determines the rows. A file's name ends in the digest of its bytes, so a
    damaged file is detected before it is parsed, and replaced. Several processes may convert at once: each writes the
    same bytes, completely or not at all.

    Raises DatasetError if the folder cannot be written.
    """
    folder = cache_folder() / "datasets"
    for path in sorted(folder.glob(f"{key}.*.arrow")):
        with pa.memory_map(str(path)) as file:
            content = file.read_buffer()
        if path.name == _file_name(key, content):
            return pa.ipc.open_file(content).read_all()
        logger.warning("%s has changed since it was written; the dataset is converted again.", path)
    table = convert()
    stream = pa.BufferOutputStream()
    with pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table)
    content = stream.getvalue()
    write_cached(folder / _file_name(key, content), memoryview(content))
    return table


def _file_name(key: str, content: pa.Buffer) -> str:
    return f"{key}.{bytes_digest(memoryview(content))}.arrow"


def write_cached(path: Path, content: bytes | memoryview) -> None:
    """Write a file of the cache, completely or not at all. Raises DatasetError."""
    try:
        write_bytes(path, content)
    except WriteError as error:
        raise DatasetError(
            f"Cannot keep a converted dataset: {error} Or set EVALUATOR_CACHE to a folder with space."
        ) from error
