"""Act before every change of a file in a folder: kill or stop the process, or refuse the change.

CPython's audit hooks (PEP 578) announce opening, renaming and removing of files. So only os.fsync, for which there is
no audit event, has to be replaced.
"""

import errno
import os
import resource
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

Act = Callable[[int, str, str], None]
"""Function that is called before an event, with its number (from 1), its name and the path."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir"}


def watch(folder: Path, act: Act) -> None:
    """Call `act` before every change of a file in a folder, until this process ends."""
    numbers, prefix, sync = count(1), str(folder), os.fsync

    def announce(event: str, path: str) -> None:
        if path.startswith(prefix):
            act(next(numbers), event, path)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not (isinstance(flags, int) and flags & _WRITING):
                return
        elif event in _CHANGES:
            path = arguments[0]
        else:
            return
        if isinstance(path, str | bytes | os.PathLike):
            announce(event, os.fsdecode(path))

    def announced_sync(descriptor: int) -> None:
        announce("os.fsync", os.readlink(f"/proc/self/fd/{descriptor}"))
        sync(descriptor)

    os.fsync = announced_sync  # type: ignore[assignment]
    sys.addaudithook(hook)


def signal_at(number: int, which: signal.Signals) -> Act:
    """Return an Act that sends a signal to the current process before the event with this number."""

    def act(event_number: int, _event: str, _path: str) -> None:
        if event_number == number:
            os.kill(os.getpid(), which)

    return act


def refuse_at(number: int, code: int, *, for_good: bool) -> Act:
    """Return an Act that fails the event with this number, and with `for_good` all later events.

    Args:
        number: number of the event.
        code: error code of the OSError, for example errno.ENOSPC.
        for_good: whether later events fail too.
    """

    def act(event_number: int, _event: str, path: str) -> None:
        if event_number == number or (for_good and event_number > number):
            raise OSError(code, os.strerror(code), path)

    return act


REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES, errno.EROFS)


def limit_file_bytes(n_bytes: int, *, kill: bool) -> None:
    """Limit the size of files that this process writes: a larger write kills the process, or fails with EFBIG."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if kill else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))
