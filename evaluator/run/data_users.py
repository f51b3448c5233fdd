"""Marks in a shared folder of prompts and scores: which runs use it, so that `evaluator clean` knows them all."""

import os
from collections.abc import Iterator
from pathlib import Path

from evaluator.errors import StoreError
from evaluator.files.digests import fingerprint
from evaluator.files.json_files import read_json, write_json

USERS = "users"
"""Folder of the marks. A run's own folder needs none."""


def mark_user(out: Path, data: Path) -> None:
    """Write down that the run in `out` uses the prompts and scores in `data`. Raises WriteError."""
    if is_own(out, data):
        return
    run = os.path.relpath(out.resolve(), data.resolve())
    mark = data / USERS / f"{fingerprint(run)}.json"
    if not mark.exists():
        write_json(mark, {"run": run})


def is_own(out: Path, data: Path) -> bool:
    """Return whether a run's prompts and scores are in its own folder."""
    return out.resolve() == data.resolve()


def marked_users(data: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each mark and the run's folder, which may be gone. Raises StoreError for a mark that cannot be read."""
    for mark in sorted((data / USERS).glob("*.json")):
        content = read_json(mark) or {}
        if not isinstance(content.get("run"), str):
            raise StoreError(f"{mark} names no run.")
        yield mark, Path(os.path.normpath(data.resolve() / content["run"]))
