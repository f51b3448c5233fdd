"""Contour maps of the maximum random baseline and of its tails, as in figures 2, 6 and 7 of Yauney and Mimno 2024."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.errors import BaselineError
from evaluator.files import replacing
from evaluator.random_baselines.binomial import IntArray
from evaluator.random_baselines.checks import MOST_EXAMPLES, MOST_TRIES, whole_numbers
from evaluator.random_baselines.grid import accuracy_contours, log_spaced, tail_contours
from evaluator.report.plot import INK, Axis, Plot, Room, figure_svg, log_axis, share_axis

PANEL_WIDTH, PANEL_HEIGHT, ROOM = 300, 225, Room(left=58, right=30, top=30, bottom=40)
LOW_COLOUR, HIGH_COLOUR = (0xEE, 0xF5, 0xFB), (0x4A, 0x98, 0xC9)
STEPS = 81
"""Points along an axis."""

LABELLED_TAILS = (0.01, 0.1, 0.5)

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body style="font-family: sans-serif; color: {ink}"><h1>{title}</h1><p>{caption}</p>{svg}</body></html>
"""
TITLE = "Maximum random baselines"
CAPTION = (
    "Above: the accuracy to expect of the best of several random classifiers. Below: how probable it is that the best "
    "of them reaches an accuracy; lines at 0.5, 0.1 and 0.01. After Yauney and Mimno 2024, figures 2, 6 and 7."
)


def write_figure(path: Path, chances: Sequence[float], n: Sequence[float], tries: Sequence[float]) -> None:
    """Write the figure of baseline_figure to an .svg or .html file. Raises BaselineError for another kind of file."""
    if path.suffix not in (".svg", ".html"):
        raise BaselineError(f"A figure is written as .svg or .html; received {path}.")
    svg = baseline_figure(chances, n, tries)
    page = PAGE.format(title=TITLE, caption=CAPTION, ink=INK, svg=svg)
    with replacing(path) as file:
        file.write((svg if path.suffix == ".svg" else page).encode())


def baseline_figure(chances: Sequence[float], n: Sequence[float], tries: Sequence[float]) -> str:
    """One SVG element: a column a chance; expected accuracies on top, below them the tails, a row for each of `tries`.

    Both axes of n and tries run from the smallest to the largest of the numbers given.
    """
    sizes = _axis("n", n, MOST_EXAMPLES)
    along = _axis("tries", tries, MOST_TRIES)
    rows = [[_accuracy_panel(chance, sizes, along) for chance in chances]]
    rows += [[_tail_panel(chance, sizes, tried) for chance in chances] for tried in tries]
    return figure_svg(rows, background="white")


def _axis(name: str, given: Sequence[float], most: int) -> IntArray:
    whole = whole_numbers(name, list(given), 1, most)
    if whole.min() == whole.max():
        raise BaselineError(f"A figure runs over {name}, so it takes two different numbers; received {whole[0]:g}.")
    return log_spaced(whole.min(), whole.max(), STEPS)


def _accuracy_panel(chance: float, n: IntArray, tries: IntArray) -> Plot:
    """Figures 2 and 6: contours of the expected accuracy."""
    contours = accuracy_contours(chance, n, tries)
    plot = _panel(_log_axis("tries", tries), _log_axis("examples", n), f"Expected accuracy, chance {chance:.4g}")
    _draw_areas(plot, contours.select("level", x="tries", y="n"), chance)
    inside = contours.filter("inside")
    _draw_lines(plot, inside.select("level", x="tries", y="n"))
    for level, x, y in (
        _apart(inside.group_by("level", maintain_order=True).last(), n).select("level", "tries", "n").rows()
    ):
        plot.text((x, y), f"{level:.3g}", shift=(-3, 10), anchor="end", size=9)
    return plot


def _tail_panel(chance: float, n: IntArray, tries: float) -> Plot:
    """Figure 7: contours of the probability that the best of `tries` reaches an accuracy."""
    contours = tail_contours(chance, n, tries).select("level", x="n", y="accuracy")
    title = f"Tail, chance {chance:.4g}, {int(tries):,} {'tries' if tries > 1 else 'try'}"
    plot = _panel(_log_axis("examples", n), share_axis("accuracy", step=0.2), title)
    _draw_areas(plot, contours, 0)
    _draw_lines(plot, contours.filter(pl.col("level").is_in(LABELLED_TAILS)))
    return plot


def _log_axis(title: str, along: IntArray) -> Axis:
    powers = [10.0**power for power in range(16)]
    axis = log_axis((int(along[0]), int(along[-1])), title, powers, lambda value: f"{value:,.0f}")
    return replace(axis, has_grid=False)


def _panel(x: Axis, y: Axis, title: str) -> Plot:
    plot = Plot(x, replace(y, has_grid=False), width=PANEL_WIDTH, height=PANEL_HEIGHT, room=ROOM)
    middle = math.sqrt(x.domain[0] * x.domain[1])
    plot.text((middle, y.domain[1]), title, shift=(0, -8), anchor="middle", size=13)
    return plot


def _draw_areas(plot: Plot, contours: pl.DataFrame, lowest: float) -> None:
    """An area from the bottom up to each contour, painted over the ones before it and darker."""
    for (level,), rows in contours.partition_by("level", as_dict=True, maintain_order=True).items():
        plot.area(rows.select("x", "y").rows(), colour=_colour((float(level) - lowest) / (1 - lowest)))


def _draw_lines(plot: Plot, contours: pl.DataFrame) -> None:
    for rows in contours.partition_by("level", maintain_order=True):
        plot.line(rows.select("x", "y").iter_rows(), colour=INK, width=0.8)


def _colour(share: float) -> str:
    """Between the colours of no probability and of certainty."""
    mixed = (round(low + share * (high - low)) for low, high in zip(LOW_COLOUR, HIGH_COLOUR, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _apart(ends: pl.DataFrame, n: IntArray) -> pl.DataFrame:
    """The ends of those lines whose names do not run into each other, nor into the axis."""
    kept: list[dict[str, Any]] = []
    room = math.log(n[-1] / n[0]) * 11 / PANEL_HEIGHT
    for row in ends.sort("level").iter_rows(named=True):
        if math.log(row["n"] / n[0]) > room and (not kept or math.log(kept[-1]["n"] / row["n"]) > room):
            kept.append(row)
    return pl.DataFrame(kept, schema=ends.schema)
