"""What a trial is, and the folder that it gets."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

Attempt = Callable[[Path, Random], str | None]
"""Disturbs a run in an empty folder; returns what was wrong afterwards, None if nothing was."""


class Trial(NamedTuple):
    """One disturbance."""

    kind: str  # trials are counted by kind
    name: str
    attempt: Attempt
