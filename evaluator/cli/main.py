"""The command line: the group of commands, error messages and exit codes.

Exit codes: 0 for success, 2 for a mistake that the user can fix (3 in the command gate, whose outcomes are 0, 1 and 2),
130 for Ctrl-C (a third one ends the process at once), 143 for SIGTERM. Heavy imports are inside the commands,
so that `--help` answers at once.
"""

import _thread
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO, cast

import click

from evaluator import __version__
from evaluator.cli import runs, stages
from evaluator.cli.terminal import LossyStream, echo
from evaluator.errors import ConfigError, EvaluatorError, is_panic
from evaluator.process import ensure_home
from evaluator.redaction import without_secrets
from evaluator.run_log import STOPPED_BY, command_line

INTERRUPTED = {signal.SIGINT: 130, signal.SIGTERM: 143}
"""Exit codes of Ctrl-C and of SIGTERM, which job schedulers send."""

OTHER_TOOLS_OPTIONS = {
    "--limit": "--queries", "--num_fewshot": "--shots", "--num-fewshot": "--shots", "--fewshot": "--shots",
    "--tasks": "--datasets", "--apply_chat_template": "--chat-template",
    "--output_path": "--out", "--output": "--out",
}  # fmt: skip
"""Options of other evaluators, as they are called here."""

ALL_ANEW = {"doctor", "coherence", "receipt"}  # commands whose scores are in memory until they end
SECONDS_BEFORE_REPEATING = 0.02  # a Ctrl-C that came within a destructor, which is over by then


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__)
def cli() -> None:
    """Evaluate how well a language model classifies in context."""


for command in (*stages.COMMANDS, *runs.COMMANDS):
    cli.add_command(command)


def main() -> None:
    """Run the command that was typed; print errors of the user as one message and exit with a code (see above)."""
    interrupts: list[int] = []
    stderr = sys.stderr
    if stderr is not None:
        sys.stderr = cast(TextIO, LossyStream(stderr))  # progress and notes that nobody reads end no run
    try:
        with _noting(interrupts):
            status = _status(interrupts)
    except KeyboardInterrupt:  # a second one, while the first was answered
        status = _exit_code(interrupts)
    finally:
        sys.stderr = stderr
    sys.exit(status)


def _status(interrupts: list[int]) -> int:
    """Run the command, print the error that stopped it, and return the exit code."""
    notes = _Notes(logging.WARNING)
    logging.getLogger("evaluator").addHandler(notes)
    try:
        _require_unicode(sys.argv)
        ensure_home()
        status: int = cli.main(standalone_mode=False)
        return status
    except (click.exceptions.Abort, KeyboardInterrupt):
        return _interrupted(interrupts)
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption) and error.option_name in OTHER_TOOLS_OPTIONS:
            hint = f"Did you mean {OTHER_TOOLS_OPTIONS[error.option_name]!r}?"
            error = click.NoSuchOption(error.option_name, f"{error.message} {hint}", ctx=error.ctx)
        shown = io.StringIO()
        error.show(shown)
        echo(shown.getvalue().rstrip("\n"), err=True)
        return _mistake()
    except BaseException as error:
        if interrupts:  # within a library, which made another error of it: Polars a TypeError, where it prints a type
            return _interrupted(interrupts)
        message = _message(error)
        if message is None:
            raise
        echo(f"Error: {without_secrets(message)}", err=True)
        return _mistake()
    finally:
        logging.getLogger("evaluator").removeHandler(notes)


@contextmanager
def _noting(interrupts: list[int]) -> Iterator[None]:
    """Append to a list whenever Ctrl-C or SIGTERM raises KeyboardInterrupt: twice at most, a third ends the process."""

    def note(number: int, _frame: Any) -> None:
        if os.getpid() != process:  # a child inherits this function, and is to end as if there were none
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        interrupts.append(number)
        if number == signal.SIGTERM:
            STOPPED_BY.set(" by SIGTERM")
        if len(interrupts) == 2:
            for each in before:
                signal.signal(each, signal.SIG_DFL)
        raise KeyboardInterrupt

    def raise_again(unraisable: Any) -> None:
        """Repeat an interrupt that was raised within a destructor or a callback, where Python prints and drops it."""
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            threading.Timer(SECONDS_BEFORE_REPEATING, _thread.interrupt_main, interrupts[-1:]).start()
        else:
            hook(unraisable)

    process, hook = os.getpid(), sys.unraisablehook
    # A shell script starts what it does not wait for with SIGINT ignored; SIGTERM stops it with a message nevertheless.
    usual = (signal.default_int_handler, signal.SIG_DFL)
    before = {each: handler for each in INTERRUPTED if (handler := signal.getsignal(each)) in usual}
    is_foreign = signal.getsignal(signal.SIGINT) not in (*usual, signal.SIG_IGN)
    if is_foreign or threading.current_thread() is not threading.main_thread():
        yield
        return
    for each in before:
        signal.signal(each, note)
    sys.unraisablehook = raise_again
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        sys.unraisablehook = hook


def _require_unicode(words: Sequence[str]) -> None:
    """Raise ConfigError for an argument whose bytes are no text: no file that a run writes could hold it."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            if sys.getfilesystemencoding() != "utf-8":
                raise ConfigError(
                    f"Python was told that texts are {sys.getfilesystemencoding()} here, and the argument "
                    f"{os.fsencode(word)!r} is not. Set LC_ALL=C.UTF-8, or PYTHONUTF8=1."
                ) from None
            raise ConfigError(f"The argument {os.fsencode(word)!r} is not UTF-8. Rename the file or folder.") from None


class _Notes(logging.Handler):
    """Warnings of this package, a line each on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        echo(f"Note: {without_secrets(record.getMessage())}", err=True)


def _message(error: BaseException) -> str | None:
    """Return the message for an error that the user can fix, or None for a fault of this program."""
    if isinstance(error, EvaluatorError):
        return str(error)
    if isinstance(error, OSError):  # whatever a disk can do that no other place has foreseen
        return f"{error}. What was finished is kept: see to the file, and run the same command again."
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return "This machine lets no further thread start. Raise its limit (ulimit -u; of a container, --pids-limit)."
    if isinstance(error, MemoryError):
        return f"The memory is not enough ({error}). Evaluate less at once (--queries, --datasets), or a smaller model."
    if is_panic(error):  # on bytes that changed after they were verified
        return f"A file changed while it was read ({error}). Run `evaluator verify DIR`, which says which one it is."
    return None


def _mistake() -> int:
    """Return the exit code of a mistake, which gate does not use for an outcome; of `gate --watch` it is 2."""
    is_watch = any(word.partition("=")[0] == "--watch" for word in sys.argv)
    return runs.MISTAKE_IN_GATE if sys.argv[1:2] == ["gate"] and not is_watch else 2


def _interrupted(interrupts: Sequence[int]) -> int:
    """Print how to go on, and return the exit code."""
    told = "This begins again" if ALL_ANEW & {*sys.argv[1:2]} else "What was scored is kept; this goes on from there"
    echo(f"\nStopped{STOPPED_BY.get()}. {told}:\n  {command_line()}", err=True)
    return _exit_code(interrupts)


def _exit_code(interrupts: Sequence[int]) -> int:
    """Return the exit code of the first signal; of Ctrl-C where a library has caught the signal."""
    return INTERRUPTED[signal.Signals(interrupts[0])] if interrupts else INTERRUPTED[signal.SIGINT]
