"""Digests of weight files, kept in the cache folder so that unchanged gigabytes are read only once."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evaluator.config import cache_folder
from evaluator.files import file_digest


def combined_digest(parts: Mapping[str, str]) -> str:
    """Return the SHA-256 of named strings, whatever their order; 64 hex digits, as models are compared by it."""
    return hashlib.sha256(json.dumps(dict(sorted(parts.items()))).encode()).hexdigest()


def file_digests(files: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of each file by its name, several files read at once."""
    files = list(files)
    with ThreadPoolExecutor() as pool:  # hashing releases the interpreter's lock
        return dict(zip((file.name for file in files), pool.map(_remembered_digest, files), strict=True))


def _remembered_digest(file: Path) -> str:
    status = file.stat()
    identity = combined_digest(
        {"path": str(file.resolve()), "size": str(status.st_size), "modified": str(status.st_mtime_ns)}
    )
    remembered = cache_folder() / "digests" / identity
    if remembered.is_file():
        return remembered.read_text(encoding="ascii")
    digest = file_digest(file)
    remembered.parent.mkdir(parents=True, exist_ok=True)
    unfinished = remembered.with_name(f".{identity}-{digest}")
    unfinished.write_text(digest, encoding="ascii")
    unfinished.replace(remembered)
    return digest
