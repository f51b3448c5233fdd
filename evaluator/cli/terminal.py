"""Show progress: requests and tokens per second, share of tokens from the cache, time left, and operations per second.

A line is printed every ten seconds, with or without a terminal, also while a stage reports nothing new. A terminal
additionally shows progress bars below these lines, with fewer numbers. A notebook shows a single line that is updated
in place and cleared at the end.
"""

import io
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Event, Lock, Thread
from typing import IO, TYPE_CHECKING, Any, TextIO, TypeVar, cast

import click
import msgspec

from evaluator.files.json_files import to_builtins
from evaluator.progress import Progress, Stage, finish
from evaluator.redaction import all_printable, printable

if TYPE_CHECKING:
    from rich.console import Console  # slow to import

T = TypeVar("T")


def echo(*lines: object, err: bool = False) -> None:
    """Print lines on standard output, or standard error if `err`, with control codes escaped."""
    for line in lines:
        click.echo(printable(str(line)), err=err)


def echo_json(content: object) -> None:
    """Print dataclasses, dictionaries and lists, nested in any way, as indented JSON; NaN and infinity become null."""
    # all_printable also escapes lone surrogates, as in folder names that are not UTF-8: JSON cannot encode them.
    echo(msgspec.json.format(msgspec.json.encode(all_printable(to_builtins(content))), indent=2).decode())


class LossyStream:
    """A wrapper of a stream that drops all output after the first failure, such as a closed pipe or a full disk."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._is_lost = stream, False

    def write(self, text: str) -> int:
        """Write a text, unless a write has failed before; return the length of the text."""
        self._unless_lost(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Write the buffered text."""
        self._unless_lost(self._stream.flush)

    def _unless_lost(self, write: Callable[[], object]) -> None:
        if not self._is_lost:
            try:
                write()
            except (OSError, ValueError):  # ValueError: the stream is closed
                self._is_lost = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


SECONDS_BETWEEN_LINES = 10.0
"""Interval between lines about the same stage."""

SECONDS_BETWEEN_CHECKS = 1.0
"""Interval between checks whether a stage without news needs a line."""


def draw(stage: Stage[T]) -> T:
    """Run a stage to its end, show its progress on standard error, and return its result."""
    from rich.console import Console

    stream = sys.stderr or io.StringIO()  # None: it was closed before the command began
    console = Console(file=cast(IO[str], LossyStream(stream)))
    if console.is_terminal:
        return _draw_bars(stage, console)
    line = _notebook_line() if console.is_jupyter else None
    lines = _Lines(console, ends_are_shown=True, show_line=line)
    try:
        with _repeating(lines), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "IProgress not found")  # from tqdm in notebooks; its bars are not shown
            return finish(stage, lines.show)
    finally:
        if line:
            line("")


def _notebook_line() -> Callable[[str], None]:
    """Show an empty line below the notebook cell, and return a function that sets its text."""
    shown = import_module("IPython.display").display({"text/plain": ""}, raw=True, display_id=True)
    return lambda text: shown.update({"text/plain": printable(text)}, raw=True)


def _draw_bars(stage: Stage[T], console: "Console") -> T:
    from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    title, note = TextColumn("{task.description:20}"), TextColumn("{task.fields[note]}")
    columns = (title, BarColumn(), MofNCompleteColumn(), note, TimeElapsedColumn())
    tasks: dict[str, TaskID] = {}
    lines = _Lines(console, ends_are_shown=False)
    with Bars(*columns, console=console) as bars, _repeating(lines):

        def show(now: Progress) -> None:
            if not now.line:
                if now.stage not in tasks:
                    tasks[now.stage] = bars.add_task(now.stage, total=now.total, note="", completed=now.done)
                bars.update(tasks[now.stage], completed=now.done, total=now.total, note=_note(now))
            lines.show(now)

        return finish(stage, show)


class _Lines:
    """Prints a line every ten seconds while a stage runs and, if `ends_are_shown`, when a stage begins or ends.

    Stages such as loading a model report nothing for minutes. A thread then calls `repeat`, which prints their last
    line with the elapsed time.
    """

    def __init__(
        self, console: "Console", *, ends_are_shown: bool, show_line: Callable[[str], None] | None = None
    ) -> None:
        self._console, self._ends_are_shown = console, ends_are_shown
        self._show_line = show_line or self._print_line
        self._last: Progress | None = None
        self._is_new = False  # whether the last progress has not been printed
        self._began = self._printed = time.monotonic()
        self._lock = Lock()

    def show(self, now: Progress) -> None:
        if now.line:
            self._print_line(now.line)
            return
        with self._lock:
            begins = self._last is None or now.stage != self._last.stage
            self._last, self._is_new = now, not begins
            if begins:
                self._began = self._printed = time.monotonic()
            if self._is_due() or (self._ends_are_shown and (begins or now.done == now.total)):
                self._print(now)

    def repeat(self) -> None:
        """Print the last progress if ten seconds have passed since this stage's last line.

        If this progress was printed before, the elapsed time of the stage is added.
        """
        with self._lock:
            if self._last and self._is_due():
                self._print(self._last, "" if self._is_new else f", {_clock(time.monotonic() - self._began)} so far")

    def _is_due(self) -> bool:
        return time.monotonic() - self._printed > SECONDS_BETWEEN_LINES

    def _print(self, now: Progress, more: str = "") -> None:
        self._printed, self._is_new = time.monotonic(), False
        self._show_line(f"{now.stage}: {now.done:,} of {now.total:,} {_note(now)}{_devices_note(now)}{more}")

    def _print_line(self, text: str) -> None:
        self._console.print(printable(text), highlight=False, soft_wrap=True, markup=False)


@contextmanager
def _repeating(lines: _Lines) -> Iterator[None]:
    """Call lines.repeat every second in a thread, while the context is open."""
    ended = Event()

    def repeat() -> None:
        while not ended.wait(SECONDS_BETWEEN_CHECKS):
            lines.repeat()

    thread = Thread(target=repeat, name="progress", daemon=True)
    with suppress(RuntimeError):  # no more threads on this machine: only a stage's own reports print lines
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if thread.ident is not None:  # the thread was started
            thread.join()


def _note(now: Progress) -> str:
    parts = [now.unit]
    if now.requests_per_s is not None:
        digits = 0 if now.requests_per_s >= 10 else 1
        parts.append(f"{now.requests_per_s:,.{digits}f} {now.unit}/s")
    if now.computed_tokens_per_s is not None:
        parts.append(f"{now.computed_tokens_per_s:,.0f} tokens computed/s")
    if now.cached_share is not None:
        parts.append(f"{now.cached_share:.0%} cached")
    if now.seconds_left is not None and not 0 < 100 * now.done < now.total:  # inaccurate before 1% is done
        parts.append(f"{_clock(now.seconds_left)} left")
    return ", ".join(parts)


def _devices_note(now: Progress) -> str:
    """Return ", TFLOP/s, share of the peak, slowest replica", as far as these are known; else ""."""
    arithmetic = "" if now.flop_per_s is None else f", {now.flop_per_s / 1e12:,.3g} TFLOP/s"
    arithmetic += "" if now.peak_share is None else f" ({now.peak_share:.0%} of the peak)"
    slowest = now.slowest_replica_tokens_per_s
    return arithmetic + ("" if slowest is None else f", slowest replica {slowest:,.0f} tokens computed/s")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
