"""Lock folders of prompts and scores, which several runs may share: only one process at a time writes to each."""

import time
from contextlib import AbstractContextManager
from pathlib import Path

import filelock

from evaluator.errors import WriteError
from evaluator.files.locks import acquire_lock
from evaluator.files.whole import remove_partial_files
from evaluator.progress import Progress, Stage

SECONDS_BETWEEN_TRIES = 0.2


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
