"""Digests of weight files, kept in the cache folder so that unchanged gigabytes are read only once."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evaluator.config import cache_folder
from evaluator.files import file_digest


def combined_digest(parts: Mapping[str, str]) -> str:
    """Return the SHA-256 of named strings, in any order; all 64 hex digits, since models are compared by it."""
    return hashlib.sha256(json.dumps(dict(sorted(parts.items()))).encode()).hexdigest()


def file_digests(files: Iterable[Path]) -> dict[str, str]:
    """Return the SHA-256 of each file by its name, reading several files at once."""
    files = list(files)
    with ThreadPoolExecutor() as pool:  # hashing releases the interpreter's lock
        return dict(zip((file.name for file in files), pool.map(_cached_digest, files), strict=True))


def _cached_digest(file: Path) -> str:
    """Return the SHA-256 of a file, cached by its path, size and time of modification."""
    status = file.stat()
    identity = combined_digest(
        {"path": str(file.resolve()), "size": str(status.st_size), "modified": str(status.st_mtime_ns)}
    )
    cached = cache_folder() / "digests" / identity
    if cached.is_file():
        return cached.read_text(encoding="ascii")
    digest = file_digest(file)
    cached.parent.mkdir(parents=True, exist_ok=True)
    unfinished = cached.with_name(f".{identity}-{digest}")
    unfinished.write_text(digest, encoding="ascii")
    unfinished.replace(cached)
    return digest
