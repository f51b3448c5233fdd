"""Compute baselines over many numbers of examples and tries: a table, and the contour lines of figures."""

from collections.abc import Iterable, Sequence

import numpy as np
import polars as pl

from evaluator.random_baselines.binomial import FloatArray, IntArray
from evaluator.random_baselines.max_random import max_random_accuracy, max_random_quantile
from evaluator.random_baselines.settings import ChoiceCounts

TAIL_LEVELS = (0.01, *(tenths / 10 for tenths in range(1, 10)))
"""Contours of figure 7 of Yauney & Mimno 2024: 0.01, and 0.1 to 0.9."""


def baseline_table(n: Sequence[float], chances: Sequence[float | ChoiceCounts], tries: Sequence[float]) -> pl.DataFrame:
    """Return the expected accuracy of the best of `tries` random classifiers, one row a setting.

    Returns:
        chance (of one try; the mean where chances differ), n, tries, max_random; in the order of the arguments.
    """
    frames = []
    for chance in chances:
        for size in n:
            expected = np.asarray(max_random_accuracy(size, chance, [1, *tries]))
            columns = {"chance": expected[0], "n": int(size), "tries": np.array(tries, dtype=np.int64)}
            frames.append(pl.DataFrame(columns | {"max_random": expected[1:]}))
    return pl.concat(frames)


def table_text(table: pl.DataFrame) -> str:
    """Format a baseline_table for a terminal: a block for each chance, examples in rows, tries in columns."""
    blocks = []
    for (chance,), rows in table.group_by("chance", maintain_order=True):
        tries = rows["tries"].unique(maintain_order=True).to_list()
        lines = [f"chance {chance:.6g}", "", _line("n \\ tries", (f"{tried:,}" for tried in tries))]
        for (n,), rows_of_n in rows.group_by("n", maintain_order=True):
            lines.append(_line(f"{n:,}", (f"{expected:.4f}" for expected in rows_of_n["max_random"])))
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _line(head: str, cells: Iterable[str]) -> str:
    return f"{head:>9}" + "".join(f"{cell:>9}" for cell in cells)


def log_spaced(low: float, high: float, size: int) -> IntArray:
    """Return up to `size` distinct whole numbers from low to high, evenly spaced on a logarithmic scale."""
    return np.unique(np.rint(np.geomspace(low, high, size)).astype(np.int64))


def accuracy_levels(chance: float) -> FloatArray:
    """Return the contours of figures 2 and 6 (Yauney & Mimno 2024): chance + 0.025, then every 0.05 above chance."""
    first = round(chance, 2)
    levels: FloatArray = np.array([first + 0.025, *np.arange(first + 0.05, 0.995, 0.05)])
    return levels[(levels > chance) & (levels < 1)].round(3)


def accuracy_contours(chance: float, n: IntArray, tries: IntArray) -> pl.DataFrame:
    """Return the largest n at which the maximum random baseline reaches each level.

    Returns:
        level, tries, n, inside: one row a level and number of tries. n is interpolated on a logarithmic scale and
        limited to the range of the argument `n`; `inside` is whether it was within that range.
    """
    expected = np.asarray(max_random_accuracy(n[:, None], chance, tries))
    levels = accuracy_levels(chance)
    frames = []
    for n_tries, baseline in zip(tries, expected.T, strict=True):
        # The baseline falls with n; np.interp needs ascending values, hence the signs.
        reached = np.exp(np.interp(-levels, -baseline, np.log(n)))
        inside = (levels < baseline[0]) & (levels > baseline[-1])
        frames.append(pl.DataFrame({"level": levels, "tries": n_tries, "n": reached, "inside": inside}))
    return pl.concat(frames)


def tail_contours(chance: float, n: IntArray, tries: float) -> pl.DataFrame:
    """Return the lowest accuracy that the best of `tries` random classifiers reaches with probability at most `level`.

    Returns:
        level, n, accuracy, one row a level and n; 1 if even n correct answers are more probable than `level`.
    """
    levels = np.array(TAIL_LEVELS)
    largest_count = np.asarray(max_random_quantile(1 - levels[:, None], n, chance, tries))
    columns = {"level": levels.repeat(len(n)), "n": np.tile(n, len(levels))}
    return pl.DataFrame(columns | {"accuracy": np.minimum((largest_count + 1) / n, 1).ravel()})
