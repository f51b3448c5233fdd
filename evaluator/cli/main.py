"""The command line: the group of commands, error messages and exit codes.

Exit codes: 0 for success, 2 for a mistake that the user can fix (3 in the command `gate`, whose outcomes are 0, 1 and
2), 130 for Ctrl-C, 143 for SIGTERM; some commands return 1 for a negative result. A third Ctrl-C ends the process at
once. Slow imports are inside the commands, so that `--help` answers at once.
"""

import _thread
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
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
"""Exit codes after Ctrl-C and after SIGTERM, which job schedulers send."""

OTHER_TOOLS_OPTIONS = {
    "--limit": "--queries", "--num_fewshot": "--shots", "--num-fewshot": "--shots", "--fewshot": "--shots",
    "--tasks": "--datasets", "--apply_chat_template": "--chat-template",
    "--output_path": "--out", "--output": "--out",
}  # fmt: skip
"""Options of other evaluators -> the same options here, for hints in error messages."""

ALL_ANEW = {"doctor", "coherence", "receipt"}  # commands that keep scores only in memory: a stopped one begins again
SECONDS_BEFORE_REPEATING = 0.02  # delay before an interrupt lost in a destructor is raised again: time for it to end


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__)
def cli() -> None:
    """Evaluate how well a language model classifies in context."""


for command in (*stages.COMMANDS, *runs.COMMANDS):
    cli.add_command(command)


def main() -> None:
    """Run the command line, print a user's error as one message, and exit with a code of the module's docstring."""
    interrupts: list[int] = []
    # A closed standard error must not end a run; without one, it is None.
    lossy = redirect_stderr(sys.stderr and cast(TextIO, LossyStream(sys.stderr)))
    try:
        with lossy, _noting(interrupts):
            status = _status(interrupts)
    except KeyboardInterrupt:  # a second Ctrl-C, while the first was handled
        status = _exit_code(interrupts)
    for name in ("stdout", "stderr"):
        try:
            if stream := getattr(sys, name):
                stream.flush()
        except (OSError, ValueError):  # what a lost stream still holds: Python would try again, and exit with 120
            setattr(sys, name, None)
            if name == "stdout":
                status = status or 2
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
        if interrupts:  # a library turned the interrupt into another error, as Polars into a TypeError
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
    """Raise KeyboardInterrupt for Ctrl-C and SIGTERM while the context is open, and append the signal to `interrupts`.

    After two signals the default handlers are restored, so that a third one ends the process.
    """

    def note(number: int, _frame: Any) -> None:
        if os.getpid() != process:  # a child process inherits this handler: apply the default action instead
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
        """Raise an interrupt again that was raised in a destructor or callback, where Python prints and drops it."""
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            threading.Timer(SECONDS_BEFORE_REPEATING, _thread.interrupt_main, interrupts[-1:]).start()
        else:
            hook(unraisable)

    process, hook = os.getpid(), sys.unraisablehook
    # Only default handlers are replaced. A shell script starts background commands with SIGINT ignored, and that stays;
    # SIGTERM is handled nevertheless.
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
    """Raise ConfigError for an argument whose bytes are not valid text: no file of a run could store it."""
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
    """Print each warning of this package as a line on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        echo(f"Note: {without_secrets(record.getMessage())}", err=True)


def _message(error: BaseException) -> str | None:
    """Return the message for an error that the user can fix, or None for a fault of this program."""
    if isinstance(error, EvaluatorError):
        return str(error)
    if isinstance(error, OSError):  # a failure of a disk that no other code handles
        return f"{error}. What was finished is kept: see to the file, and run the same command again."
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return "This machine lets no further thread start. Raise its limit (ulimit -u; of a container, --pids-limit)."
    if isinstance(error, MemoryError):
        return f"The memory is not enough ({error}). Evaluate less at once (--queries, --datasets), or a smaller model."
    if is_panic(error):  # mostly because bytes changed after they were verified
        return f"A file changed while it was read ({error}). Run `evaluator verify DIR`, which says which one it is."
    return None


def _mistake() -> int:
    """Return the exit code of a user's mistake: 2, or 3 in `gate` without --watch, where 2 is an outcome."""
    is_watch = any(word.partition("=")[0] == "--watch" for word in sys.argv)
    return runs.MISTAKE_IN_GATE if sys.argv[1:2] == ["gate"] and not is_watch else 2


def _interrupted(interrupts: Sequence[int]) -> int:
    """Print how to resume the command, and return the exit code."""
    told = "This begins again" if ALL_ANEW & {*sys.argv[1:2]} else "What was scored is kept; this goes on from there"
    echo(f"\nStopped{STOPPED_BY.get()}. {told}:\n  {command_line()}", err=True)
    return _exit_code(interrupts)


def _exit_code(interrupts: Sequence[int]) -> int:
    """Return the exit code for the first signal, or for Ctrl-C if no signal was noted because a library caught it."""
    return INTERRUPTED[signal.Signals(interrupts[0])] if interrupts else INTERRUPTED[signal.SIGINT]
