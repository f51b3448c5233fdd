"""Draw the figures of a classification run as SVG elements."""

from collections.abc import Sequence
from functools import cache

import altair as alt
import polars as pl

from evaluator.report.charts import (
    BLUE,
    GREY,
    GRID,
    VERMILION,
    Drawing,
    Room,
    VegaSpec,
    compiled,
    draw_svg,
    styled,
    unit_channel,
)

ROW_HEIGHT, TICK = 26, 18
INTERVAL_WIDTH, INTERVAL_ROOM = 320, Room(left=134, right=12, top=4, bottom=22)
PANEL_WIDTH, PANEL_ROOM = 150, Room(left=48, right=12, top=12, bottom=36)

CHANCE_LINE = {"noise_rate": pl.Float64(), "accuracy": pl.Float64()}

Names = tuple[str, ...]


def interval_figure(rows: pl.DataFrame) -> Drawing:
    """Draw values with their intervals, one row a dataset, on a scale from 0 to 1.

    Args:
        rows: dataset, value, ci_low, ci_high, chance, max_random, majority and description, in drawing order. A null is
            not drawn.
    """
    return draw_svg(_interval_chart(tuple(rows["dataset"])), rows=rows)


def strip_figure(rows: pl.DataFrame, dots: pl.DataFrame) -> Drawing:
    """Draw several values a dataset as dots, and their mean with its interval, on a scale from 0 to 1.

    Args:
        rows: dataset, value, ci_low, ci_high and description, in drawing order. A null is not drawn.
        dots: dataset and value.
    """
    return draw_svg(_strip_chart(tuple(rows["dataset"])), rows=rows, dots=dots)


def reliability_figure(bins: pl.DataFrame) -> Drawing:
    """Draw accuracy against mean confidence, one point a bin, its area the share of predictions in the bin.

    Args:
        bins: bin_low, bin_high, n_requests, mean_confidence and accuracy of one dataset; an empty bin is not drawn.
    """
    filled = bins.filter(pl.col("n_requests") > 0)
    descriptions = [
        f"Confidence {row['bin_low']} to {row['bin_high']}: {row['n_requests']} predictions, mean confidence "
        f"{round(row['mean_confidence'], 3)}, accuracy {round(row['accuracy'], 3)}"
        for row in filled.iter_rows(named=True)
    ]
    filled = filled.with_columns(
        share=pl.col("n_requests") / pl.col("n_requests").sum(),
        description=pl.Series(descriptions, dtype=pl.String),
    )
    return draw_svg(_reliability_chart(), data=bins, bins=filled)


def noise_figure(points: pl.DataFrame, chance: float | None) -> Drawing:
    """Draw accuracy over the noise rate, one point a rate; chance, if not None, is a dashed line.

    Args:
        points: noise_rate, accuracy and description of one dataset.
    """
    # Each point has a transparent band, halfway to the next rates, that holds its description.
    rate, reach = pl.col("noise_rate"), 0.5 / max(points.height - 1, 1)
    banded = points.with_columns(low=(rate - reach).clip(0, 1), high=(rate + reach).clip(0, 1))
    guess = pl.DataFrame({"noise_rate": [0.0, 1.0], "accuracy": [chance, chance]}, schema_overrides=CHANCE_LINE)
    return draw_svg(_noise_chart(), data=points.with_columns(chance=pl.lit(chance)), points=banded, guess=guess)


def learning_curve_figure(points: pl.DataFrame) -> Drawing:
    """Accuracy with its interval over the number of preceding demonstrations, chance as a dashed line.

    Args:
        points: n_shots, value, ci_low, ci_high, chance and description of one dataset.
    """
    reach = 0.5
    banded = points.with_columns(low=pl.col("n_shots") - reach, high=pl.col("n_shots") + reach)
    return draw_svg(_learning_curve_chart(max(points["n_shots"].to_list())), data=points, points=banded)


def throughput_figure(rates: Sequence[float], period_s: float, title: str) -> Drawing:
    """Draw a rate over time as steps, one a period.

    Args:
        rates: of consecutive periods, the first of which begins at 0.
        period_s: length of a period in seconds.
        title: of the vertical axis.
    """
    places = range(len(rates))
    rows = pl.DataFrame(
        {
            "start_s": [place * period_s for place in places],
            "end_s": [(place + 1) * period_s for place in places],
            "rate": list(rates),
            "description": [
                f"{place * period_s:,.0f} to {(place + 1) * period_s:,.0f} s: {rate:,.1f} {title}"
                for place, rate in zip(places, rates, strict=True)
            ],
        }
    )
    return draw_svg(_throughput_chart(title), rows=rows)


@cache
def _interval_chart(names: Names) -> VegaSpec:
    base, x = alt.Chart(alt.NamedData("rows")).encode(y=_dataset_rows(names)), _unit_x
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
    return _row_chart(layers, names)


@cache
def _strip_chart(names: Names) -> VegaSpec:
    y = _dataset_rows(names)
    dots = alt.Chart(alt.NamedData("dots")).mark_point(filled=True, color=GREY, size=46, opacity=0.45, aria=False)
    means = alt.Chart(alt.NamedData("rows")).encode(y=y)
    return _row_chart([dots.encode(y=y, x=_unit_x("value")), *_values_with_intervals(means)], names)


def _dataset_rows(names: Names) -> alt.Y:
    axis = alt.Axis(labelFontSize=12, labelLimit=INTERVAL_ROOM.left - 10, grid=True, gridColor=GRID)
    return alt.Y("dataset:N", sort=list(names), title=None, axis=axis)


def _unit_x(column: str) -> alt.X:
    axis = alt.Axis(values=[0, 0.2, 0.4, 0.6, 0.8, 1], format=".1f", grid=True, gridColor="#e3e6ea")
    return alt.X(f"{column}:Q", title=None, axis=axis, scale=alt.Scale(domain=[0, 1], clamp=True))


