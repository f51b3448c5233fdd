"""Write DIR/evaluator.log: the commands that were run in a folder and their warnings and errors, one event a line."""

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
"""The cause of an interruption, for messages: " by SIGTERM"; "" for Ctrl-C."""

_WORDS: ContextVar[Sequence[str] | None] = ContextVar("words", default=None)
"""Words of the command that started_as sets; None: the words of this process's command line."""


@contextmanager
def started_as(words: Sequence[str]) -> Iterator[None]:
    """Make command_line return the command with these words, while the context is open."""
    token = _WORDS.set(words)
    try:
        yield
    finally:
        _WORDS.reset(token)


def command_line() -> str:
    """Return the running command as it can be typed again, without secrets.

    It is the command line of this process, unless started_as sets another one.
    """
    words = _WORDS.get()
    # Every word is cleaned before the words are joined: shell quoting would split a secret that contains a quote.
    typed = map(without_secrets, ["evaluator", *(sys.argv[1:] if words is None else words)])
    return without_secrets(shlex.join(typed))


def now() -> str:
    """Return the time in ISO 8601, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def seconds_since(clock: float) -> float:
    """Return the seconds since a time of time.monotonic(), rounded to milliseconds."""
    return round(time.monotonic() - clock, 3)


@contextmanager
def writing_log(out: Path) -> Iterator[None]:
    """Log to a folder, while the context is open: the command, all warnings of this package, and how it ended."""
    log = _LogFile(out / LOG_FILE)
    is_new = not log.path.exists()
    log.line("INFO", f"started: {command_line()}")
    package = logging.getLogger("evaluator")
    package.addHandler(log)
    try:
        yield
    except GeneratorExit:  # the caller of the stage was stopped
        log.line("ERROR", _stopped())
        raise
    except BaseException as error:
        log.line("ERROR", _said(error))
        with suppress(OSError):
            if is_new and {path.name for path in out.iterdir()} <= {LOG_FILE, ".lock"}:
                log.path.unlink()  # the command wrote nothing else: without the log, the new folder can be removed
        raise
    else:
        log.line("INFO", "finished")
    finally:
        package.removeHandler(log)


class _LogFile(logging.Handler):
    """Append a line for each warning; a failure to write is ignored.

    A log that was opened outside the main thread gets only the warnings of its own thread.
    """

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
                return  # opening a pipe would wait for a reader
            with self.path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{now()} {level} {text}\n")


def _stopped() -> str:
    return f"stopped{STOPPED_BY.get()}: the same command goes on from here"


def _said(error: BaseException) -> str:
    """Return a description of an error; for an error that is not a user's mistake, with type, file and line."""
    if isinstance(error, EvaluatorError):
        return str(error)
    if isinstance(error, KeyboardInterrupt):
        return _stopped()
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno}, in {place.name})"
