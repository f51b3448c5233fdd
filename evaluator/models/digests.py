"""Digests of large files, remembered: reading gigabytes of weights once is enough while they do not change."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evaluator.config import cache_folder


def fingerprint(parts: Mapping[str, str]) -> str:
    """SHA-256 of named strings, whatever their order."""
    return hashlib.sha256(json.dumps(dict(sorted(parts.items()))).encode()).hexdigest()


def file_digests(files: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of each file by its name; several files are read at once."""
    files = list(files)
    with ThreadPoolExecutor() as pool:  # hashing releases the interpreter's lock
        return dict(zip((file.name for file in files), pool.map(_remembered_digest, files), strict=True))


def _remembered_digest(file: Path) -> str:
    status = file.stat()
    identity = fingerprint(
        {"path": str(file.resolve()), "size": str(status.st_size), "modified": str(status.st_mtime_ns)}
    )
    remembered = cache_folder() / "digests" / identity
    if remembered.is_file():
        return remembered.read_text(encoding="ascii")
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    remembered.parent.mkdir(parents=True, exist_ok=True)
    unfinished = remembered.with_name(f".{identity}-{digest}")
    unfinished.write_text(digest, encoding="ascii")
    unfinished.replace(remembered)
    return digest
