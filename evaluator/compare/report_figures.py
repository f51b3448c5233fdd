"""Draw the figures of a comparison, after those of Cho & Inoue 2025, as SVG elements."""

import math
from collections.abc import Sequence

import altair as alt
import polars as pl

from evaluator.report.charts import BLUE, GREY, GRID, INK, VERMILION, Drawing, Room, chart_svg, stacked

WIDTH, HEIGHT, ROOM = 200, 140, Room(left=50, right=18, top=12, bottom=38)
LARGE_WIDTH, LARGE_HEIGHT = 320, 200
MARGIN = 2
"""Factor between the outermost models and the ends of the axis of parameters."""

SHIFTS = ((6, -5), (6, 13), (-14, -5), (-14, 13), (6, -16), (6, 24))
"""Pixels from a point to the start of its number, in the order in which places are tried."""


def scaling_figure(
    points: pl.DataFrame,
    line: pl.DataFrame,
    *,
    reference: float | None = None,
    limits: tuple[float, float] | None = None,
    is_large: bool = False,
) -> Drawing:
    """Draw values of models against their numbers of parameters, which are on a logarithmic axis.

    Args:
        points: number, n_parameters, value, ci_low, ci_high and description, one row a model. Values are finite, an
            interval may be null.
        line: n_parameters and value at both ends of the least-squares line; no rows where there is none.
        reference: a value to compare with, drawn as a dashed line across.
        limits: of the axis of values, where several figures share it; those of its points and line if left out.
    """
    ends = limits or value_limits([points, line], reference)
    decimals = max(2, 1 + math.ceil(-math.log10(ends[1] - ends[0])))
    values = alt.Axis(format=f".{decimals}f", gridColor=GRID, tickCount=5)
    y = alt.Y("value:Q", title=None, axis=values, scale=alt.Scale(domain=ends, zero=False, nice=False))
    x = _parameter_axis(points["n_parameters"].to_list())
    width, height = (LARGE_WIDTH, LARGE_HEIGHT) if is_large else (WIDTH, HEIGHT)
    shifts = _label_shifts(_pixels(points, ends, width=width, height=height))
    shifted = points.with_columns(dx=pl.Series([dx for dx, _ in shifts]), dy=pl.Series([dy for _, dy in shifts]))
    across = alt.Chart(pl.DataFrame({"value": [] if reference is None else [reference]}, schema={"value": pl.Float64}))
    layers = [
        across.mark_rule(color=GREY, strokeDash=[4, 3], strokeWidth=1.2, aria=False).encode(y=y),
        alt.Chart(line).mark_line(color=VERMILION, strokeWidth=1.8, aria=False).encode(x=x, y=y),
        *_model_layers(alt.Chart(shifted).encode(x=x), y),
    ]
    return chart_svg(alt.layer(*layers).properties(width=width, height=height), ROOM, stacked(models=points, line=line))


def _model_layers(base: alt.Chart, y: alt.Y) -> list[alt.Chart]:
    """Return the layers of intervals, values, numbers of models, and transparent marks with their descriptions."""
    numbers = base.mark_text(
        align="left",
        baseline="alphabetic",
        dx=alt.expr("datum.dx"),
        dy=alt.expr("datum.dy"),
        fontSize=10,
        color=INK,
        aria=False,
    )
    low = alt.Y("ci_low:Q", scale=y["scale"], title=None)
    return [
        base.mark_rule(color=BLUE, strokeWidth=1.6, aria=False).encode(y=low, y2="ci_high:Q"),
        base.mark_point(filled=True, color=BLUE, size=46, opacity=1, aria=False).encode(y=y),
        numbers.encode(y=y, text="number:N"),
        base.mark_point(filled=True, color="#ffffff", opacity=0, size=340).encode(y=y, description="description:N"),
    ]


def _pixels(points: pl.DataFrame, limits: tuple[float, float], *, width: int, height: int) -> list[tuple[float, float]]:
    """Return the positions of points, in pixels from the top left corner."""
    low, high = map(math.log, _parameter_limits(points["n_parameters"].to_list()))
    bottom, top = limits
    return [
        (width * (math.log(n_parameters) - low) / (high - low), height * (top - value) / (top - bottom))
        for n_parameters, value in points.select("n_parameters", "value").iter_rows()
    ]


def _label_shifts(points: Sequence[tuple[float, float]]) -> list[tuple[int, int]]:
    """Return for each point the first of SHIFTS where its number is free of other numbers and points, or SHIFTS[0]."""
    taken: list[tuple[float, float]] = []
    shifts: list[tuple[int, int]] = []
    for x, y in points:
        # A point takes as much room as a number centred on it.
        others = [*taken, *((other_x - 4, other_y + 4) for other_x, other_y in points if (other_x, other_y) != (x, y))]
        free = (shift for shift in SHIFTS if _is_free(x + shift[0], y + shift[1], others))
        shift = next(free, SHIFTS[0])
        taken.append((x + shift[0], y + shift[1]))
        shifts.append(shift)
    return shifts


def _is_free(x: float, y: float, taken: Sequence[tuple[float, float]]) -> bool:
    return all(abs(x - other_x) > 11 or abs(y - other_y) > 9 for other_x, other_y in taken)


def _parameter_limits(counts: Sequence[int]) -> tuple[float, float]:
    return min(counts) / MARGIN, max(counts) * MARGIN


def value_limits(frames: Sequence[pl.DataFrame], reference: float | None = None) -> tuple[float, float]:
    """Return the ends of an axis for all values and intervals of points and lines, with a margin."""
    numbers = [frame[name] for frame in frames for name in ("value", "ci_low", "ci_high") if name in frame.columns]
    shown = [*pl.concat(numbers).drop_nulls(), *([] if reference is None else [reference])]
    margin = 0.08 * (max(shown) - min(shown) or 0.1)
    return min(shown) - margin, max(shown) + margin


def _parameter_axis(counts: Sequence[int]) -> alt.X:
    low, high = _parameter_limits(counts)
    steps = (1,) if high / low > 500 else (1, 3) if high / low > 50 else (1, 2, 5)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**exponent for exponent in exponents for step in steps]
    # Numbers of parameters are read as billions: replace SI's G by B.
    named = alt.Axis(
        values=[tick for tick in ticks if low <= tick <= high],
        labelExpr="replace(format(datum.value, '~s'), 'G', 'B')",
        gridColor=GRID,
    )
    return alt.X("n_parameters:Q", title="parameters", axis=named).scale(type="log", domain=[low, high], nice=False)
