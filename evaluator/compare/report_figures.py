"""Draw values of models and fitted lines over the number of parameters, after figures of Cho & Inoue 2025."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from evaluator.report.figures import GREY, INK, VERMILION, Axis, Drawing, Mark, Size, panel, stacked
from evaluator.report.section import Panel, Panels

SMALL = Size(200, 140, left=50, right=18, top=12, bottom=38)
LARGE = SMALL._replace(width=320, height=200)
"""Sizes of a panel."""

MARGIN = 2
"""Factor between the smallest or largest model and the end of the axis of parameters."""

SHIFTS = ((6, -5), (6, 13), (-14, -5), (-14, 13), (6, -16), (6, 24))
"""Offsets in pixels from a point to the label with its number, in the order in which they are tried."""

MODEL_MARKS = (
    Mark("rule", y="value", rows="reference", color=GREY, dash=(4, 3), size=1.2),
    Mark("line", "n_parameters", "value", rows="line", color=VERMILION, size=1.8),
    Mark("rule", "n_parameters", "ci_low", rows="models", y2="ci_high", size=1.6),
    Mark("point", "n_parameters", "value", rows="models", size=46),
    Mark("text", "n_parameters", "value", rows="models", text="number", color=INK, size=10),
    # A transparent point around each value holds its description, as aria-label.
    Mark("point", "n_parameters", "value", rows="models", opacity=0, size=340, is_described=True),
)

OTHER_MARKS = (
    *(Mark("line", "n_parameters", end, rows="line", color=GREY, dash=(4, 3), size=1.2) for end in ("low", "high")),
    Mark("line", "n_parameters", "value", rows="line", color=GREY, size=1.6),
    Mark("point", "n_parameters", "value", rows="others", color=GREY, opacity=0.7, size=40),
    Mark("point", "n_parameters", "value", rows="others", opacity=0, size=300, is_described=True),
)

VALUES = ("n_parameters", "value", "ci_low", "ci_high")
"""Columns of numbers in the CSV of a figure with other models."""

LINE = ("of", "measure", "method", "slope", "ci_low", "ci_high")
"""Columns of schema.SCALING that a panel has as data attributes."""

ABSENT = "No model has both a finite value and a recorded number of parameters."


def scaling_panels(
    points: pl.DataFrame,
    lines: pl.DataFrame,
    by: str,
    titles: Mapping[str, str],
    references: Mapping[str, float],
    *,
    on_one_scale: bool = False,
    are_large: bool = False,
) -> Panels:
    """Return a panel for each measure, or for each method, that has a row in `lines`.

    Args:
        points: compare.across_models.scaling_points of one definition and one value of `of`.
        lines: schema.SCALING of the same; a row can say why there is no line.
        by: column in which the panels differ: "measure" or "method".
        titles: value of `by` -> title, in the order of the panels.
        references: value of `by` -> a value to compare with, drawn as a dashed line.
        on_one_scale: whether all panels have the same vertical axis, which includes 0.
        are_large: whether panels have the size LARGE, else SMALL.
    """
    rows = {row[by]: row for row in lines.iter_rows(named=True)}
    drawn = {name: described_points(points.filter(pl.col(by) == name), titles[name]) for name in titles if name in rows}
    ends = {name: line_ends(shown, rows[name]) for name, shown in drawn.items()}
    limits = value_limits([*drawn.values(), *ends.values()], 0) if on_one_scale and drawn else None
    panels = []
    for name, shown in drawn.items():
        look: dict[str, Any] = {"reference": references.get(name), "limits": limits, "is_large": are_large}
        drawings = [] if shown.is_empty() else [scaling_figure(shown, ends[name], **look)]
        data = {column.removeprefix("ci_"): rows[name][column] for column in LINE}
        panels.append(Panel(titles[name], drawings, line_text(rows[name]), data=data))
    return Panels(panels, style="scaling large" if are_large else "scaling", absent=ABSENT if panels else "")


def line_text(line: Mapping[str, Any]) -> str:
    """Describe the slope of a line with its interval, or why there is no line.

    Args:
        line: row of schema.SCALING.
    """
    if line["slope"] is None:
        return f"no line: {line['reason']}"
    numbers = (line["slope"], line["ci_low"], line["ci_high"])
    slope, low, high = (None if number is None else f"{number:+.3g}".replace("-", "−") for number in numbers)
    return f"slope {slope}, {line['reason']}" if low is None else f"slope {slope} ({low} to {high})"


def described_points(points: pl.DataFrame, title: str) -> pl.DataFrame:
    """Return the points with a finite value and a number of parameters, with the column `description`."""
    finite = points.filter(pl.col("n_parameters").is_not_null(), pl.col("value").is_finite())
    values = (pl.col(column).round(3).cast(pl.String).fill_null("unknown") for column in ("value", "ci_low", "ci_high"))
    description = pl.format(
        "{} {}: {} {}, 95% interval {} to {}, {} parameters", "number", "model", pl.lit(title), *values, "n_parameters"
    )
    return finite.with_columns(description=description.str.strip_chars_start())


def line_ends(points: pl.DataFrame, line: Mapping[str, Any]) -> pl.DataFrame:
    """Return n_parameters and value of a fitted line at the smallest and the largest model; no rows without a line."""
    if line["slope"] is None:
        return pl.DataFrame(schema={"n_parameters": pl.Int64, "value": pl.Float64})
    ends = points.select(n_parameters=pl.concat_list(pl.col("n_parameters").min(), pl.col("n_parameters").max()))
    value = line["intercept"] + line["slope"] * pl.col("n_parameters").log10()
    return ends.explode("n_parameters").with_columns(value=value)


def scaling_figure(
    points: pl.DataFrame,
    line: pl.DataFrame,
    *,
    reference: float | None = None,
    limits: tuple[float, float] | None = None,
    is_large: bool = False,
    others: pl.DataFrame | None = None,
) -> Drawing:
    """Draw values of models over their numbers of parameters, on a logarithmic axis.

    Args:
        points: number, n_parameters, value, ci_low, ci_high and description, one row for each model. Values are finite;
            the ends of intervals may be null.
        line: n_parameters and value at both ends of the least-squares line; no rows without a line.
        reference: a value to compare with, drawn as a dashed horizontal line.
        limits: ends of the axis of values; if left out, they enclose points and line.
        is_large: whether the figure has the size LARGE, else SMALL.
        others: further models, drawn in grey: n_parameters, value and description. The line is then that of these
            models, with columns `low` and `high`, between which the value of another model is expected.
    """
    frames = [points, line] if others is None else [points, line.rename({"low": "ci_low", "high": "ci_high"}), others]
    ends, size = limits or value_limits(frames, reference), LARGE if is_large else SMALL
    decimals = max(2, 1 + math.ceil(-math.log10(ends[1] - ends[0])))
    counts = [count for frame in frames for count in frame["n_parameters"]]
    x, y = parameter_axis(counts), Axis(domain=ends, form=f".{decimals}f")
    # Position of each point in pixels from the top left corner, as Vega draws it.
    (low, high), (bottom, top) = map(math.log, _parameter_limits(counts)), ends
    across = size.width * (points["n_parameters"].log() - low) / (high - low)
    down = size.height * (top - points["value"]) / (top - bottom)
    shifts = _label_shifts([*zip(across, down, strict=True)])
    dx, dy = (pl.Series([shift[place] for shift in shifts], dtype=pl.Int64) for place in (0, 1))
    tables = {"models": points.with_columns(dx=dx, dy=dy), "line": line}
    if others is not None:
        data = pl.concat([others, points], how="diagonal").select("model", *VALUES)
        return panel((*OTHER_MARKS, *MODEL_MARKS[2:]), x, y, size=size, data=data, others=others, **tables)
    level = pl.DataFrame({"value": [] if reference is None else [reference]}, schema={"value": pl.Float64})
    data = stacked(models=points, line=line)
    return panel(MODEL_MARKS, x, y, size=size, data=data, reference=level, **tables)


def _label_shifts(points: Sequence[tuple[float, float]]) -> list[tuple[int, int]]:
    """Return for each point the first of SHIFTS at which its label overlaps no other label or point, else SHIFTS[0].

    Args:
        points: x and y of each point in pixels, y downwards.
    """
    taken: list[tuple[float, float]] = []
    shifts: list[tuple[int, int]] = []
    for x, y in points:
        # A point counts as a label that is centred on it.
        others = [*taken, *((other_x - 4, other_y + 4) for other_x, other_y in points if (other_x, other_y) != (x, y))]
        free = (
            (dx, dy)
            for dx, dy in SHIFTS
            if all(abs(x + dx - other_x) > 11 or abs(y + dy - other_y) > 9 for other_x, other_y in others)
        )
        shift = next(free, SHIFTS[0])
        taken.append((x + shift[0], y + shift[1]))
        shifts.append(shift)
    return shifts


def _parameter_limits(counts: Sequence[int]) -> tuple[float, float]:
    return min(counts) / MARGIN, max(counts) * MARGIN


def value_limits(frames: Sequence[pl.DataFrame], reference: float | None = None) -> tuple[float, float]:
    """Return the ends of an axis that encloses all values, intervals and the reference, with a margin."""
    numbers = [frame[name] for frame in frames for name in ("value", "ci_low", "ci_high") if name in frame.columns]
    shown = [*pl.concat(numbers).drop_nulls(), *([] if reference is None else [reference])]
    margin = 0.08 * (max(shown) - min(shown) or 0.1)
    return min(shown) - margin, max(shown) + margin


def parameter_axis(counts: Sequence[int]) -> Axis:
    """Return a logarithmic axis of numbers of parameters; labels are like 500M or 7B."""
    low, high = _parameter_limits(counts)
    steps = (1,) if high / low > 500 else (1, 3) if high / low > 50 else (1, 2, 5)
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**exponent for exponent in exponents for step in steps]
    return Axis(
        title="parameters",
        domain=(low, high),
        ticks=tuple(tick for tick in ticks if low <= tick <= high),
        # The SI prefix for a billion is G; numbers of parameters are written with B.
        labels="replace(format(datum.value, '~s'), 'G', 'B')",
        is_logarithmic=True,
    )
