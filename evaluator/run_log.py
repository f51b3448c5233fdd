"""DIR/evaluator.log: what was run in a folder and what went wrong, with one line for each event."""

import logging
import shlex
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path

from evaluator.errors import EvaluatorError
from evaluator.redaction import without_secrets

LOG_FILE = "evaluator.log"


STOPPED_BY: ContextVar[str] = ContextVar("stopped by", default="")
"""Why the process is about to stop, as words: " by SIGTERM"."""

_WORDS: ContextVar[Sequence[str] | None] = ContextVar("words", default=None)


@contextmanager
def started_as(words: Sequence[str]) -> Iterator[None]:
    """Record what happens in this context as the command of these words, whatever started the process."""
    token = _WORDS.set(words)
    try:
        yield
    finally:
        _WORDS.reset(token)


def command_line() -> str:
    """The command that is at work, by default the one this process was started with, as it can be typed again, without
    secrets.
    """
    words = _WORDS.get()
    # Each word first: quotes of a shell would divide a secret that holds one.
    typed = map(without_secrets, ["evaluator", *(sys.argv[1:] if words is None else words)])
    return without_secrets(shlex.join(typed))


def now() -> str:
    """The time, as the record and the log have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def seconds_since(clock: float) -> float:
    """The seconds since a time of time.monotonic(), as the record has them: to the millisecond."""
    return round(time.monotonic() - clock, 3)


@contextmanager
def writing_log(out: Path) -> Iterator[None]:
    """Log in a folder: the command, every warning of this package meanwhile, and how it ended."""
    log = _LogFile(out / LOG_FILE)
    is_new = not log.path.exists()
    log.line("INFO", f"started: {command_line()}")
    package = logging.getLogger("evaluator")
    package.addHandler(log)
    try:
        yield
    except GeneratorExit:  # whoever drew the progress was stopped
        log.line("ERROR", _stopped())
        raise
    except BaseException as error:
        log.line("ERROR", _said(error))
        with suppress(OSError):
            if is_new and {path.name for path in out.iterdir()} <= {LOG_FILE, ".lock"}:
                log.path.unlink()  # nothing was begun, so that the folder can go
        raise
    else:
        log.line("INFO", "finished")
    finally:
        package.removeHandler(log)


class _LogFile(logging.Handler):
    """Append a line for each warning; in a thread, of this thread alone. A log that cannot be written stops nothing."""

    def __init__(self, path: Path) -> None:
        super().__init__(logging.WARNING)
        self.path, self._thread = path, threading.current_thread()

    def emit(self, record: logging.LogRecord) -> None:
        if self._thread is threading.main_thread() or record.thread == self._thread.ident:
            self.line(record.levelname, record.getMessage())

    def line(self, level: str, message: str) -> None:
        text = " ".join(without_secrets(message).split())
        with suppress(OSError):
            if self.path.exists() and not self.path.is_file():
                return  # a pipe would wait for a reader
            with self.path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{now()} {level} {text}\n")


def _stopped() -> str:
    return f"stopped{STOPPED_BY.get()}: the same command goes on from here"


def _said(error: BaseException) -> str:
    """Return an error in a line; of one that is no message to the user, with the place that it comes from."""
    if isinstance(error, EvaluatorError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return _stopped()
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno}, in {place.name})"
