"""Show progress: requests and tokens per second, share of tokens from the cache, and time left.

A line is printed every ten seconds, with or without a terminal. A terminal has progress bars below these lines.
"""

import time
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from evaluator.progress import Progress, Stage, finish

T = TypeVar("T")

SECONDS_BETWEEN_LINES = 10.0
"""The interval between lines about the same stage."""


def draw(stage: Stage[T]) -> T:
    """Run a stage to its end, show its progress on standard error, and return its result."""
    console = Console(stderr=True)
    if console.is_terminal:
        return _draw_bars(stage, console)
    return finish(stage, _Lines(console, ends_are_shown=True).show)


def _draw_bars(stage: Stage[T], console: Console) -> T:
    columns = (
        TextColumn("{task.description:20}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    tasks: dict[str, TaskID] = {}
    lines = _Lines(console, ends_are_shown=False)
    with Bars(*columns, console=console) as bars:

        def show(now: Progress) -> None:
            if now.line:
                lines.show(now)
                return
            if now.stage not in tasks:
                tasks[now.stage] = bars.add_task(now.stage, total=now.total, note="", completed=now.done)
            bars.update(tasks[now.stage], completed=now.done, total=now.total, note=_note(now))
            lines.show(now)

        return finish(stage, show)


class _Lines:
    """Prints a line when a stage begins or ends, if that is wanted, and every ten seconds while it runs."""

    def __init__(self, console: Console, *, ends_are_shown: bool) -> None:
        self._console, self._ends_are_shown = console, ends_are_shown
        self._stage, self._time = "", time.monotonic()

    def show(self, now: Progress) -> None:
        if now.line:
            self._console.print(now.line, highlight=False, soft_wrap=True, markup=False)
            return
        is_end = now.stage != self._stage or now.done == now.total
        is_due = time.monotonic() - self._time > SECONDS_BETWEEN_LINES
        if (is_end and self._ends_are_shown) or is_due:
            line = f"{now.stage}: {now.done:,} of {now.total:,} {_note(now)}"
            self._console.print(line, highlight=False, soft_wrap=True)
        if now.stage != self._stage or is_due:
            self._stage, self._time = now.stage, time.monotonic()


def _note(now: Progress) -> str:
    parts = [now.unit]
    if now.requests_per_s is not None:
        parts.append(f"{now.requests_per_s:,.0f} {now.unit}/s")
    if now.computed_tokens_per_s is not None:
        parts.append(f"{now.computed_tokens_per_s:,.0f} tokens computed/s")
    if now.cached_share is not None:
        parts.append(f"{now.cached_share:.0%} cached")
    if now.seconds_left is not None:
        minutes, seconds = divmod(round(now.seconds_left), 60)
        parts.append(f"{minutes}:{seconds:02d} left")
    return ", ".join(parts)
