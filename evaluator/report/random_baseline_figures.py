"""Draw contours of the maximum random baseline and of its tail probability: figures 2, 6, 7 of Yauney & Mimno 2024."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl

from evaluator.arrays import Ints
from evaluator.errors import BaselineError
from evaluator.files.whole import write_bytes
from evaluator.random_baselines.calculator import accuracy_contours, log_spaced, tail_contours
from evaluator.random_baselines.settings import MAX_EXAMPLES, MAX_TRIES, whole_numbers
from evaluator.report.figures import INK, compiled, draw_svg

PANEL_WIDTH, PANEL_HEIGHT = 300, 225  # pixels
STEPS = 81
"""Number of points along an axis."""

LABELLED_TAILS = (0.01, 0.1, 0.5)
"""Tail probabilities whose contours are drawn as lines."""

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
    """Write the figure that baseline_figure draws to an .svg or .html file. Raises BaselineError for other endings."""
    if path.suffix not in (".svg", ".html"):
        raise BaselineError(f"A figure is written as .svg or .html; received {path}.")
    svg = baseline_figure(chances, n, tries)
    page = PAGE.format(title=TITLE, caption=CAPTION, ink=INK, svg=svg)
    write_bytes(path, (svg if path.suffix == ".svg" else page).encode())


def baseline_figure(chances: Sequence[float], n: Sequence[float], tries: Sequence[float]) -> str:
    """Return one SVG element with a column for each chance: expected accuracy, and below it the tail for each `tries`.

    Args:
        chances: accuracies of one random classifier, between 0 and 1.
        n: numbers of examples; the axis runs from the smallest to the largest.
        tries: numbers of random classifiers, of which the best counts; the axis runs from the smallest to the largest.

    Raises BaselineError for numbers out of range, and for an axis of a single number.
    """
    sizes = _axis("n", n, MAX_EXAMPLES)
    along = _axis("tries", tries, MAX_TRIES)
    columns = [
        alt.vconcat(_accuracy_panel(chance, sizes, along), *(_tail_panel(chance, sizes, tried) for tried in tries))
        for chance in chances
    ]
    chart = alt.hconcat(*columns, spacing=30).configure(font="sans-serif", background="white", padding=12)
    chart = chart.configure_axis(labelColor=INK, titleColor=INK, titleFontWeight="normal", grid=False)
    return draw_svg(compiled(chart.to_dict(validate=False)))


def _axis(name: str, given: Sequence[float], maximum: int) -> Ints:
    whole = whole_numbers(name, list(given), 1, maximum)
    if whole.min() == whole.max():
        raise BaselineError(f"A figure runs over {name}, so it takes two different numbers; received {whole[0]:g}.")
    return log_spaced(whole.min(), whole.max(), STEPS)


def _accuracy_panel(chance: float, n: Ints, tries: Ints) -> alt.LayerChart:
    """Draw contours of the expected accuracy: figures 2 and 6."""
    contours = accuracy_contours(chance, n, tries)
    inside = contours.filter("inside")
    x, y = _log_axis(alt.X, "tries", tries), _log_axis(alt.Y, "n", n, title="examples")
    ends = _labelled_ends(inside.group_by("level", maintain_order=True).last(), n)
    # The label of a contour, its level, is just below the right end of its line.
    labels = alt.Chart(ends).mark_text(align="right", dx=-3, dy=6, color=INK, fontSize=9)
    layers = [
        _areas(contours, chance).encode(x=x, y=y, y2=alt.datum(int(n[0]))),
        _lines(inside).encode(x=x, y=y),
        labels.encode(text=alt.Text("level:Q", format=".3~f"), x=x, y=y),
    ]
    return _panel(layers, f"Expected accuracy, chance {chance:.4g}")


def _tail_panel(chance: float, n: Ints, tries: float) -> alt.LayerChart:
    """Draw contours of the probability that the best of `tries` random classifiers reaches an accuracy: figure 7."""
    contours = tail_contours(chance, n, tries)
    x = _log_axis(alt.X, "n", n, title="examples")
    y = alt.Y("accuracy:Q", title="accuracy").scale(domain=[0, 1])
    lines = _lines(contours.filter(pl.col("level").is_in(LABELLED_TAILS)))
    layers = [_areas(contours, 0).encode(x=x, y=y, y2=alt.datum(0)), lines.encode(x=x, y=y)]
    return _panel(layers, f"Tail, chance {chance:.4g}, {int(tries):,} {'tries' if tries > 1 else 'try'}")


def _log_axis(channel: type[alt.X] | type[alt.Y], column: str, along: Ints, *, title: str | None = None) -> Any:
    low, high = int(along[0]), int(along[-1])
    powers = [10**power for power in range(16) if low <= 10**power <= high]
    axis = alt.Axis(values=powers, format=",", title=title or column)
    return channel(f"{column}:Q", axis=axis).scale(type="log", domain=[low, high], nice=False)


def _areas(contours: pl.DataFrame, lowest: float) -> alt.Chart:
    """Draw an area from the bottom of the panel up to each contour; areas of higher levels are darker."""
    color = alt.Color("level:Q", legend=None).scale(domain=[lowest, 1], range=["#eef5fb", "#4a98c9"], interpolate="rgb")
    return alt.Chart(contours).mark_area(clip=True, opacity=1, aria=False).encode(detail="level:Q", color=color)


def _lines(contours: pl.DataFrame) -> alt.Chart:
    return alt.Chart(contours).mark_line(color=INK, strokeWidth=0.8, aria=False).encode(detail="level:Q")


def _labelled_ends(ends: pl.DataFrame, n: Ints) -> pl.DataFrame:
    """Return the ends of contours whose labels overlap neither each other nor the axis."""
    labelled: list[dict[str, Any]] = []
    # Height of a label, 11 pixels, in units of the logarithmic axis.
    room = math.log(n[-1] / n[0]) * 11 / PANEL_HEIGHT
    for row in ends.sort("level").iter_rows(named=True):
        if math.log(row["n"] / n[0]) > room and (not labelled or math.log(labelled[-1]["n"] / row["n"]) > room):
            labelled.append(row)
    return pl.DataFrame(labelled, schema=ends.schema)


def _panel(layers: Sequence[alt.Chart], title: str) -> alt.LayerChart:
    return alt.layer(*layers).properties(width=PANEL_WIDTH, height=PANEL_HEIGHT, title=title)
