"""Lock a folder for one writer at a time."""

import errno
import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import filelock

from evaluator.errors import ConfigError, OutputInUseError
from evaluator.files.whole import remove_partial_files
from evaluator.run_log import writing_log

_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
"""What file systems without locks answer."""

logger = logging.getLogger(__name__)


def acquire_lock(path: Path) -> AbstractContextManager[None]:
    """Acquire a lock file; the context that is returned releases it. A process that is killed releases it too.

    If the context ends with an error, the file and those folders made for it that are still empty are removed. On a
    file system without locks nothing is locked, and a warning says so.

    Raises filelock.Timeout, which is an OSError, while another process holds the lock; OSError where no file can be.
    """
    new_folders = [folder for folder in path.parents if not folder.exists()]  # innermost first
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path)
    try:
        lock.acquire(blocking=False)
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in _NO_LOCKS:
            raise
        logger.warning("%s is on a file system without locks: let one process at a time write there.", path.parent)
    return _released_after(lock, [path, *new_folders])


@contextmanager
def _released_after(lock: filelock.BaseFileLock, created: Sequence[Path]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):  # a folder that is no longer empty stays, and so do those around it
            for path in created:
                path.rmdir() if path.is_dir() else path.unlink()
        raise
    finally:
        with suppress(OSError):  # the folder may be gone
            lock.release()


@contextmanager
def writing_to(out: Path) -> Iterator[None]:
    """Lock an output folder, made if it is missing, against other processes until the context ends.

    What happens meanwhile is logged in the folder (run_log.LOG_FILE), and what a killed process left half written in
    it is removed.

    Raises OutputInUseError while another process writes to it, ConfigError if it cannot be written to.
    """
    try:
        lock = acquire_lock(out / ".lock")
    except filelock.Timeout as error:
        raise OutputInUseError(
            f"Another process is writing to {out}. Wait for it, stop it, or choose another folder with --out."
        ) from error
    except OSError as error:
        raise ConfigError(f"{out} cannot be written to: {error}. Choose another folder with --out.") from error
    with lock:
        remove_partial_files(out)
        with writing_log(out):
            yield


def lock_holder(path: Path) -> int | None:
    """Return the process that holds a lock file, 0 if it cannot be seen from here, or None if none holds it.

    /proc/locks lists all locks by inode. Nothing is locked, so that no run that begins just now is disturbed.
    """
    try:
        inode = path.stat().st_ino
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in locks:
        words = line.split()
        if "->" not in words and len(words) > 5 and words[1] == "FLOCK" and words[5].endswith(f":{inode}"):
            return max(int(words[4]), 0)
    return None
