"""Draw the figures of pages as SVG: rows of intervals, and panels that are built from layers of marks.

Charts are written as Vega-Lite's JSON, because importing Altair needs as much time as drawing all of these figures.
Compiled charts are cached, because compiling takes five times as long as drawing: figures that differ only in their
data share a chart.

Figures are drawn when the page is written. So they need neither scripts nor a network, and look the same in print;
Vega's scripts would add 0.9 MB to the page and draw a hundred views whenever it is opened. Transparent marks over a
figure hold the numbers in their aria-label, which the page shows as a tooltip and a screen reader reads. Figures may
use only the colours that are named here, because assets/page.css replaces these colours in dark mode.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import polars as pl
import vl_convert
from markupsafe import Markup, escape

from evaluator.redaction import all_printable, csv_text

BLUE, VERMILION, GREY, INK = "#0072b2", "#d55e00", "#767676", "#3d4650"
"""Colours of figures. Blue and vermilion are of Okabe and Ito's palette, distinguishable with any colour vision."""

GREEN, PURPLE = "#009e73", "#cc79a7"
"""Further colours of Okabe and Ito's palette."""

GRID, AXIS = "#eef0f3", "#c3c9d0"

VEGA_LITE = "6.4"
"""Version of Vega-Lite that charts are written for."""

X_LABELS, Y_LABELS = 18, 30
"""Pixels reserved for the tick labels of the x and the y axis, so that axis titles align between panels."""

VegaSpec = dict[str, Any]
"""A chart in Vega-Lite's JSON, a part of such a chart, or a chart compiled to Vega."""


class Drawing(str):
    """An SVG element with its data as CSV. A template puts both on the page, where page.js offers them as downloads."""

    csv: str

    def __new__(cls, svg: str, csv: str) -> "Drawing":
        drawing = super().__new__(cls, svg)
        drawing.csv = csv
        return drawing

    def __html__(self) -> str:
        data = escape(self.csv)
        return Markup('<div class="drawn" data-csv="{}">{}</div>').format(data, Markup(str(self)))  # noqa: S704


