"""Figures of a comparison, after those of Cho & Inoue 2025: frames go in, SVG elements come out."""

import math
from collections.abc import Sequence

import altair as alt
import polars as pl

from evaluator.report.figures import BLUE, GREY, GRID, INK, VERMILION, as_svg

WIDTH, HEIGHT, ROOM = 200, 140, {"left": 50, "right": 18, "top": 12, "bottom": 36}
LARGE_WIDTH, LARGE_HEIGHT = 320, 200
MARGIN = 2
"""Factor between the outermost models and the ends of the axis of parameters."""


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
    values = alt.Axis(format=f".{decimals}f", gridColor=GRID, tickCount=5, minExtent=36, maxExtent=36)
    scale = alt.Scale(domain=ends, zero=False, nice=False)
    y = alt.Y("value:Q", title=None, axis=values, scale=scale)
    low, high = alt.Y("ci_low:Q", scale=scale, title=None), alt.Y2("ci_high:Q")
    x = _parameter_axis(points["n_parameters"].to_list())
    base = alt.Chart(points).encode(x=x)
    across = alt.Chart(pl.DataFrame({"value": [] if reference is None else [reference]}, schema={"value": pl.Float64}))
    layers: list[alt.Chart] = [
        across.mark_rule(color=GREY, strokeDash=[4, 3], strokeWidth=1.2, aria=False).encode(y=y),
        alt.Chart(line).mark_line(color=VERMILION, strokeWidth=1.8, aria=False).encode(x=x, y=y),
        base.mark_rule(color=BLUE, strokeWidth=1.6, aria=False).encode(y=low, y2=high),
        base.mark_point(filled=True, color=BLUE, size=46, opacity=1, aria=False).encode(y=y),
        base.mark_text(align="left", dx=6, dy=-7, fontSize=10, color=INK, aria=False).encode(y=y, text="number:N"),
        base.mark_point(filled=True, color="#ffffff", opacity=0, size=340).encode(y=y, description="description:N"),
    ]
    size = {"width": LARGE_WIDTH, "height": LARGE_HEIGHT} if is_large else {"width": WIDTH, "height": HEIGHT}
    return as_svg(alt.layer(*layers).properties(**size), ROOM)


def value_limits(frames: Sequence[pl.DataFrame], reference: float | None = None) -> tuple[float, float]:
    """Both ends of an axis that shows all values and intervals of these points and lines."""
    numbers = [frame[name] for frame in frames for name in ("value", "ci_low", "ci_high") if name in frame.columns]
    shown = [*pl.concat(numbers).drop_nulls(), *([] if reference is None else [reference])]
    margin = 0.08 * (max(shown) - min(shown) or 0.1)
    return min(shown) - margin, max(shown) + margin


def _parameter_axis(counts: Sequence[int]) -> alt.X:
    low, high = min(counts) / MARGIN, max(counts) * MARGIN
    steps = (1,) if high / low > 500 else (1, 3) if high / low > 50 else (1, 2, 5)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**exponent for exponent in exponents for step in steps]
    # What SI calls giga, a number of parameters calls billion.
    named = alt.Axis(
        values=[tick for tick in ticks if low <= tick <= high],
        labelExpr="replace(format(datum.value, '~s'), 'G', 'B')",
        gridColor=GRID,
        labelFlush=False,
    )
    return alt.X("n_parameters:Q", title="parameters", axis=named).scale(type="log", domain=[low, high], nice=False)
