"""Write files that are whole or absent; read, scan and measure regular files alone.

Lock a folder for one writer at a time.
"""

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

if TYPE_CHECKING:  # so that commands that need no table, such as --help, do not wait for polars
    import polars as pl

ROWS_PER_GROUP = 122_880
"""Rows that are compressed together, in tables that need not fit into memory: the number that Polars aims at."""

PARTIAL = ".partial"
"""Ending of a file that is still being written. Its writer holds a lock on it, so that one without is a dead one's."""


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file for writing; once it is complete and on disk, rename it to `path`.

    A process killed at any moment leaves the old file or the new one, never a part. Two writers at once do not disturb
    each other: the last one's file stays.

    Raises WriteError where the file cannot be written: no space, no permission, a folder in its place.
    """
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}{PARTIAL}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("xb") as file:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            with system_errors():
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
def system_errors() -> Iterator[None]:
    """Raise the OSError behind an error of Polars' Parquet writer, which has its number only in its text."""
    try:
        yield
    except Exception as error:
        stated = re.search(r"underlying IO error: .*\(os error (\d+)\)", str(error))
        if stated is None:
            raise
        code = int(stated[1])
        raise OSError(code, os.strerror(code)) from error


_UNABLE = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK}
"""What file systems answer that have no locks or flush no folders, as many network shares."""


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
"""Folders of a run and of its prompts and scores in which files are written, as patterns."""


def remove_partial_files(folder: Path, *patterns: str) -> None:
    """Remove unfinished files of killed writers in a folder and in matching folders below it; files in writing stay."""
    for path in dead_partial_files(folder, *patterns):
        with suppress(OSError):  # another process may have removed it
            path.unlink()


def dead_partial_files(folder: Path, *patterns: str) -> Iterator[Path]:
    """Yield the files that killed writers left in matching folders, this one and those below it, sorted.

    Without a pattern, the places in which runs write. Files in writing and in other folders are left out.
    """
    name = f".*.{'[0-9a-f]' * 8}{PARTIAL}"
    for path in sorted({path for each in patterns or WRITTEN_IN for path in folder.glob(f"{each}{name}")}):
        with suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails where a process writes it
            yield path


def reason(error: OSError) -> str:
    """Return the system's description of a failure, without the path: "No space left on device"."""
    return error.strerror or str(error) or type(error).__name__


def table_path(out: Path, name: str) -> Path:
    """Return the path of a table of a run."""
    return out / "tables" / f"{name}.parquet"


def write_table(out: Path, name: str, table: "pl.DataFrame | pl.LazyFrame") -> str:
    """Write OUT/tables/NAME.parquet, whole or not at all. Returns the SHA-256 of its bytes.

    Rows of a scan need not fit into memory. Equal rows give equal bytes.
    """
    import polars as pl

    path, rows = table_path(out, name), table.rechunk().lazy() if isinstance(table, pl.DataFrame) else table
    with replacing(path) as file:
        rows.sink_parquet(file, compression="zstd", row_group_size=ROWS_PER_GROUP)
    return file_digest(path)


def remove_tables(out: Path, earlier: Mapping[str, str], written: Collection[str]) -> None:
    """Remove tables that are not written any more, as far as they are still as they were recorded.

    Args:
        out: folder of a run or a comparison.
        earlier: recorded name of a table -> SHA-256.
        written: names of the tables that stay.
    """
    for name in earlier.keys() - written:
        path = table_path(out, name)
        with suppress(OSError):  # it is missing
            if file_digest(path) == earlier[name]:
                path.unlink()


# First characters at which spreadsheets take a text for a formula; the last four are the wide forms of the first.
_FORMULA = re.compile(r"^([=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20])")


def csv_text(table: "pl.DataFrame") -> str:
    """Return a table as CSV. A text that a spreadsheet would take for a formula, also as a name, has a ' before it."""
    import polars as pl

    texts = [name for name, kind in table.schema.items() if kind in (pl.String, pl.Categorical, pl.Enum)]
    guarded = pl.col(texts).cast(pl.String).str.replace(_FORMULA.pattern, "'${1}")
    return table.with_columns(guarded).rename(lambda name: _FORMULA.sub(r"'\1", name)).write_csv()


def write_bytes(path: Path, content: bytes | memoryview) -> str:
    """Write a file, replacing it at once. Returns the SHA-256 of its bytes."""
    with replacing(path) as file:
        file.write(content)
    return hashlib.sha256(content).hexdigest()


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes. Raises OSError as require_regular does."""
    require_regular(path)
    return path.read_bytes()


def require_regular(path: Path) -> None:
    """Raise OSError for a pipe or device, from which a read may never return."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(None, "it is no regular file", str(path))


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, 64 hex digits. Raises OSError as read_bytes does."""
    require_regular(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def scan_parquet(path: Path) -> "pl.LazyFrame":
    """Scan a Parquet file. Polars alone takes `[`, `*` and `?` in a path for a pattern, and then finds no file."""
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
        if isinstance(error, OSError) and error.errno not in _UNABLE:
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
