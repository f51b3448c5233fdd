"""Frames to figures: each comes back as one SVG element, drawn once and for all, that needs no script to be seen.

Vega's own scripts would weigh 0.9 MB and draw some thirty views at every opening; drawn beforehand the same figures
open at once, print as they look, and survive without scripts. What the reader hovers is a transparent band whose
aria-label holds the numbers: the page shows it as a tooltip, a screen reader reads it out.
"""

import re
from typing import Any

import altair as alt
import polars as pl
import vl_convert

BLUE, VERMILION, GREY, INK = "#0072b2", "#d55e00", "#767676", "#3d4650"
"""Blue and vermilion of Okabe and Ito's palette, told apart with any colour vision; shapes differ as well."""

GRID = "#eef0f3"

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])

ROW_HEIGHT, TICK = 26, 18
INTERVAL_WIDTH, INTERVAL_ROOM = 320, {"left": 134, "right": 12, "top": 4, "bottom": 22}
PANEL_WIDTH, PANEL_ROOM = 150, {"left": 44, "right": 12, "top": 12, "bottom": 36}

CHANCE_LINE = {"noise_rate": pl.Float64(), "accuracy": pl.Float64()}

BALLAST = (
    '<path class="background" aria-hidden="true" d="M0,0h0v0h0Z" pointer-events="none"/>',
    '<path class="foreground" aria-hidden="true" d="" pointer-events="none" display="none"/>',
    ' opacity="1"',
    ' pointer-events="none"',
    ' font-family="sans-serif"',
    ' xmlns:xlink="http://www.w3.org/1999/xlink"',
    ' aria-roledescription="rect mark"',
)
"""What Vega writes of everything it draws and the page has no use for: a fifth of a page with a hundred figures."""


def interval_figure(rows: pl.DataFrame) -> str:
    """Values with their intervals, one row a dataset, on a scale from 0 to 1.

    Args:
        rows: dataset, value, ci_low, ci_high, chance, max_random, majority and description, in drawing order. A null is
            not drawn.
    """
    base, x = alt.Chart(rows).encode(y=_dataset_rows(rows)), _row_place
    guessed = base.transform_filter("isValid(datum.max_random)")
    layers = [
        guessed.mark_bar(color=VERMILION, opacity=0.3, height=TICK, aria=False).encode(
            x=x("chance"), x2="max_random:Q"
        ),
        guessed.mark_tick(color=VERMILION, thickness=1, size=TICK, opacity=1, aria=False).encode(x=x("max_random")),
        base.mark_tick(color=VERMILION, thickness=2, size=TICK, opacity=1, aria=False).encode(x=x("chance")),
        base.mark_point(shape="diamond", color=GREY, size=42, strokeWidth=1.5, aria=False).encode(x=x("majority")),
        *_values_with_intervals(base),
    ]
    return _row_figure(layers, rows.height)


def strip_figure(rows: pl.DataFrame, dots: pl.DataFrame) -> str:
    """Several values a dataset as dots, and their mean with its interval, one row a dataset, on a scale from 0 to 1.

    Args:
        rows: dataset, value, ci_low, ci_high and description, in drawing order. A null is not drawn.
        dots: dataset and value.
    """
    y = _dataset_rows(rows)
    several = alt.Chart(dots).mark_point(filled=True, color=GREY, size=46, opacity=0.45, aria=False)
    layers = [several.encode(y=y, x=_row_place("value")), *_values_with_intervals(alt.Chart(rows).encode(y=y))]
    return _row_figure(layers, rows.height)


def _dataset_rows(rows: pl.DataFrame) -> alt.Y:
    y = alt.Y("dataset:N", sort=rows["dataset"].to_list(), title=None)
    return y.axis(labelFontSize=12, labelLimit=INTERVAL_ROOM["left"] - 10, grid=True, gridColor=GRID)


def _row_place(column: str) -> alt.X:
    axis = alt.Axis(values=[0, 0.2, 0.4, 0.6, 0.8, 1], format=".1f", grid=True, gridColor="#e3e6ea")
    return alt.X(f"{column}:Q", title=None, axis=axis).scale(domain=[0, 1], clamp=True)


def _values_with_intervals(base: alt.Chart) -> list[alt.Chart]:
    """Over everything else, and with the band that tells its numbers."""
    return [
        base.mark_rule(color=BLUE, strokeWidth=2, aria=False).encode(x=_row_place("ci_low"), x2="ci_high:Q"),
        base.mark_point(filled=True, color=BLUE, size=58, opacity=1, aria=False).encode(x=_row_place("value")),
        base.mark_bar(color="#ffffff", fillOpacity=0, height=ROW_HEIGHT - 2).encode(
            x=alt.datum(0, scale=alt.Scale(domain=[0, 1])), x2=alt.datum(1), description="description:N"
        ),
    ]


def _row_figure(layers: list[alt.Chart], n_rows: int) -> str:
    return as_svg(alt.layer(*layers).properties(width=INTERVAL_WIDTH, height=ROW_HEIGHT * n_rows), INTERVAL_ROOM)


