"""The progress that stages yield. Only the command line displays it."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The amount of a stage that is done, and its speed; a number that is not known is None."""

    stage: str  # name of the stage for display: "Building prompts"
    done: int  # units done
    total: int  # units of the whole stage
    unit: str  # the counted items: "datasets", "requests"
    requests_per_s: float | None = None  # mean since scoring began, over all replicas
    computed_tokens_per_s: float | None = None  # the same mean for tokens, without tokens from the prefix cache
    cached_share: float | None = None  # share of prompt tokens that the prefix cache served
    seconds_left: float | None = None  # estimated
    flop_per_s: float | None = None  # floating-point operations of the computed tokens, per second
    peak_share: float | None = None  # flop_per_s divided by the peak rate of all devices
    slowest_replica_tokens_per_s: float | None = None  # computed tokens/s while busy; None with a single replica
    line: str = ""  # a sentence to show once, in place of the numbers


Stage = Generator[Progress, None, T]
"""A generator that does a piece of work, yields its progress and returns a result of type T."""


def finish(stage: Stage[T], show: Callable[[Progress], None] = lambda _progress: None) -> T:
    """Run a stage to its end, call `show` with every yielded progress, and return the stage's result."""
    while True:
        try:
            progress = next(stage)
        except StopIteration as end:
            value: T = end.value
            return value
        show(progress)
