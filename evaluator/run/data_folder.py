"""The folder of prompts, tokens and scores, which several runs may share: its locks, and the runs that use it."""

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import filelock

from evaluator.errors import StoreError, WriteError
from evaluator.files.digests import fingerprint
from evaluator.files.json_files import read_json, write_json
from evaluator.files.locks import acquire_lock
from evaluator.files.whole import remove_partial_files
from evaluator.progress import Progress, Stage

SECONDS_BETWEEN_TRIES = 0.2

USERS = "users"
"""Folder of marks in a data folder: which runs use it. A run's own folder needs none."""


def lock_path(folder: Path) -> Path:
    """Return the lock file of a folder of prompts, tokens or scores: next to it, as it holds nothing but results."""
    return folder.with_name(f".{folder.name}.lock")


def lock_folder(folder: Path) -> Stage[AbstractContextManager[None]]:
    """Wait until no other run writes to a folder, and return a context that keeps it locked.

    What a killed process left half written in the folder, or in others that begin with its name, is removed.

    Raises WriteError where there can be no lock.
    """
    while True:
        try:
            lock = acquire_lock(lock_path(folder))
        except (filelock.Timeout, FileNotFoundError):  # a run that fails just now can remove the folder
            yield Progress(stage="Waiting for another run that writes the same data", done=0, total=1, unit="runs")
            time.sleep(SECONDS_BETWEEN_TRIES)
        except OSError as error:
            raise WriteError(
                f"{folder} cannot be written to: {error}. Choose another folder with --store or --out."
            ) from error
        else:
            remove_partial_files(folder.parent, "", f"{folder.name}*/")
            return lock


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