def _values_with_intervals(base: alt.Chart) -> list[alt.Chart]:
    """Return the top layers: values with their intervals, and transparent bands with their descriptions."""
    return [
        base.mark_rule(color=BLUE, strokeWidth=2, aria=False).encode(x=_unit_x("ci_low"), x2="ci_high:Q"),
        base.mark_point(filled=True, color=BLUE, size=58, opacity=1, aria=False).encode(x=_unit_x("value")),
        base.mark_bar(color="#ffffff", fillOpacity=0, height=ROW_HEIGHT - 2).encode(
            x=alt.datum(0, scale=alt.Scale(domain=[0, 1])), x2=alt.datum(1), description="description:N"
        ),
    ]


def _row_chart(layers: list[alt.Chart], names: Names) -> VegaSpec:
    chart = alt.layer(*layers).properties(width=INTERVAL_WIDTH, height=ROW_HEIGHT * len(names))
    return compiled(styled(chart, INTERVAL_ROOM))


@cache
def _reliability_chart() -> VegaSpec:
    base = alt.Chart(alt.NamedData("bins"))
    x, y = unit_channel(alt.X, "mean_confidence", "confidence"), unit_channel(alt.Y, "accuracy", "accuracy")
    diagonal = alt.Chart(alt.InlineData(values=[{"at": 0}, {"at": 1}]))
    area = alt.Size("share:Q", legend=None, scale=alt.Scale(domain=[0, 1], range=[12, 420]))
    return _panel(
        diagonal.mark_line(color=GREY, strokeDash=[3, 3], strokeWidth=1, aria=False).encode(
            x=unit_channel(alt.X, "at", "confidence"), y=unit_channel(alt.Y, "at", "accuracy")
        ),
        base.mark_rule(color=VERMILION, strokeWidth=1.5, aria=False).encode(x=x, y=y, y2="mean_confidence:Q"),
        base.mark_line(color=BLUE, strokeWidth=1, opacity=0.5, aria=False).encode(x=x, y=y),
        base.mark_point(filled=True, color=BLUE, opacity=0.85, aria=False).encode(x=x, y=y, size=area),
        base.mark_rect(color="#ffffff", fillOpacity=0).encode(
            x=unit_channel(alt.X, "bin_low", "confidence"), x2="bin_high:Q", description="description:N"
        ),
    )


@cache
def _noise_chart() -> VegaSpec:
    base, guess = alt.Chart(alt.NamedData("points")), alt.Chart(alt.NamedData("guess"))
    x, y = unit_channel(alt.X, "noise_rate", "noise rate"), unit_channel(alt.Y, "accuracy", "accuracy")
    return _panel(
        guess.mark_line(color=GREY, strokeDash=[3, 3], strokeWidth=1, aria=False).encode(x=x, y=y),
        base.mark_line(color=BLUE, strokeWidth=2, aria=False).encode(x=x, y=y),
        base.mark_point(filled=True, color=BLUE, size=46, opacity=1, aria=False).encode(x=x, y=y),
        base.mark_rect(color="#ffffff", fillOpacity=0).encode(
            x=unit_channel(alt.X, "low", "noise rate"), x2="high:Q", description="description:N"
        ),
    )


@cache
def _learning_curve_chart(n_shots: int) -> VegaSpec:
    base = alt.Chart(alt.NamedData("points"))
    # No more labels than there is room for.
    ticks = list(range(0, n_shots + 1, max(1, -(-n_shots // 8))))
    scale = alt.Scale(domain=[-0.5, n_shots + 0.5], nice=False)

    def place(column: str) -> alt.X:
        axis = alt.Axis(values=ticks, format="d", grid=False)
        return alt.X(f"{column}:Q", title="demonstrations before", axis=axis, scale=scale)

    y = unit_channel(alt.Y, "value", "accuracy")
    return _panel(
        base.mark_line(color=GREY, strokeDash=[3, 3], strokeWidth=1, aria=False).encode(
            x=place("n_shots"), y=unit_channel(alt.Y, "chance", "accuracy")
        ),
        base.mark_rule(color=BLUE, strokeWidth=1.5, opacity=0.6, aria=False).encode(
            x=place("n_shots"), y=unit_channel(alt.Y, "ci_low", "accuracy"), y2="ci_high:Q"
        ),
        base.mark_line(color=BLUE, strokeWidth=2, aria=False).encode(x=place("n_shots"), y=y),
        base.mark_point(filled=True, color=BLUE, size=46, opacity=1, aria=False).encode(x=place("n_shots"), y=y),
        base.mark_rect(color="#ffffff", fillOpacity=0).encode(x=place("low"), x2="high:Q", description="description:N"),
    )


@cache
def _throughput_chart(title: str) -> VegaSpec:
    base = alt.Chart(alt.NamedData("rows"))
    x = alt.X("start_s:Q", title="seconds of scoring", axis=alt.Axis(gridColor=GRID, tickCount=4))
    y = alt.Y("rate:Q", title=title, axis=alt.Axis(gridColor=GRID, tickCount=3, format="~s"))
    bars = base.mark_rect(color=BLUE, opacity=0.45, aria=False).encode(x=x, x2="end_s:Q", y=y, y2=alt.datum(0))
    described = base.mark_rect(color="#ffffff", fillOpacity=0).encode(x=x, x2="end_s:Q", description="description:N")
    return _panel(bars, described)


def _panel(*layers: alt.Chart) -> VegaSpec:
    return compiled(styled(alt.layer(*layers).properties(width=PANEL_WIDTH, height=PANEL_WIDTH), PANEL_ROOM))
