"""The curve of a prompt search: the accuracy of the best of so many prompts, and of the best of as many guesses."""

import altair as alt
import polars as pl

from evaluator.report.charts import BLUE, GREY, GRID, VERMILION, Room, chart_svg

WIDTH, HEIGHT, ROOM = 260, 180, Room(left=54, right=54, top=12, bottom=38)
DASHES = ([1, 0], [5, 3], [2, 2], [8, 3, 2, 3])
"""Dashes of lines by number of shots; blue alone would not tell them apart."""


def curve_figure(curves: pl.DataFrame) -> str:
    """Expected maximum accuracy against tries, a blue line a number of shots, with both random baselines.

    Args:
        curves: SEARCH_CURVES of one dataset, part and method.
    """
    shots = curves["n_shots"].unique().sort().to_list()
    values = curves.select("expected_maximum", "max_random", "chance").unpivot()["value"].to_numpy()
    margin = 0.05 * (values.max() - values.min() or 0.1)
    limits = [max(0.0, float(values.min() - margin)), min(1.0, float(values.max() + margin))]
    most = int(curves["tries"].to_numpy().max())
    # On a linear scale the first tries, which gain most, would be one pixel wide.
    x = alt.X("tries:Q", title="prompts tried", axis=alt.Axis(values=_ticks(most), gridColor=GRID, format="~s"))
    x = x.scale(type="log", domain=[1, max(most, 2)])
    y_axis = alt.Axis(format=".2f", gridColor=GRID, tickCount=5)

    def y(column: str) -> alt.Y:
        return alt.Y(f"{column}:Q", title="accuracy", axis=y_axis).scale(domain=limits, zero=False, nice=False)

    # Alike for all numbers of shots, but for how far they reach.
    guesses = alt.Chart(curves.unique("tries", maintain_order=True))
    layers: list[alt.Chart] = [
        guesses.mark_line(color=GREY, strokeWidth=1.5, aria=False).encode(x=x, y=y("chance")),
        guesses.mark_line(color=VERMILION, strokeWidth=2, aria=False).encode(x=x, y=y("max_random")),
    ]
    described = pl.concat(
        curve.with_columns(description=pl.lit(_described(curve, int(n_shots))))
        for (n_shots,), curve in curves.partition_by("n_shots", as_dict=True, maintain_order=True).items()
    )
    dashes = alt.Scale(domain=shots, range=[DASHES[place % len(DASHES)] for place, _ in enumerate(shots)])
    lines = (
        alt.Chart(described)
        .mark_line(color=BLUE, strokeWidth=2)
        .encode(x=x, y=y("expected_maximum"), strokeDash=alt.StrokeDash("n_shots:N", legend=None, scale=dashes))
    )
    layers.append(lines.encode(description="description:N"))
    names = alt.Chart(_line_names(curves, 0.07 * (limits[1] - limits[0])))
    names = names.mark_text(align="left", dx=5, fontSize=11, color=BLUE, aria=False)
    layers.append(names.encode(x=x, y=y("expected_maximum"), text="name:N"))
    return chart_svg(alt.layer(*layers).properties(width=WIDTH, height=HEIGHT), ROOM)


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


def _ticks(most: int) -> list[int]:
    return [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000) if tick <= max(most, 2)]
