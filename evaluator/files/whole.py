"""Write files atomically, read regular files, and lock a folder for one writer at a time."""

import errno
import fcntl
import hashlib
import logging
import os
import re
import stat
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import filelock

from evaluator.errors import ConfigError, OutputInUseError, WriteError
from evaluator.run_log import writing_log

if TYPE_CHECKING:  # not imported at run time, so that commands without tables, such as --help, do not wait for Polars
    import polars as pl

ROWS_PER_GROUP = 122_880
"""Rows of a Parquet row group of tables: the number that Polars aims at."""

PARTIAL = ".partial"
"""Ending of an unfinished file. Its writer holds a lock on it; an unlocked one was left by a killed process."""


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a temporary file for writing, which is flushed to disk and renamed to `path` when the context ends.

    A process killed at any moment leaves the old file or the new file, never a part of it. Two writers at the same time
    do not disturb each other: the file that is renamed last stays.

    Raises WriteError if the file cannot be written: no space, no permission, a folder of the same name.
    """
    short = os.fsdecode(os.fsencode(path.name)[:237])  # the whole name may have 255 bytes
    partial = path.with_name(f".{short}.{uuid.uuid4().hex[:8]}{PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("xb") as file:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            with system_errors(file):
                yield file
            file.flush()
            os.fsync(file.fileno())
            with suppress(OSError):  # some network shares rename no file that is open
                partial.replace(path)
        if partial.exists():
            partial.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        at = error.filename
        about = "" if at is None or str(at) in map(str, (path, partial)) else f": {at}"  # another file is in the way
        raise WriteError(
            f"{path} cannot be written: {reason(error)}{about}. What was there before is unchanged. Make room for it, "
            "or take another folder, and run the same command again."
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


@contextmanager
def system_errors(file: IO[bytes]) -> Iterator[None]:
    """Turn an error of Polars' Parquet writer that a system error caused into this OSError.

    Polars states the error number only in the text, or not at all if the footer cannot be written.
    """
    try:
        yield
    except Exception as error:
        if stated := re.search(r"underlying IO error: .*\(os error (\d+)\)", str(error)):
            raise OSError(int(stated[1]), os.strerror(int(stated[1]))) from error
        if "transport error" in str(error):  # write to the unfinished file once more: the system then says why it fails
            file.write(bytes(2**16))
            file.flush()
        raise


_UNABLE = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK}
"""Error numbers of file systems that have no locks or cannot flush folders, such as many network shares."""


def _sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
    finally:
        os.close(opened)


WRITTEN_IN = ("", "tables/", "exports/", "users/", "store/*/", "store/*/tokens-*/", "scores/*/", "scores/*/*/")
"""Glob patterns of the folders of a run, its prompts and its scores in which files are written."""


def remove_partial_files(folder: Path, *patterns: str) -> None:
    """Remove the files that dead_partial_files yields: unfinished files of killed processes."""
    for path in dead_partial_files(folder, *patterns):
        with suppress(OSError):  # another process may have removed it
            path.unlink()


def dead_partial_files(folder: Path, *patterns: str) -> Iterator[Path]:
    """Yield the unfinished files of killed processes, sorted; files that are being written are left out.

    Args:
        folder: the folder that patterns are relative to.
        patterns: glob patterns of folders, each "" or ending in "/"; without patterns, WRITTEN_IN.
    """
    name = f".*.{'[0-9a-f]' * 8}{PARTIAL}"
    for path in sorted({path for each in patterns or WRITTEN_IN for path in folder.glob(f"{each}{name}")}):
        with suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if a process is writing the file
            yield path


def reason(error: OSError) -> str:
    """Return the system's description of a failure, without the path: "No space left on device"."""
    return error.strerror or str(error) or type(error).__name__


def table_path(out: Path, name: str) -> Path:
    """Return the path OUT/tables/NAME.parquet of a table."""
    return out / "tables" / f"{name}.parquet"


