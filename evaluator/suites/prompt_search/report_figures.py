"""The curve of a prompt search: the accuracy of the best of so many prompts, and of the best of as many guesses."""

import polars as pl

from evaluator.report.plot import BLUE, GREY, VERMILION, Plot, Room, log_axis, value_axis

WIDTH, HEIGHT, ROOM = 260, 180, Room(left=54, right=54, top=12, bottom=38)
DASHES = ("", "5,3", "2,2", "8,3,2,3")
"""Of the lines of several numbers of shots; blue alone would not tell them apart."""

TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


def curve_figure(curves: pl.DataFrame) -> str:
    """Expected maximum accuracy against tries, a blue line a number of shots, with both random baselines.

    Args:
        curves: SEARCH_CURVES of one dataset, part and method.
    """
    shots = curves["n_shots"].unique().sort().to_list()
    values = curves.select("expected_maximum", "max_random", "chance").unpivot()["value"].to_numpy()
    margin = 0.05 * (values.max() - values.min() or 0.1)
    limits = (max(0.0, float(values.min() - margin)), min(1.0, float(values.max() + margin)))
    # On a linear scale the first tries, which gain most, would be one pixel wide.
    x = log_axis((1, max(int(curves["tries"].to_numpy().max()), 2)), "prompts tried", TICKS)
    plot = Plot(x, value_axis(limits, "accuracy", decimals=2), width=WIDTH, height=HEIGHT, room=ROOM)
    # Alike for all numbers of shots, but for how far they reach.
    guesses = curves.unique("tries").sort("tries")
    plot.line(guesses.select("tries", "chance").iter_rows(), colour=GREY)
    plot.line(guesses.select("tries", "max_random").iter_rows(), colour=VERMILION, width=2)
    for place, n_shots in enumerate(shots):
        curve = curves.filter(n_shots=n_shots).sort("tries")
        points = curve.select("tries", "expected_maximum").iter_rows()
        dash, description = DASHES[place % len(DASHES)], _described(curve, n_shots)
        plot.line(points, colour=BLUE, width=2, dash=dash, description=description)
    names = _line_names(curves, 0.07 * (limits[1] - limits[0]))
    for tries, value, name in names.select("tries", "expected_maximum", "name").iter_rows():
        plot.text((tries, value), name, shift=(5, 4), colour=BLUE)
    return plot.svg()


def _line_names(curves: pl.DataFrame, least_distance: float) -> pl.DataFrame:
    """Where each line ends and its name; lines that end closer to each other than a name is high share one."""
    ends = curves.sort("tries").group_by("n_shots").last().sort("expected_maximum", "n_shots")
    apart = (pl.col("expected_maximum").diff() >= least_distance).fill_null(True)
    return (
        ends.group_by(apart.cum_sum().alias("group"), maintain_order=True)
        .agg(pl.col("tries").max(), pl.col("expected_maximum").mean(), pl.col("n_shots").sort().cast(pl.String))
        .with_columns(name=pl.col("n_shots").list.join(", ") + "-shot")
        .drop("n_shots")
    )


def _described(curve: pl.DataFrame, n_shots: int) -> str:
    last = curve.row(-1, named=True)
    return (
        f"{n_shots}-shot: the best of {last['tries']} prompts has accuracy {last['expected_maximum']:.3f}, the best of "
        f"as many random classifiers {last['max_random']:.3f}, chance {last['chance']:.3f}"
    )
