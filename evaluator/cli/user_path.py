"""A type of options and arguments that are paths."""

import os
from pathlib import Path
from typing import Any

import click


class UserPath(click.Path):
    """A path in which `~` is the user's home folder. Shells leave it as it is in words such as --out=~/runs."""

    def __init__(self, **options: Any) -> None:
        super().__init__(path_type=Path, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the pathlib.Path."""
        return super().convert(os.path.expanduser(value), param, ctx)
