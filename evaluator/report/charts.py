"""Style Altair charts, and draw them as SVG elements when a page is written.

Such a figure needs neither scripts nor a network, and looks the same in print. Vega's scripts would add 0.9 MB to the
page and draw a hundred views whenever it is opened. Transparent marks over a figure hold the numbers in their
aria-label: the page shows it as a tooltip, and a screen reader reads it. assets/page.css gives the colours of figures
their dark counterparts, so a figure uses the colours that are named here.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import altair as alt
import polars as pl
import vl_convert
from markupsafe import Markup, escape

from evaluator.files.whole import csv_text
from evaluator.redaction import all_printable

BLUE, VERMILION, GREY, INK = "#0072b2", "#d55e00", "#767676", "#3d4650"
"""Blue and vermilion of Okabe and Ito's palette, distinguishable with any colour vision; shapes differ as well."""

GREEN, PURPLE = "#009e73", "#cc79a7"
"""Further colours of the same palette."""

GRID, AXIS = "#eef0f3", "#c3c9d0"

VEGA_LITE = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])

X_LABELS, Y_LABELS = 18, 30
"""Pixels reserved for the labels of an axis, so that its title is at the same place on all panels."""

Channel = TypeVar("Channel", alt.X, alt.Y)

VegaSpec = Mapping[str, Any]
"""A compiled chart: what vl_convert.vegalite_to_vega returns."""


class Drawing(str):
    """An SVG element with the data that it shows. A template puts both on the page, which offers them as files."""

    csv: str

    def __new__(cls, svg: str, csv: str) -> "Drawing":
        drawing = super().__new__(cls, svg)
        drawing.csv = csv
        return drawing

    def __html__(self) -> str:
        data = escape(self.csv)
        return Markup('<div class="drawn" data-csv="{}">{}</div>').format(data, Markup(str(self)))  # noqa: S704


class Room(NamedTuple):
    """Pixels around the plot, for labels and titles of its axes."""

    left: int
    right: int
    top: int
    bottom: int


def styled(chart: alt.LayerChart, room: Room) -> alt.LayerChart:
    """Return the chart with the report's fonts and colours, and `room` around it."""
    config = alt.Config(
        font="sans-serif",
        background="transparent",
        # Fixed sizes align panels, and do not depend on the fonts of the machine.
        autosize="none",
        padding=room._asdict(),
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(
            domainColor=AXIS,
            ticks=False,
            labelPadding=5,
            labelColor=INK,
            labelFontSize=11,
            titleColor=INK,
            titleFontSize=11,
            titleFontWeight="normal",
        ),
        axisX=alt.AxisConfig(minExtent=X_LABELS, maxExtent=X_LABELS, labelFlush=False),
        axisY=alt.AxisConfig(minExtent=Y_LABELS, maxExtent=Y_LABELS),
    )
    return chart.properties(config=config)  # one copy of the chart; each configure_ method makes another


def compiled(chart: alt.LayerChart | alt.HConcatChart) -> VegaSpec:
    """Compile a chart from Vega-Lite to Vega, which takes five times as long as drawing it.

    Figures that differ only in their data share a compiled chart with named data (`alt.NamedData`) for draw_svg.
    """
    # Validation takes long and depends only on our code: tests validate every chart that they draw (tests/conftest.py).
    drawn = all_printable(chart.to_dict(validate=False))
    spec: VegaSpec = vl_convert.vegalite_to_vega(drawn, vl_version=VEGA_LITE)
    return spec


def draw_svg(spec: VegaSpec, *, data: pl.DataFrame | None = None, **tables: pl.DataFrame) -> Drawing:
    """Draw a compiled chart as one SVG element; texts in it are escaped.

    Args:
        data: what a reader gets as the figure's CSV, at full precision; `tables`, one below the other, if left out.
        tables: name of the chart's data -> rows; a null or NaN is not drawn.
    """
    # The library that draws aborts the process at a control code.
    rows = {name: all_printable(table.fill_nan(None).to_dicts()) for name, table in tables.items()}
    missing = rows.keys() - {data["name"] for data in spec["data"]}
    assert not missing, f"the chart has no data named {missing}"
    filled = [entry | {"values": rows[entry["name"]]} if entry["name"] in rows else entry for entry in spec["data"]]
    svg: str = vl_convert.vega_to_svg({**spec, "data": filled})
    return Drawing(svg, figure_csv(stacked(**tables) if data is None else data))


def figure_csv(data: pl.DataFrame) -> str:
    """Return the data of a figure as CSV, without the column `description`, which says the same in words."""
    return csv_text(data.drop("description", strict=False))


def stacked(**tables: pl.DataFrame) -> pl.DataFrame:
    """Return the tables of a figure as one; the column `drawn_as` tells several apart."""
    if len(tables) < 2:
        return next(iter(tables.values()), pl.DataFrame())
    named = [table.select(pl.lit(name).alias("drawn_as"), pl.all()) for name, table in tables.items()]
    return pl.concat(named, how="diagonal_relaxed")
