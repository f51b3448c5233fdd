"""What a stage says while it works. Stages yield these; only the command line draws them."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a stage is."""

    stage: str  # what is being done: "Building prompts"
    done: int
    total: int
    unit: str  # what is counted: "datasets", "requests"
    tokens_per_s: float | None = None  # of this process, cached tokens included
    cached_share: float | None = None  # share of tokens taken from the prefix cache
    seconds_left: float | None = None


Stage = Generator[Progress, None, T]
"""A piece of work that yields its progress and returns a T."""


def finish(stage: Stage[T]) -> T:
    """Run a stage to its end without showing anything."""
    while True:
        try:
            next(stage)
        except StopIteration as end:
            value: T = end.value
            return value
