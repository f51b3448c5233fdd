"""Figures of a comparison, after those of Cho & Inoue 2025, as SVG elements."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from evaluator.report.plot import BLUE, GREY, VERMILION, Axis, Plot, Room, log_axis, value_axis

WIDTH, HEIGHT, ROOM = 200, 140, Room(left=50, right=18, top=12, bottom=38)
LARGE_WIDTH, LARGE_HEIGHT = 320, 200
MARGIN = 2
"""Factor between the outermost models and the ends of the axis of parameters."""

SHIFTS = ((6, -5), (6, 13), (-14, -5), (-14, 13), (6, -16), (6, 24))
"""Pixels from a point to its number, the best place first."""

REACH = 9  # pixels around a point within which it says its numbers


def scaling_figure(
    points: pl.DataFrame,
    line: pl.DataFrame,
    *,
    reference: float | None = None,
    limits: tuple[float, float] | None = None,
    is_large: bool = False,
) -> str:
    """Values of models against their numbers of parameters, which are on a logarithmic axis.

    Args:
        points: number, n_parameters, value, ci_low, ci_high and description, one row a model. Values are finite, an
            interval may be null.
        line: n_parameters and value at both ends of the least-squares line; no rows where there is none.
        reference: a value to compare with, drawn as a dashed line across.
        limits: of the axis of values, where several figures share it; those of its points and line if left out.
    """
    ends = limits or value_limits([points, line], reference)
    decimals = max(2, 1 + math.ceil(-math.log10(ends[1] - ends[0])))
    x = _parameter_axis(points["n_parameters"].to_list())
    width, height = (LARGE_WIDTH, LARGE_HEIGHT) if is_large else (WIDTH, HEIGHT)
    plot = Plot(x, value_axis(ends, decimals=decimals), width=width, height=height, room=ROOM)
    if reference is not None:
        plot.rule((x.domain[0], reference), (x.domain[1], reference), colour=GREY, width=1.2, dash="4,3")
    plot.line(line.select("n_parameters", "value").iter_rows(), colour=VERMILION, width=1.8)
    rows = points.to_dicts()
    for row in rows:
        if row["ci_low"] is not None and row["ci_high"] is not None:
            at = row["n_parameters"]
            plot.rule((at, row["ci_low"]), (at, row["ci_high"]), colour=BLUE, width=1.6)
    plot.points([(row["n_parameters"], row["value"]) for row in rows], colour=BLUE)
    for row, shift in zip(rows, _label_shifts(plot, rows), strict=True):
        plot.text((row["n_parameters"], row["value"]), str(row["number"]), shift=shift, size=10)
    reach_x, reach_y = (math.log10(x.domain[1] / x.domain[0]) / width, (ends[1] - ends[0]) / height)
    for row in rows:
        factor, step = 10 ** (REACH * reach_x), REACH * reach_y
        around = (row["n_parameters"] / factor, row["n_parameters"] * factor)
        plot.band(around, (row["value"] - step, row["value"] + step), row["description"])
    return plot.svg()


def _label_shifts(plot: Plot, rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Pixels from each point to its number: up and to the right, or wherever no other number or point is."""
    points = [
        (plot.width * plot.x.share(row["n_parameters"]), plot.height * (1 - plot.y.share(row["value"]))) for row in rows
    ]
    taken: list[tuple[float, float]] = []
    shifts: list[tuple[float, float]] = []
    for x, y in points:
        # A point takes as much room as a number that stands on it.
        others = [*taken, *((other_x - 4, other_y + 4) for other_x, other_y in points if (other_x, other_y) != (x, y))]
        free = (shift for shift in SHIFTS if _is_free(x + shift[0], y + shift[1], others))
        shift = next(free, SHIFTS[0])
        taken.append((x + shift[0], y + shift[1]))
        shifts.append(shift)
    return shifts


def _is_free(x: float, y: float, taken: Sequence[tuple[float, float]]) -> bool:
    return all(abs(x - other_x) > 11 or abs(y - other_y) > 9 for other_x, other_y in taken)


def value_limits(frames: Sequence[pl.DataFrame], reference: float | None = None) -> tuple[float, float]:
    """Both ends of an axis that shows all values and intervals of these points and lines."""
    numbers = [frame[name] for frame in frames for name in ("value", "ci_low", "ci_high") if name in frame.columns]
    shown = [*pl.concat(numbers).drop_nulls(), *([] if reference is None else [reference])]
    margin = 0.08 * (max(shown) - min(shown) or 0.1)
    return min(shown) - margin, max(shown) + margin


def _parameter_axis(counts: Sequence[int]) -> Axis:
    low, high = min(counts) / MARGIN, max(counts) * MARGIN
    steps = (1,) if high / low > 500 else (1, 3) if high / low > 50 else (1, 2, 5)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return log_axis((low, high), "parameters", [step * 10.0**exponent for exponent in exponents for step in steps])