class Size(NamedTuple):
    """Size of a plot in pixels, and of the margins around it, which hold labels and titles of the axes."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int


def styled(layers: Sequence[VegaSpec], size: Size) -> VegaSpec:
    """Return a Vega-Lite chart of the layers with the fonts and colours of the report."""
    labels = {"labelColor": INK, "labelFontSize": 11, "labelPadding": 5}
    titles = {"titleColor": INK, "titleFontSize": 11, "titleFontWeight": "normal"}
    config = {
        "font": "sans-serif",
        "background": "transparent",
        # A fixed size and padding align panels, and do not depend on the fonts of the machine.
        "autosize": "none",
        "padding": {side: getattr(size, side) for side in ("left", "right", "top", "bottom")},
        "view": {"stroke": None},
        "axis": {"domainColor": AXIS, "ticks": False, **labels, **titles},
        "axisX": {"minExtent": X_LABELS, "maxExtent": X_LABELS, "labelFlush": False},
        "axisY": {"minExtent": Y_LABELS, "maxExtent": Y_LABELS},
    }
    return {"layer": layers, "width": size.width, "height": size.height, "config": config}


def compiled(chart: VegaSpec) -> VegaSpec:
    """Compile a chart from Vega-Lite to Vega, which takes five times as long as drawing it.

    A chart with named data is compiled once, and draw_svg fills in the rows of each figure. Tests validate every chart
    that they compile (tests/conftest.py).
    """
    spec: VegaSpec = vl_convert.vegalite_to_vega(all_printable(chart), vl_version=VEGA_LITE)
    return spec


def draw_svg(spec: VegaSpec, *, data: pl.DataFrame | None = None, **tables: pl.DataFrame) -> Drawing:
    """Draw a compiled chart as one SVG element; texts in it are escaped.

    Args:
        spec: compiled chart, as `compiled` returns it.
        data: table that a reader can download as CSV, at full precision; if left out, `stacked(**tables)`.
        tables: name of a data source of the chart -> its rows; a null or NaN is not drawn.
    """
    values = {name: table.fill_nan(None).to_dicts() for name, table in tables.items()}
    # Without descriptions, which repeat the numbers in words.
    csv = csv_text((stacked(**tables) if data is None else data).drop("description", strict=False))
    rows = all_printable(values)  # vl_convert aborts the process on a control code in a text
    missing = rows.keys() - {data["name"] for data in spec["data"]}
    assert not missing, f"the chart has no data named {missing}"
    filled = [entry | {"values": rows[entry["name"]]} if entry["name"] in rows else entry for entry in spec["data"]]
    svg: str = vl_convert.vega_to_svg({**spec, "data": filled})
    return Drawing(svg, csv)


def stacked(**tables: pl.DataFrame) -> pl.DataFrame:
    """Concatenate the tables of a figure; if there are several, the column `drawn_as` has the name of the table."""
    if len(tables) < 2:
        return next(iter(tables.values()), pl.DataFrame())
    named = [table.select(pl.lit(name).alias("drawn_as"), pl.all()) for name, table in tables.items()]
    return pl.concat(named, how="diagonal_relaxed")


ROW_HEIGHT, TICK = 26, 18
INTERVALS = Size(320, ROW_HEIGHT, left=134, right=12, top=4, bottom=22)  # size of a figure with one row

DASHES: dict[str, list[int]] = {"solid": [1, 0], "dashed": [5, 3], "dotted": [2, 2], "mixed": [8, 3, 2, 3]}
"""Name of a dash pattern -> lengths of dashes and gaps in pixels. Dashes distinguish lines without colours."""


PANEL = Size(150, 150, left=48, right=12, top=12, bottom=36)
TIME_LINE = Size(320, 90, left=78, right=12, top=4, bottom=36)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """An axis of a plot: title, range, ticks and labels."""

    title: str | None = None
    domain: tuple[float, float] | None = None  # ends of the axis; None: from the data
    ticks: tuple[float, ...] | int = 5  # values of the ticks, or their approximate number
    form: str = ""  # d3 number format of the labels
    labels: str = ""  # Vega expression for the labels, instead of `form`
    is_logarithmic: bool = False
    has_grid: bool = True


CONFIDENCE = Axis(title="confidence", domain=(0, 1), ticks=(0, 0.5, 1), form=".1f")
ACCURACY, USED, NOISE = (replace(CONFIDENCE, title=title) for title in ("accuracy", "share that is used", "noise rate"))


@dataclass(frozen=True)
class Mark:
    """A layer of a plot: one shape for each row of a table, or one line over all rows. A null or NaN is not drawn."""

    kind: Literal["line", "point", "rule", "bar", "text", "band"]
    """Shape. A band is a transparent rectangle with the description of its row, for tooltips and screen readers."""

    x: str = ""  # column of the x position; "": the whole width
    y: str = ""  # column of the y position; "": the whole height
    _: KW_ONLY
    rows: str = "rows"  # name of the table
    x2: str = ""  # column of the other end
    y2: str | float = ""  # column or constant of the other end
    color: str = BLUE  # colour of all shapes, or "colour": the column of that name
    opacity: float = 1
    size: float = 2  # width of lines, area of points or size of letters, in pixels
    dash: tuple[int, ...] = ()
    area: str = ""  # column of shares, 0 to 1, that scale the areas of points, instead of `size`
    text: str = ""  # column of texts; columns `dx` and `dy` shift each text by pixels
    is_described: bool = False  # shapes have the column `description` as aria-label
    is_dashed: bool = False  # the column `dash` has the name of a dash pattern in DASHES
    order: str = ""  # column by which the points of a line are connected
    steps: bool = False  # a line is drawn as steps


LINES = Mark("line", "x", "y", rows="lines", color="colour", size=1.6, is_dashed=True, is_described=True)
"""Several lines, one for each value of `description`; the table `lines` has x, y, colour, dash (a name of DASHES) and
description. All lines are one mark, because one layer for each line would take several times as long to draw."""


def panel(
    marks: Sequence[Mark],
    x: Axis,
    y: Axis,
    *,
    size: Size = PANEL,
    data: pl.DataFrame | None = None,
    **tables: pl.DataFrame,
) -> Drawing:
    """Draw one plot of several layers.

    Args:
        marks: layers, the first at the bottom.
        data: table that a reader can download as CSV; if left out, `stacked(**tables)`.
        tables: name of a table, as in Mark.rows -> its rows.
    """
    return draw_svg(_plot(tuple(marks), x, y, size), data=data, **tables)


def interval_rows(rows: pl.DataFrame, dots: pl.DataFrame | None = None) -> Drawing:
    """Draw values with their intervals on a scale from 0 to 1, one row for each dataset. A null is not drawn.

    Args:
        rows: dataset, value, ci_low, ci_high and description, in drawing order; chance and majority are optional, but
            both or neither.
        dots: dataset and value: further values of the datasets, drawn as grey points.
    """
    tables = {"rows": rows} if dots is None else {"rows": rows, "dots": dots}
    return draw_svg(_rows_chart(tuple(rows["dataset"]), "chance" in rows.columns, dots is not None), **tables)


def reliability_figure(bins: pl.DataFrame) -> Drawing:
    """Draw accuracy against mean confidence: one point for each bin, whose area is the bin's share of predictions.

    Args:
        bins: bin_low, bin_high, n_requests, mean_confidence and accuracy of one dataset; empty bins are not drawn.
    """
    filled = bins.filter(pl.col("n_requests") > 0)
    description = pl.format(
        "Confidence {} to {}: {} predictions, mean confidence {}, accuracy {}",
        *("bin_low", "bin_high", "n_requests"),
        *(pl.col(name).round(3) for name in ("mean_confidence", "accuracy")),
    )
    filled = filled.with_columns(share=pl.col("n_requests") / pl.col("n_requests").sum(), description=description)
    at = ("mean_confidence", "accuracy")
    marks = [
        Mark("line", "at", "at", rows="diagonal", color=GREY, size=1, dash=(3, 3)),
        Mark("rule", *at, rows="bins", y2="mean_confidence", color=VERMILION, size=1.5),
        Mark("line", *at, rows="bins", size=1, opacity=0.5),
        Mark("point", *at, rows="bins", area="share", opacity=0.85),
        Mark("band", "bin_low", rows="bins", x2="bin_high"),
    ]
    return panel(marks, CONFIDENCE, ACCURACY, data=bins, bins=filled, diagonal=pl.DataFrame({"at": [0, 1]}))


def risk_coverage_figure(points: pl.DataFrame) -> Drawing:
    """Draw accuracy, with its interval, over the share of answers that are used.

    Args:
        points: schemas.RISK_COVERAGE of one dataset.
    """
    text = pl.format("From {}: {} used, accuracy {}", *(pl.col(n).round(3) for n in ("threshold", "share", "accuracy")))
    # The tooltip of a point covers the shares from the previous point to this one.
    rows = points.sort("share").with_columns(description=text, low=pl.col("share").shift(1).fill_null(0.0))
    marks = [
        Mark("rule", "share", "accuracy_low", y2="accuracy_high", size=2, opacity=0.25),
        Mark("line", "share", "accuracy", size=1.5),
        Mark("band", "low", x2="share"),
    ]
    return panel(marks, USED, ACCURACY, data=points, rows=rows)


def noise_figure(points: pl.DataFrame, chance: float | None) -> Drawing:
    """Draw accuracy over the noise rate, one point for each rate; chance, if not None, is a dashed line.

    Args:
        points: noise_rate, accuracy and description of one dataset.
    """
    with_chance = points.with_columns(chance=pl.lit(chance, pl.Float64))
    return _accuracy_curve(with_chance, NOISE, "noise_rate", "accuracy", 0.5 / max(points.height - 1, 1))


def learning_curve_figure(points: pl.DataFrame) -> Drawing:
    """Draw accuracy with its interval over the number of demonstrations before the label; chance is a dashed line.

    Args:
        points: n_shots, value, ci_low, ci_high, chance and description of one dataset.
    """
    n_shots = max(points["n_shots"].to_list())
    # Eight or nine tick labels at most, as there is no room for more.
    ticks = tuple(range(0, n_shots + 1, max(1, -(-n_shots // 8))))
    x = Axis(title="demonstrations before", domain=(-0.5, n_shots + 0.5), ticks=ticks, form="d", has_grid=False)
    interval = Mark("rule", "n_shots", "ci_low", y2="ci_high", size=1.5, opacity=0.6)
    return _accuracy_curve(points, x, "n_shots", "value", 0.5, interval)


def _accuracy_curve(points: pl.DataFrame, x: Axis, at: str, value: str, reach: float, *more: Mark) -> Drawing:
    """Draw the column `value` over the column `at`, and chance as a dashed line from the first point to the last.

    Args:
        points: at, value, chance and description, sorted by `at`.
        reach: half the width of each point's tooltip area, in the unit of `at`.
        more: further layers below the curve.
    """
    sides = {"low": pl.col(at) - reach, "high": pl.col(at) + reach}
    banded = points.with_columns(side.clip(*(x.domain or ())).alias(name) for name, side in sides.items())
    marks = [
        Mark("line", at, "chance", rows="guess", color=GREY, size=1, dash=(3, 3)),
        *more,
        Mark("line", at, value),
        Mark("point", at, value, size=46),
        Mark("band", "low", x2="high"),
    ]
    return panel(marks, x, ACCURACY, data=points, rows=banded, guess=points.select(at, "chance")[[0, -1]])


def throughput_figure(rates: Sequence[float], period_s: float, title: str) -> Drawing:
    """Draw a rate over time as bars, one bar for each period.

    Args:
        rates: rate of each period; periods follow one another, and the first begins at 0.
        period_s: length of a period in seconds.
        title: title of the vertical axis, the unit of the rates.
    """
    rows = [
        {"start_s": place * period_s, "end_s": (place + 1) * period_s, "rate": rate}
        | {"description": f"{place * period_s:,.0f} to {(place + 1) * period_s:,.0f} s: {rate:,.1f} {title}"}
        for place, rate in enumerate(rates)
    ]
    marks = [Mark("bar", x="start_s", x2="end_s", y="rate", y2=0, opacity=0.45), Mark("band", "start_s", x2="end_s")]
    x, y = Axis(title="seconds of scoring", ticks=4), Axis(title=title, ticks=3, form="~s")
    return panel(marks, x, y, rows=pl.DataFrame(rows))


def time_line(stages: Mapping[str, float]) -> Drawing:
    """Draw consecutive stages as bars over time, one below the other.

    Args:
        stages: title of a stage -> its duration in seconds, in order of time.
    """
    rows = [
        {"stage": stage, "start_s": end_s - seconds, "end_s": end_s, "top": place, "bottom": place + 0.8}
        | {"description": f"{stage}: {seconds:,.1f} s, until {end_s:,.1f} s"}
        for place, (end_s, (stage, seconds)) in enumerate(zip(accumulate(stages.values()), stages.items(), strict=True))
    ]
    marks = [Mark("bar", "start_s", "top", x2="end_s", y2="bottom", is_described=True)]
    labels = f"{[*stages]}[floor(datum.value)]"
    middles = tuple(place + 0.4 for place in range(len(rows)))
    y = Axis(domain=(len(rows), 0), ticks=middles, labels=labels, has_grid=False)
    return panel(marks, Axis(title="seconds"), y, size=TIME_LINE, rows=pl.DataFrame(rows))


@cache
def _plot(marks: tuple[Mark, ...], x: Axis, y: Axis, size: Size) -> VegaSpec:
    return compiled(styled([_layer(mark, x, y) for mark in marks], size))


def _layer(mark: Mark, x: Axis, y: Axis) -> VegaSpec:
    is_described, of_column = mark.is_described or mark.kind == "band", mark.color == "colour"
    dashes = {"domain": list(DASHES), "range": list(DASHES.values())}
    channels = {
        "x": mark.x and _channel(mark.x, x),
        "y": mark.y and _channel(mark.y, y),
        "x2": mark.x2 and {"field": mark.x2},
        "y2": mark.y2 != "" and {"field" if isinstance(mark.y2, str) else "datum": mark.y2},
        "color": of_column and _field("colour", "nominal", scale=None),
        "description": is_described and _field("description", "nominal"),
        "strokeDash": mark.is_dashed and _field("dash", "nominal", legend=None, scale=dashes),
        "detail": mark.is_dashed and _field("description", "nominal"),
        "order": mark.order and _field(mark.order),
        "size": mark.area and _field(mark.area, legend=None, scale={"domain": [0, 1], "range": [12, 420]}),
        "text": mark.text and _field(mark.text, "nominal"),
    }
    steps = "step-before" if mark.steps else None
    stroke = {"strokeWidth": mark.size, "opacity": mark.opacity, "strokeDash": [*mark.dash] or None}
    place = {name: {"expr": f"datum.{name}"} for name in ("dx", "dy")}
    shapes: dict[str, VegaSpec] = {
        "line": stroke | {"interpolate": steps},
        "rule": stroke,
        "point": {"filled": True, "opacity": mark.opacity, "size": None if mark.area else mark.size},
        "text": place | {"align": "left", "baseline": "alphabetic", "fontSize": mark.size},
        "band": {"color": "#ffffff", "fillOpacity": 0},
        "bar": {"opacity": mark.opacity},
    }
    shape = {"aria": is_described, "color": None if of_column else mark.color} | shapes[mark.kind]
    kind = "rect" if mark.kind in ("bar", "band") else mark.kind
    given = {name: value for name, value in shape.items() if value is not None}
    return _marks(kind, given, {name: channel for name, channel in channels.items() if channel}, rows=mark.rows)


def _marks(kind: str, shape: VegaSpec, channels: VegaSpec, rows: str = "rows") -> VegaSpec:
    """Return a Vega-Lite layer; `rows` is the name of its data source, see draw_svg."""
    return {"data": {"name": rows}, "mark": {"type": kind, **shape}, "encoding": channels}


def _field(column: str, kind: str = "quantitative", **more: Any) -> VegaSpec:
    """Return the Vega-Lite encoding of a column; `kind` is its type of measurement."""
    return {"field": column, "type": kind, **more}


def _channel(column: str, axis: Axis) -> VegaSpec:
    """Return the Vega-Lite encoding of a column as a position along an axis."""
    ticks: VegaSpec = {"tickCount": axis.ticks} if isinstance(axis.ticks, int) else {"values": list(axis.ticks)}
    labels = {"format": axis.form} if axis.form else {"labelExpr": axis.labels} if axis.labels else {}
    drawn = {**ticks, **labels, "gridColor": GRID, "grid": axis.has_grid}
    scale: dict[str, Any] = {"nice": False, "domain": list(axis.domain)} if axis.domain else {}
    scale |= {"type": "log"} if axis.is_logarithmic else {"zero": axis.domain is None}
    return _field(column, title=axis.title, axis=drawn, scale=scale)


def load_compiler() -> None:
    """Load vl_convert's compiler by compiling a chart, which takes 0.3 s without the GIL; later charts take 0.01 s."""
    _rows_chart(("",), has_baselines=False, has_dots=False)