def write_table(out: Path, name: str, table: "pl.DataFrame | pl.LazyFrame") -> str:
    """Write OUT/tables/NAME.parquet atomically, and return the SHA-256 of its bytes.

    Rows of a lazy frame need not fit into memory. Equal rows give equal bytes.
    """
    import polars as pl

    path, rows = table_path(out, name), table.rechunk().lazy() if isinstance(table, pl.DataFrame) else table
    with replacing(path) as file:
        rows.sink_parquet(file, compression="zstd", row_group_size=ROWS_PER_GROUP)
    return file_digest(path)


def remove_tables(out: Path, earlier: Mapping[str, str], written: Collection[str]) -> None:
    """Remove earlier tables that are not among the new ones, unless their files were changed since.

    Args:
        out: folder of a run or a comparison.
        earlier: table name -> recorded SHA-256.
        written: names of the new tables.
    """
    for name in earlier.keys() - written:
        path = table_path(out, name)
        with suppress(OSError):  # the file is missing
            if file_digest(path) == earlier[name]:
                path.unlink()


def write_bytes(path: Path, content: bytes | memoryview) -> str:
    """Write a file, replacing it atomically, and return the SHA-256 of its bytes. Raises WriteError as `replacing`."""
    with replacing(path) as file:
        file.write(content)
    return hashlib.sha256(content).hexdigest()


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes. Raises OSError as require_regular does."""
    require_regular(path)
    return path.read_bytes()


def require_regular(path: Path) -> None:
    """Raise OSError for a missing file, and for anything but a regular file: reading a pipe may never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(None, "it is no regular file", str(path))


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, 64 hex digits. Raises OSError as read_bytes does."""
    require_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def scan_parquet(path: Path) -> "pl.LazyFrame":
    """Scan a Parquet file. Without glob=False, Polars reads `[`, `*` and `?` in a path as a pattern."""
    import polars as pl

    return pl.scan_parquet(path, glob=False)


def size_text(n_bytes: int) -> str:
    """Return a number of bytes with its unit: "1.5 GiB"."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes} bytes"


logger = logging.getLogger(__name__)


def acquire_lock(path: Path) -> AbstractContextManager[None]:
    """Acquire a lock file, and return a context that releases it at its end. A killed process releases it too.

    If the context ends with an error, the lock file is removed, and the folders that were made for it, if they are
    empty. On a file system without locks nothing is locked, and a warning is logged.

    Raises filelock.Timeout, an OSError, if another process holds the lock; OSError if the file cannot be made.
    """
    new_folders = [folder for folder in path.parents if not folder.exists()]  # innermost first
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path)
    try:
        lock.acquire(blocking=False)
    except (OSError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno not in _UNABLE:
            raise
        logger.warning("%s is on a file system without locks: let one process at a time write there.", path.parent)
    return _released_after(lock, [path, *new_folders])


@contextmanager
def _released_after(lock: filelock.BaseFileLock, created: Sequence[Path]) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):  # a folder that is not empty stays, and so do its parents
            for path in created:
                path.rmdir() if path.is_dir() else path.unlink()
        raise
    finally:
        with suppress(OSError):  # the folder may be gone
            lock.release()


@contextmanager
def writing_to(out: Path, *, holds_run: bool = False) -> Iterator[None]:
    """Lock an output folder against other processes until the context ends; a missing folder is made.

    Unfinished files of killed processes are removed, and events are logged in the folder (run_log.LOG_FILE).

    Args:
        out: the folder.
        holds_run: whether the command works on the run in the folder, so that no --out can name another one.

    Raises OutputInUseError if another process writes to the folder, ConfigError if it cannot be written to.
    """
    try:
        lock = acquire_lock(out / ".lock")
    except filelock.Timeout as error:
        ways_out = "or stop it" if holds_run else "stop it, or choose another folder with --out"
        raise OutputInUseError(f"Another process is writing to {out}. Wait for it, {ways_out}.") from error
    except OSError as error:
        way_out = "Make it writable, or copy the run" if holds_run else "Choose another folder with --out"
        raise ConfigError(f"{out} cannot be written to: {error}. {way_out}.") from error
    with lock:
        remove_partial_files(out)
        with writing_log(out):
            yield


def lock_holder(path: Path) -> int | None:
    """Return the id of the process that holds a lock file, 0 if the id is not visible, or None if it is not locked.

    The lock is looked up in /proc/locks, by inode, and not tried, which would disturb a run that is about to start.
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
