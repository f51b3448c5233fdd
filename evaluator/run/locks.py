"""Locks between processes: one writer for each folder."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import filelock

from evaluator.progress import Progress, Stage

SECONDS_BETWEEN_TRIES = 0.2


def held(folder: Path) -> Stage[AbstractContextManager[None]]:
    """Wait until no other run writes to a folder of shared data, and hold its lock.

    Use what is returned in a `with` statement, which gives the lock back.

    The lock is a file next to the folder, so that what is in it stays a function of the run.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(folder.with_name(f".{folder.name}.lock"))
    while True:
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            yield Progress(stage="Waiting for another run that writes the same data", done=0, total=1, unit="runs")
            time.sleep(SECONDS_BETWEEN_TRIES)
        else:
            return _releasing(lock)


@contextmanager
def _releasing(lock: filelock.BaseFileLock) -> Iterator[None]:
    try:
        yield
    finally:
        lock.release()
