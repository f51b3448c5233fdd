"""Draw the curves of a prompt search: the expected accuracy of its best prompt and of random classifiers by tries."""

import altair as alt
import polars as pl

from evaluator.report.charts import BLUE, GREY, GRID, VERMILION, Drawing, Room, chart_svg

WIDTH, HEIGHT, ROOM = 260, 180, Room(left=54, right=54, top=12, bottom=38)
DASHES = ([1, 0], [5, 3], [2, 2], [8, 3, 2, 3])
"""Dashes of lines, one pattern for each number of shots, because all these lines are blue."""


def curve_figure(curves: pl.DataFrame) -> Drawing:
    """Draw the expected maximum accuracy by tries, a blue line for each number of shots, and both random baselines.

    Args:
        curves: SEARCH_CURVES of one dataset, part and method.
    """
    shots = curves["n_shots"].unique().sort().to_list()
    values = curves.select("expected_maximum", "max_random", "chance").unpivot()["value"].to_numpy()
    margin = 0.05 * (values.max() - values.min() or 0.1)
    limits = [max(0.0, float(values.min() - margin)), min(1.0, float(values.max() + margin))]
    max_tries = max(int(curves["tries"].to_numpy().max()), 2)
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000) if tick <= max_tries]
    # On a linear scale the first tries, which gain most, would be one pixel wide.
    x = alt.X("tries:Q", title="prompts tried", axis=alt.Axis(values=ticks, gridColor=GRID, format="~s"))
    x = x.scale(type="log", domain=[1, max_tries])
    y_axis = alt.Axis(format=".2f", gridColor=GRID, tickCount=5)

    def y(column: str) -> alt.Y:
        return alt.Y(f"{column}:Q", title="accuracy", axis=y_axis).scale(domain=limits, zero=False, nice=False)

    # The baselines at a number of tries are equal for all numbers of shots, so that one row of each is drawn.
    baselines = alt.Chart(curves.unique("tries", maintain_order=True))
    layers: list[alt.Chart] = [
        baselines.mark_line(color=GREY, strokeWidth=1.5, aria=False).encode(x=x, y=y("chance")),
        baselines.mark_line(color=VERMILION, strokeWidth=2, aria=False).encode(x=x, y=y("max_random")),
    ]
    described = pl.concat(
        curve.with_columns(description=pl.lit(_description(curve, int(n_shots))))
        for (n_shots,), curve in curves.partition_by("n_shots", as_dict=True, maintain_order=True).items()
    )
    dashes = alt.Scale(domain=shots, range=[DASHES[place % len(DASHES)] for place, _ in enumerate(shots)])
    dash = alt.StrokeDash("n_shots:N", legend=None, scale=dashes)
    lines = alt.Chart(described).mark_line(color=BLUE, strokeWidth=2)
    layers.append(lines.encode(x=x, y=y("expected_maximum"), strokeDash=dash, description="description:N"))
    # A name is about 7% of the axis high.
    names = alt.Chart(_line_names(curves, min_distance=0.07 * (limits[1] - limits[0])))
    names = names.mark_text(align="left", dx=5, fontSize=11, color=BLUE, aria=False)
    layers.append(names.encode(x=x, y=y("expected_maximum"), text="name:N"))
    return chart_svg(alt.layer(*layers).properties(width=WIDTH, height=HEIGHT), ROOM, curves)


def _line_names(curves: pl.DataFrame, min_distance: float) -> pl.DataFrame:
    """Return the end and the name of each line; lines whose ends are closer than `min_distance` share one name."""
    ends = curves.sort("tries").group_by("n_shots").last().sort("expected_maximum", "n_shots")
    apart = (pl.col("expected_maximum").diff() >= min_distance).fill_null(True)
    return (
        ends.group_by(apart.cum_sum().alias("group"), maintain_order=True)
        .agg(pl.col("tries").max(), pl.col("expected_maximum").mean(), pl.col("n_shots").sort().cast(pl.String))
        .with_columns(name=pl.col("n_shots").list.join(", ") + "-shot")
        .drop("n_shots")
    )


def _description(curve: pl.DataFrame, n_shots: int) -> str:
    last = curve.row(-1, named=True)
    return (
        f"{n_shots}-shot: the best of {last['tries']} prompts has accuracy {last['expected_maximum']:.3f}, the best of "
        f"as many random classifiers {last['max_random']:.3f}, chance {last['chance']:.3f}"
    )
