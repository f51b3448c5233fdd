"""Run commands in forked children of a process that has already imported all modules, to save import time per trial.

The parent must never compute with Polars or torch: a child would not have their threads, and would wait for them
forever.
"""

import ctypes
import fcntl
import importlib
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

HANGS_AFTER_S = 600
"""Time limit in seconds, after which a command counts as hanging."""

_PIPE_BYTES = 2**20  # more than any command prints, so that commands never wait for a reader
_SET_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36  # options of prctl(2)


class Outcome(NamedTuple):
    """The result of a command."""

    status: int  # exit code; negative: number of the signal that ended the command
    output: str  # standard output and standard error
    cpu_s: float  # processor time


class Child:
    """A forked child that runs commands one after the other until one fails."""

    def __init__(self, *commands: Sequence[object], prepare: Callable[[], None] | None = None) -> None:
        """Start the child.

        Args:
            commands: sequences of arguments of `evaluator`.
            prepare: called in the child before the first command.
        """
        self._reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become([[*map(str, words)] for words in commands], prepare, writer)
        os.close(writer)

    def cpu_s(self) -> float:
        """Return the processor time that the child has used."""
        return time.clock_gettime((~self.pid << 3) | 2)  # clock id of a process, as clock_getcpuclockid(3) computes it

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless the child has ended."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def send_at(self, number: signal.Signals, cpu_s: float) -> None:
        """Send a signal when the child has used so much processor time, which does not depend on the machine's load."""
        while not self.has_ended() and self.cpu_s() < cpu_s:
            time.sleep(0.001)
        self.send(number)

    def has_ended(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def has_stopped(self) -> bool:
        """Wait until the child stops (SIGSTOP) or ends; return whether it stopped."""
        result = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return result is not None and result.si_code == os.CLD_STOPPED

    def wait(self) -> Outcome:
        """Wait for the end of the child and return its outcome."""
        _, status, used = os.wait4(self.pid, 0)
        with open(self._reader, "rb") as reader:
            output = reader.read().decode(errors="backslashreplace")
        return Outcome(os.waitstatus_to_exitcode(status), output, used.ru_utime + used.ru_stime)


def run(*commands: Sequence[object], prepare: Callable[[], None] | None = None) -> Outcome:
    """Run commands in a forked child until one fails; return the outcome."""
    return Child(*commands, prepare=prepare).wait()


def _become(commands: Sequence[list[str]], prepare: Callable[[], None] | None, writer: int) -> None:
    """Run commands in this process, which is a forked child, and end the process."""
    status = 70
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # as evaluator/__main__.py does
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        os.close(writer)
        end_with_parent()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(HANGS_AFTER_S)
        from evaluator.cli.main import main

        if prepare:
            prepare()
        for words in commands:
            sys.argv, status = ["evaluator", *words], 70
            try:
                main()
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 0
            if status:
                break
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def import_all_of(*commands: Sequence[object]) -> None:
    """Run commands in a child, and import in this process all modules that the child has imported."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def tell(status: int) -> None:
        os.write(writer, "\n".join(sys.modules).encode())
        os.close(writer)
        ended(status)

    ended = os._exit

    def prepare() -> None:
        os._exit = tell  # type: ignore[assignment]

    outcome = run(*commands, prepare=prepare)
    os.close(writer)
    with open(reader, encoding="utf-8") as names:
        modules = names.read().split("\n")
    if outcome.status:
        raise SystemExit(f"An undisturbed command ended with {outcome.status}:\n{outcome.output}")
    for name in modules:
        with suppress(Exception):  # some entries of sys.modules are created at run time and cannot be imported
            importlib.import_module(name)


def end_with_parent() -> None:
    """Let the system kill this process when its parent ends, so that no process outlives the campaign."""
    ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


def adopt_orphans() -> None:
    """Make this process the parent of processes that its children leave running, so that they can be counted."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1)


def left_running() -> list[int]:
    """Return the process ids of the children of this process."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
