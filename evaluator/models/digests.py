"""Digests of weight files, kept in the cache folder so that unchanged gigabytes are read only once."""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from evaluator.config import cache_folder
from evaluator.errors import ModelError, StoreError, WriteError
from evaluator.files.json_files import read_json, write_json
from evaluator.files.whole import file_digest, reason

logger = logging.getLogger(__name__)


def combined_digest(parts: Mapping[str, str]) -> str:
    """Return the SHA-256 of named strings, in any order; all 64 hex digits, since models are compared by it."""
    return hashlib.sha256(json.dumps(dict(sorted(parts.items()))).encode()).hexdigest()


def file_digests(files: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of each file by its name, reading several files at once."""
    files = list(files)
    with ThreadPoolExecutor() as pool:  # hashing releases the interpreter's lock
        return dict(zip((file.name for file in files), pool.map(_cached_digest, files), strict=True))


def _cached_digest(file: Path) -> str:
    """Return the SHA-256 of a file, cached by its path, size and time of modification.

    Raises ModelError where it cannot be read.
    """
    try:
        return _known_digest(file)
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {reason(error)}.") from error


def _known_digest(file: Path) -> str:
    status = file.stat()
    identity = combined_digest(
        {"path": str(file.resolve()), "size": str(status.st_size), "modified": str(status.st_mtime_ns)}
    )
    cached = cache_folder() / "digests" / f"{identity}.json"
    with suppress(StoreError):  # a damaged one is written again
        if known := read_json(cached):
            return str(known["file"])
    digest = file_digest(file)
    try:
        write_json(cached, {"file": digest})
    except WriteError as error:
        logger.warning("%s The weights are read again by the next run.", error)
    return digest
