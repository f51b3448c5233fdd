"""The progress that stages yield. Only the command line displays it."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How much of a stage is done, and how fast it runs."""

    stage: str  # what is being done: "Building prompts"
    done: int
    total: int
    unit: str  # what is counted: "datasets", "requests"
    requests_per_s: float | None = None  # since scoring began, over all replicas
    computed_tokens_per_s: float | None = None  # likewise, without tokens from the prefix cache
    cached_share: float | None = None  # share of tokens taken from the prefix cache
    seconds_left: float | None = None
    flop_per_s: float | None = None  # floating-point operations that the computed tokens take
    peak_share: float | None = None  # that rate over the peak of all devices; None where that is not known
    slowest_replica_tokens_per_s: float | None = None  # computed, while it is at work; of several replicas
    line: str = ""  # a sentence to show once as it is, in place of the numbers


Stage = Generator[Progress, None, T]
"""A generator that does a piece of work, yields its progress and returns a T."""


def finish(stage: Stage[T], show: Callable[[Progress], None] = lambda _progress: None) -> T:
    """Run a stage to its end, call `show` with each progress that it yields, and return its result."""
    while True:
        try:
            progress = next(stage)
        except StopIteration as end:
            value: T = end.value
            return value
        show(progress)
