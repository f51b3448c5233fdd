"""The curve of a prompt search: how good the best of so many prompts is, beside the best of as many guesses."""

import altair as alt
import polars as pl

from evaluator.report.figures import BLUE, GREY, GRID, VERMILION, as_svg

WIDTH, HEIGHT, ROOM = 260, 180, {"left": 44, "right": 54, "top": 12, "bottom": 36}
_DASHES = ([1, 0], [5, 3], [2, 2], [8, 3, 2, 3])
"""Of the lines of several numbers of shots; blue alone would not tell them apart."""


def curve_figure(curves: pl.DataFrame) -> str:
    """Expected maximum accuracy against tries, a blue line a number of shots, with both random baselines.

    Args:
        curves: schemas.SEARCH_CURVES of one dataset, part and method.
    """
    shots = curves["n_shots"].unique().sort().to_list()
    dashes = {n_shots: _DASHES[place % len(_DASHES)] for place, n_shots in enumerate(shots)}
    values = curves.select("expected_maximum", "max_random", "chance").unpivot()["value"].to_numpy()
    margin = 0.05 * (values.max() - values.min() or 0.1)
    limits = [max(0.0, float(values.min() - margin)), min(1.0, float(values.max() + margin))]
    most = int(curves["tries"].to_numpy().max())
    # On a linear scale the first tries, which gain most, would be one pixel wide.
    x = alt.X("tries:Q", title="prompts tried", axis=alt.Axis(values=_ticks(most), gridColor=GRID, format="~s"))
    x = x.scale(type="log", domain=[1, max(most, 2)])
    y_axis = alt.Axis(format=".2f", gridColor=GRID, tickCount=5, minExtent=26, maxExtent=26)

    def y(column: str) -> alt.Y:
        return alt.Y(f"{column}:Q", title="accuracy", axis=y_axis).scale(domain=limits, zero=False, nice=False)

    # Alike for all numbers of shots, but for how far they reach.
    guesses = alt.Chart(curves.unique("tries", maintain_order=True))
    layers: list[alt.Chart] = [
        guesses.mark_line(color=GREY, strokeWidth=1.5, aria=False).encode(x=x, y=y("chance")),
        guesses.mark_line(color=VERMILION, strokeWidth=2, aria=False).encode(x=x, y=y("max_random")),
    ]
    for n_shots in shots:
        own = curves.filter(n_shots=n_shots)
        own = own.with_columns(description=pl.lit(_described(own, n_shots)))
        line = alt.Chart(own).mark_line(color=BLUE, strokeWidth=2, strokeDash=dashes[n_shots])
        layers.append(line.encode(x=x, y=y("expected_maximum"), description="description:N"))
    names = alt.Chart(_line_names(curves, 0.07 * (limits[1] - limits[0])))
    names = names.mark_text(align="left", dx=5, fontSize=11, color=BLUE, aria=False)
    layers.append(names.encode(x=x, y=y("expected_maximum"), text="name:N"))
    return as_svg(alt.layer(*layers).properties(width=WIDTH, height=HEIGHT), ROOM)


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