def reliability_figure(bins: pl.DataFrame) -> str:
    """Accuracy against mean confidence, one point a bin, its area the share of predictions in the bin.

    Args:
        bins: bin_low, bin_high, n_requests, mean_confidence and accuracy of one dataset; an empty bin is not drawn.
    """
    filled = bins.filter(pl.col("n_requests") > 0).with_columns(
        share=pl.col("n_requests") / pl.col("n_requests").sum(),
        description=pl.format(
            "Confidence {} to {}: {} predictions, mean confidence {}, accuracy {}",
            "bin_low",
            "bin_high",
            "n_requests",
            pl.col("mean_confidence").round(3),
            pl.col("accuracy").round(3),
        ),
    )
    base = alt.Chart(filled)
    diagonal = alt.Chart(pl.DataFrame({"at": [0.0, 1.0]})).mark_line(
        color=GREY, strokeDash=[3, 3], strokeWidth=1, aria=False
    )
    x, y = _unit(alt.X, "mean_confidence", "confidence"), _unit(alt.Y, "accuracy", "accuracy")
    area = alt.Size("share:Q", legend=None).scale(domain=[0, 1], range=[12, 420])
    layers = [
        diagonal.encode(x=_unit(alt.X, "at", "confidence"), y=_unit(alt.Y, "at", "accuracy")),
        base.mark_rule(color=VERMILION, strokeWidth=1.5, aria=False).encode(x=x, y=y, y2="mean_confidence:Q"),
        base.mark_line(color=BLUE, strokeWidth=1, opacity=0.5, aria=False).encode(x=x, y=y),
        base.mark_point(filled=True, color=BLUE, opacity=0.85, aria=False).encode(x=x, y=y, size=area),
        base.mark_rect(color="#ffffff", fillOpacity=0).encode(
            x=_unit(alt.X, "bin_low", "confidence"), x2="bin_high:Q", description="description:N"
        ),
    ]
    return as_svg(alt.layer(*layers).properties(width=PANEL_WIDTH, height=PANEL_WIDTH), PANEL_ROOM)


def noise_figure(points: pl.DataFrame, chance: float | None) -> str:
    """Accuracy over the noise rate, one point a rate, with chance as a dashed line where it is known.

    Args:
        points: noise_rate, accuracy and description of one dataset.
    """
    rate, reach = pl.col("noise_rate"), 0.5 / max(points.height - 1, 1)
    points = points.with_columns(low=(rate - reach).clip(0, 1), high=(rate + reach).clip(0, 1))
    base, x, y = alt.Chart(points), _unit(alt.X, "noise_rate", "noise rate"), _unit(alt.Y, "accuracy", "accuracy")
    guess = pl.DataFrame({"noise_rate": [0.0, 1.0], "accuracy": [chance, chance]}, schema_overrides=CHANCE_LINE)
    layers = [
        alt.Chart(guess).mark_line(color=GREY, strokeDash=[3, 3], strokeWidth=1, aria=False).encode(x=x, y=y),
        base.mark_line(color=BLUE, strokeWidth=2, aria=False).encode(x=x, y=y),
        base.mark_point(filled=True, color=BLUE, size=46, opacity=1, aria=False).encode(x=x, y=y),
        base.mark_rect(color="#ffffff", fillOpacity=0).encode(
            x=_unit(alt.X, "low", "noise rate"), x2="high:Q", description="description:N"
        ),
    ]
    return as_svg(alt.layer(*layers).properties(width=PANEL_WIDTH, height=PANEL_WIDTH), PANEL_ROOM)


def _unit(channel: Any, column: str, title: str) -> Any:
    extent = 18 if channel is alt.X else 26
    axis = alt.Axis(values=[0, 0.5, 1], format=".1f", gridColor=GRID, minExtent=extent, maxExtent=extent)
    return channel(f"{column}:Q", title=title, axis=axis).scale(domain=[0, 1])


def as_svg(chart: alt.LayerChart, room: dict[str, int]) -> str:
    """The chart as one SVG element, in the report's style, with `room` in pixels around it for its axes."""
    styled = (
        # Sized by hand, so that panels line up and nothing depends on the fonts of the machine that draws.
        chart.configure(font="sans-serif", background="transparent", autosize="none", padding=room)
        .configure_view(stroke=None)
        .configure_axis(domainColor="#c3c9d0", ticks=False, labelPadding=5, labelColor=INK, labelFontSize=11)
        .configure_axisX(titleColor=INK, titleFontWeight="normal", titleFontSize=11)
        .configure_axisY(titleColor=INK, titleFontWeight="normal", titleFontSize=11)
    )
    return drawn(styled)


def drawn(chart: alt.LayerChart | alt.HConcatChart) -> str:
    """The chart as one SVG element, text in it escaped."""
    svg = vl_convert.vegalite_to_svg(chart.to_dict(), vl_version=VEGA_LITE)
    assert isinstance(svg, str)
    return _without_ballast(svg)


def _without_ballast(svg: str) -> str:
    """The same to look at in the page, whose style names the font; places to a hundredth of a pixel."""
    for unseen in BALLAST:
        svg = svg.replace(unseen, "")
    return re.sub(r' (?:transform|d|x2|y2)="[^"]*"', lambda place: re.sub(r"(\.\d\d)\d+", r"\1", place[0]), svg)
