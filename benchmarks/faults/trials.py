"""Define a trial: one disturbance of a run."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

Attempt = Callable[[Path, Random], str | None]
"""Function that disturbs a run in an empty folder, and returns a description of the fault, or None."""


class Trial(NamedTuple):
    """One disturbance."""

    kind: str  # trials are counted by kind
    name: str
    attempt: Attempt
