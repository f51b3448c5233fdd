"""Progress on a terminal: requests, tokens per second, share of tokens from the cache, and time left."""

import time
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from evaluator.progress import Progress, Stage

T = TypeVar("T")

SECONDS_BETWEEN_LINES = 10.0
"""How often a line is written where there is no terminal to draw a bar on."""


def draw(stage: Stage[T]) -> T:
    """Run a stage to its end, showing what it yields on standard error; returns what the stage returns."""
    console = Console(stderr=True)
    return _draw_bars(stage, console) if console.is_terminal else _draw_lines(stage, console)


def _draw_bars(stage: Stage[T], console: Console) -> T:
    columns = (
        TextColumn("{task.description:20}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    tasks: dict[str, TaskID] = {}
    with Bars(*columns, console=console) as bars:
        while True:
            try:
                now = next(stage)
            except StopIteration as end:
                value: T = end.value
                return value
            if now.stage not in tasks:
                tasks[now.stage] = bars.add_task(now.stage, total=now.total, note="", completed=now.done)
            bars.update(tasks[now.stage], completed=now.done, total=now.total, note=_note(now))


def _draw_lines(stage: Stage[T], console: Console) -> T:
    shown: tuple[str, float] = ("", 0.0)
    while True:
        try:
            now = next(stage)
        except StopIteration as end:
            value: T = end.value
            return value
        name, when = shown
        if now.stage != name or now.done == now.total or time.monotonic() - when > SECONDS_BETWEEN_LINES:
            shown = (now.stage, time.monotonic())
            console.print(f"{now.stage}: {now.done:,} of {now.total:,} {_note(now)}", highlight=False)


def _note(now: Progress) -> str:
    parts = [now.unit]
    if now.tokens_per_s is not None:
        parts.append(f"{now.tokens_per_s:,.0f} tokens/s")
    if now.cached_share is not None:
        parts.append(f"{now.cached_share:.0%} cached")
    if now.seconds_left is not None:
        minutes, seconds = divmod(round(now.seconds_left), 60)
        parts.append(f"{minutes}:{seconds:02d} left")
    return ", ".join(parts)
