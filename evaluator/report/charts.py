"""Altair charts in the report's style, drawn as SVG elements when a page is written.

Such a figure needs no script and no network to be seen, and prints as it looks. Vega's scripts in the page would weigh
0.9 MB, and would draw a hundred views at every opening. What the reader points at is a transparent band whose
aria-label holds the numbers: the page shows it as a tooltip, a screen reader reads it out.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import altair as alt
import polars as pl
import vl_convert

BLUE, VERMILION, GREY, INK = "#0072b2", "#d55e00", "#767676", "#3d4650"
"""Blue and vermilion of Okabe and Ito's palette, told apart with any colour vision; shapes differ as well."""

GREEN, PURPLE = "#009e73", "#cc79a7"
"""Further colours of the same palette."""

GRID = "#eef0f3"

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])

X_LABELS, Y_LABELS = 18, 30
"""Pixels that the labels of an axis take; its title is beyond them, at the same place on all panels."""

VegaSpec = Mapping[str, Any]
"""A compiled chart: what vl_convert.vegalite_to_vega returns."""


class Room(NamedTuple):
    """Pixels around the plot, for labels and titles of its axes."""

    left: int
    right: int
    top: int
    bottom: int


def styled(chart: alt.LayerChart, room: Room) -> alt.LayerChart:
    """Give a chart the report's fonts and colours, and `room` around it."""
    return (
        # Sized by hand, so that panels line up and nothing depends on the fonts of the machine that draws.
        chart.configure(font="sans-serif", background="transparent", autosize="none", padding=room._asdict())
        .configure_view(stroke=None)
        .configure_axis(
            domainColor="#c3c9d0",
            ticks=False,
            labelPadding=5,
            labelColor=INK,
            labelFontSize=11,
            titleColor=INK,
            titleFontSize=11,
            titleFontWeight="normal",
        )
        .configure_axisX(minExtent=X_LABELS, maxExtent=X_LABELS, labelFlush=False)
        .configure_axisY(minExtent=Y_LABELS, maxExtent=Y_LABELS)
    )


def compiled(chart: alt.LayerChart | alt.HConcatChart) -> VegaSpec:
    """Compile a chart, which takes five times as long as drawing it: once for all figures that differ in their data.

    Data of such a chart are named (`alt.NamedData`) and are given to draw_svg.
    """
    spec: VegaSpec = vl_convert.vegalite_to_vega(chart.to_dict(), vl_version=VEGA_LITE)
    return spec


def draw_svg(spec: VegaSpec, **tables: pl.DataFrame) -> str:
    """Draw a compiled chart as one SVG element; texts in it are escaped.

    Args:
        tables: by the names of the chart's data; a null or NaN is not drawn.
    """
    rows = {name: table.fill_nan(None).to_dicts() for name, table in tables.items()}
    missing = rows.keys() - {data["name"] for data in spec["data"]}
    assert not missing, f"the chart has no data named {missing}"
    data = [entry | {"values": rows[entry["name"]]} if entry["name"] in rows else entry for entry in spec["data"]]
    svg: str = vl_convert.vega_to_svg({**spec, "data": data})
    return svg


def chart_svg(chart: alt.LayerChart, room: Room) -> str:
    """Draw a chart that is drawn once as an SVG element."""
    return draw_svg(compiled(styled(chart, room)))
