"""Baselines over many numbers of examples and tries: a table of them, and the contour lines of figures."""

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from evaluator.random_baselines.binomial import FloatArray, IntArray
from evaluator.random_baselines.max_random import max_random_accuracy, max_random_quantile
from evaluator.random_baselines.settings import ChoiceCounts

TAIL_LEVELS = (0.01, *(tenths / 10 for tenths in range(1, 10)))
"""Contours of the paper's figure 7: every tenth, and one hundredth."""


def baseline_table(n: Sequence[float], chances: Sequence[float | ChoiceCounts], tries: Sequence[float]) -> pl.DataFrame:
    """The accuracy to expect of the best of `tries` random classifiers, one row a setting.

    Returns:
        chance (of one try; the mean where chances differ), n, tries, max_random; in the order given.
    """
    frames = []
    for chance in chances:
        for size in n:
            expected = np.asarray(max_random_accuracy(size, chance, [1, *tries]))
            columns = {"chance": expected[0], "n": int(size), "tries": np.array(tries, dtype=np.int64)}
            frames.append(pl.DataFrame(columns | {"max_random": expected[1:]}))
    return pl.concat(frames)


def table_text(table: pl.DataFrame) -> str:
    """A baseline_table for a terminal: examples down, tries across, a block for each chance."""
    blocks = []
    for (chance,), rows in table.group_by("chance", maintain_order=True):
        tries = rows["tries"].unique(maintain_order=True).to_list()
        lines = [f"chance {chance:.6g}", "", _line("n \\ tries", (f"{tried:,}" for tried in tries))]
        for (n,), of_size in rows.group_by("n", maintain_order=True):
            lines.append(_line(f"{n:,}", (f"{expected:.4f}" for expected in of_size["max_random"])))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _line(head: str, cells: Iterable[str]) -> str:
    return f"{head:>9}" + "".join(f"{cell:>9}" for cell in cells)


def log_spaced(low: float, high: float, size: int) -> IntArray:
    """Up to `size` whole numbers from low to high, evenly on a logarithmic scale, each once."""
    return np.unique(np.rint(np.geomspace(low, high, size)).astype(np.int64))


def accuracy_levels(chance: float) -> FloatArray:
    """Contours of the paper's figures 2 and 6: every five points above chance, and the first half step."""
    first = round(chance, 2)
    levels: FloatArray = np.array([first + 0.025, *np.arange(first + 0.05, 0.995, 0.05)])
    return levels[(levels > chance) & (levels < 1)].round(3)


def accuracy_contours(chance: float, n: IntArray, tries: IntArray) -> pl.DataFrame:
    """Where the maximum random baseline reaches a level: it does with n examples or fewer.

    Returns:
        level, tries, n, inside: one row a level and number of tries; n between two sizes by interpolation on a
        logarithmic scale and kept within the sizes given; `inside` tells whether it lay there.
    """
    expected = np.asarray(max_random_accuracy(n[:, None], chance, tries))
    levels = accuracy_levels(chance)
    frames = []
    for tried, falling in zip(tries, expected.T, strict=True):
        reached = np.exp(np.interp(-levels, -falling, np.log(n)))
        inside = (levels < falling[0]) & (levels > falling[-1])
        frames.append(pl.DataFrame({"level": levels, "tries": tried, "n": reached, "inside": inside}))
    return pl.concat(frames)


def tail_contours(chance: float, n: IntArray, tries: float) -> pl.DataFrame:
    """The lowest accuracy that the best of `tries` random classifiers reaches with a probability of `level` at most.

    Returns:
        level, n, accuracy, one row a level and n; 1 where even all right is more probable than that.
    """
    levels = np.array(TAIL_LEVELS)
    too_often = np.asarray(max_random_quantile(1 - levels[:, None], n, chance, tries))
    columns = {"level": levels.repeat(len(n)), "n": np.tile(n, len(levels))}
    return pl.DataFrame(columns | {"accuracy": np.minimum((too_often + 1) / n, 1).ravel()})
