"""`evaluator reproduce`, as typed, on a small folder of data."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.command_line import command_outputs


class Commanded(NamedTuple):
    out: Path
    printed: str


def reproduce_by_command(name: str, write_folder: Callable[[Path], Path], folder: Path) -> Commanded:
    """Write the data of a paper below a folder, and run the command on it."""
    data, out = write_folder(folder / "data"), folder / "out"
    return Commanded(out, command_outputs("reproduce", name, "--data", data, "--out", out).out)
