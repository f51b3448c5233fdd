"""Figures of a classification run: frames to SVG elements that need no script to be seen."""

import polars as pl

from evaluator.report.plot import BLUE, GREY, VERMILION, Axis, Plot, Room, Tick, share_axis

ROW_HEIGHT, TICK = 26, 18
INTERVAL_WIDTH, INTERVAL_ROOM = 320, Room(left=134, right=12, top=4, bottom=22)
PANEL_WIDTH, PANEL_ROOM = 150, Room(left=44, right=12, top=12, bottom=36)

MAX_POINT_AREA, MIN_POINT_AREA = 420, 12  # of a bin with all predictions, and of one with hardly any


def interval_figure(rows: pl.DataFrame) -> str:
    """Values with their intervals, one row a dataset, on a scale from 0 to 1.

    Args:
        rows: dataset, value, ci_low, ci_high, chance, max_random, majority and description, in drawing order. A null is
            not drawn.
    """
    plot = _row_plot(rows)
    for place, row in enumerate(rows.iter_rows(named=True)):
        if row["chance"] is not None:
            if row["max_random"] is not None:
                shaded = (row["chance"], row["max_random"])
                plot.bar(shaded, _height(place, TICK), colour=VERMILION, opacity=0.3)
                _tick(plot, place, row["max_random"], width=1)
            _tick(plot, place, row["chance"], width=2)
        if row["majority"] is not None:
            plot.points([(row["majority"], place + 0.5)], colour=GREY, area=42, shape="diamond")
    _draw_values(plot, rows)
    return plot.svg()


def strip_figure(rows: pl.DataFrame, dots: pl.DataFrame) -> str:
    """Several values a dataset as dots, and their mean with its interval, one row a dataset, on a scale from 0 to 1.

    Args:
        rows: dataset, value, ci_low, ci_high and description, in drawing order. A null is not drawn.
        dots: dataset and value.
    """
    plot, places = _row_plot(rows), {name: place for place, name in enumerate(rows["dataset"])}
    several = [(value, places[name] + 0.5) for name, value in dots.select("dataset", "value").iter_rows()]
    plot.points(several, colour=GREY, opacity=0.45)
    _draw_values(plot, rows)
    return plot.svg()


def reliability_figure(bins: pl.DataFrame) -> str:
    """Accuracy against mean confidence, one point a bin, its area the share of predictions in the bin.

    Args:
        bins: bin_low, bin_high, n_requests, mean_confidence and accuracy of one dataset; an empty bin is not drawn.
    """
    filled = bins.filter(pl.col("n_requests") > 0).to_dicts()
    total = sum(row["n_requests"] for row in filled)
    plot = _panel("confidence", "accuracy")
    plot.line([(0, 0), (1, 1)], colour=GREY, width=1, dash="3,3")
    points = [(row["mean_confidence"], row["accuracy"]) for row in filled]
    for confidence, accuracy in points:
        plot.rule((confidence, confidence), (confidence, accuracy), colour=VERMILION)
    plot.line(points, colour=BLUE, width=1, opacity=0.5)
    span = MAX_POINT_AREA - MIN_POINT_AREA
    areas = [MIN_POINT_AREA + span * row["n_requests"] / total for row in filled]
    plot.points(points, colour=BLUE, area=areas, opacity=0.85)
    for row in filled:
        description = (
            f"Confidence {row['bin_low']} to {row['bin_high']}: {row['n_requests']} predictions, mean confidence "
            f"{round(row['mean_confidence'], 3)}, accuracy {round(row['accuracy'], 3)}"
        )
        plot.band((row["bin_low"], row["bin_high"]), (0, 1), description)
    return plot.svg()


def noise_figure(points: pl.DataFrame, chance: float | None) -> str:
    """Accuracy over the noise rate, one point a rate, with chance as a dashed line where it is known.

    Args:
        points: noise_rate, accuracy and description of one dataset.
    """
    plot = _panel("noise rate", "accuracy")
    if chance is not None:
        plot.line([(0, chance), (1, chance)], colour=GREY, width=1, dash="3,3")
    places = points.select("noise_rate", "accuracy").rows()
    plot.line(places, colour=BLUE, width=2)
    plot.points(places, colour=BLUE)
    reach = 0.5 / max(points.height - 1, 1)
    for rate, description in points.select("noise_rate", "description").iter_rows():
        plot.band((rate - reach, rate + reach), (0, 1), description)
    return plot.svg()


def _panel(x: str, y: str) -> Plot:
    return Plot(share_axis(x), share_axis(y), width=PANEL_WIDTH, height=PANEL_WIDTH, room=PANEL_ROOM)


def _row_plot(rows: pl.DataFrame) -> Plot:
    """One row a dataset, from the top down; row k lies between k and k + 1."""
    names = [Tick(place + 0.5, name) for place, name in enumerate(rows["dataset"])]
    y = Axis(domain=(rows.height, 0), ticks=names)
    height = ROW_HEIGHT * rows.height
    return Plot(share_axis(step=0.2), y, width=INTERVAL_WIDTH, height=height, room=INTERVAL_ROOM)


def _height(place: int, pixels: float) -> tuple[float, float]:
    """Both ends of so many pixels around the middle of a row."""
    half = pixels / ROW_HEIGHT / 2
    return place + 0.5 - half, place + 0.5 + half


def _tick(plot: Plot, place: int, value: float, *, width: float) -> None:
    low, high = _height(place, TICK)
    plot.rule((value, low), (value, high), colour=VERMILION, width=width)


def _draw_values(plot: Plot, rows: pl.DataFrame) -> None:
    """Values over everything else, and over them the bands that say their numbers."""
    for place, row in enumerate(rows.iter_rows(named=True)):
        if row["ci_low"] is not None and row["ci_high"] is not None:
            plot.rule((row["ci_low"], place + 0.5), (row["ci_high"], place + 0.5), colour=BLUE, width=2)
    known = [
        (row["value"], place + 0.5) for place, row in enumerate(rows.iter_rows(named=True)) if _is_known(row["value"])
    ]
    plot.points(known, colour=BLUE, area=58)
    for place, description in enumerate(rows["description"]):
        plot.band((0, 1), _height(place, ROW_HEIGHT - 2), description)


def _is_known(value: float | None) -> bool:
    return value is not None and value == value
