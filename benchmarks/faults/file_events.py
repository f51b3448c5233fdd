"""Announce every change of files in a folder before it happens, and act then: kill the process, stop it, or refuse.

CPython announces opening, renaming and removing (PEP 578, audit hooks), so nothing of the evaluator has to be replaced
but os.fsync, which it does not announce.
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
"""Called with the number of an event from 1, its name and the path, before it happens."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir"}


def watch(folder: Path, act: Act) -> None:
    """Call `act` before each change below a folder, until this process ends."""
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
    """Return an act that sends a signal to its own process before an event."""

    def act(event_number: int, _event: str, _path: str) -> None:
        if event_number == number:
            os.kill(os.getpid(), which)

    return act


def refuse_at(number: int, code: int, *, for_good: bool) -> Act:
    """Return an act that fails an event as the system would (errno.ENOSPC), and with `for_good` all later ones."""

    def act(event_number: int, _event: str, path: str) -> None:
        if event_number == number or (for_good and event_number > number):
            raise OSError(code, os.strerror(code), path)

    return act


REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EACCES, errno.EROFS)


def limit_file_bytes(n_bytes: int, *, kill: bool) -> None:
    """Let no file of this process grow beyond so many bytes: the write that would is killed, or fails with EFBIG."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if kill else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, n_bytes))