@cache
def _rows_chart(names: tuple[str, ...], has_baselines: bool, has_dots: bool) -> VegaSpec:
    axis = {"labelFontSize": 12, "labelLimit": INTERVALS.left - 10, "grid": True, "gridColor": GRID}
    y = {"y": _field("dataset", "nominal", sort=list(names), title=None, axis=axis)}

    def x(column: str) -> VegaSpec:
        axis = {"values": [0, 0.2, 0.4, 0.6, 0.8, 1], "format": ".1f", "grid": True, "gridColor": "#e3e6ea"}
        return y | {"x": _field(column, title=None, axis=axis, scale={"domain": [0, 1], "clamp": True})}

    tick = {"color": VERMILION, "size": TICK, "opacity": 1, "aria": False, "thickness": 2}
    diamond = {"shape": "diamond", "color": GREY, "size": 42, "strokeWidth": 1.5, "aria": False}
    dot = {"filled": True, "color": GREY, "size": 46, "opacity": 0.45, "aria": False}
    value = {"filled": True, "color": BLUE, "size": 58, "opacity": 1, "aria": False}
    # A transparent bar over each row holds the description, as aria-label.
    band = {"color": "#ffffff", "fillOpacity": 0, "height": ROW_HEIGHT - 2}
    along = {"x": {"datum": 0, "scale": {"domain": [0, 1]}}, "x2": {"datum": 1}}
    layers = [
        *([_marks("tick", tick, x("chance")), _marks("point", diamond, x("majority"))] if has_baselines else []),
        *([_marks("point", dot, x("value"), rows="dots")] if has_dots else []),
        _marks("rule", {"color": BLUE, "strokeWidth": 2, "aria": False}, x("ci_low") | {"x2": {"field": "ci_high"}}),
        _marks("point", value, x("value")),
        _marks("bar", band, y | along | {"description": _field("description", "nominal")}),
    ]
    return compiled(styled(layers, INTERVALS._replace(height=ROW_HEIGHT * len(names))))
