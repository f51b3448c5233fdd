"""Figures of in-context PVI, after those of Lu et al. 2023: frames go in, SVG elements come out."""

import math

import altair as alt
import polars as pl

from evaluator.report.figures import BLUE, GREY, GRID, INK, VERMILION, as_svg
from evaluator.suites.in_context_pvi.report_sources import BY_SOURCE, run_name

DENSITY_WIDTH, DENSITY_HEIGHT, DENSITY_ROOM = 175, 92, {"left": 32, "right": 8, "top": 6, "bottom": 34}
DECILE_WIDTH, DECILE_HEIGHT, DECILE_ROOM = 250, 150, {"left": 40, "right": 12, "top": 8, "bottom": 36}
DASHES = ([1, 0], [5, 3], [2, 2], [8, 3, 2, 3])
"""Of the lines of several numbers of shots."""

GREEN, PURPLE = "#009e73", "#cc79a7"  # of Okabe and Ito's palette as well
SOURCE_COLOURS = {"hardest": VERMILION, "easiest": GREEN, "middle": PURPLE}
"""Of the lines behind demonstrations that were chosen by PVI; others are blue."""


def density_figure(densities: pl.DataFrame, threshold: float | None, unit: str) -> str:
    """How PVIs of right (blue) and wrong (vermilion) predictions spread, with a line at the threshold; figure 4.

    Args:
        densities: schemas.pvi.PVI_DENSITIES of one run; the two outer bins are drawn no wider than the others.
        threshold: of schemas.pvi.PVI_SUMMARY; not drawn where there is none, or beyond what is drawn.
        unit: of PVI.
    """
    inner = densities.filter(pl.col("bin") == 1).row(0, named=True)
    step = inner["bin_high"] - inner["bin_low"]
    low, high = inner["bin_low"] - step, densities["bin_low"].to_numpy().max() + step
    drawn = densities.filter(pl.col("n") > 0).select(
        low=pl.col("bin_low").clip(low, high),
        high=pl.col("bin_high").clip(low, high),
        density="density",
        colour=pl.when("correct").then(pl.lit(BLUE)).otherwise(pl.lit(VERMILION)),
    )
    x_axis = alt.Axis(gridColor=GRID, tickCount=5, format="~r")
    x = alt.X("low:Q", title=f"PVI, {unit}", axis=x_axis).scale(domain=[low, high], nice=False)
    y = alt.Y("density:Q", title=None, axis=alt.Axis(gridColor=GRID, tickCount=3, format="~r", minExtent=18))
    bars = alt.Chart(drawn).mark_rect(opacity=0.45, aria=False)
    at = [threshold] if threshold is not None and low < threshold < high else []
    rule = alt.Chart(pl.DataFrame({"low": at}, schema={"low": pl.Float64}))
    layers = [
        bars.encode(x=x, x2="high:Q", y=y, y2=alt.datum(0), color=alt.Color("colour:N", scale=None)),
        rule.mark_rule(color=INK, strokeWidth=1.5, strokeDash=[4, 3], aria=False).encode(x=x),
        _described(density_description(densities, threshold, unit)),
    ]
    return as_svg(alt.layer(*layers).properties(width=DENSITY_WIDTH, height=DENSITY_HEIGHT), DENSITY_ROOM)


def density_description(densities: pl.DataFrame, threshold: float | None, unit: str) -> str:
    """What a density figure shows, in words."""
    right, wrong = (densities.filter(correct=correct)["n"].sum() for correct in (True, False))
    return f"{right:,} right and {wrong:,} wrong predictions; {threshold_text(threshold, unit)}"


def threshold_text(threshold: float | None, unit: str) -> str:
    """The threshold of schemas.pvi.PVI_SUMMARY in words."""
    if threshold is None:
        return "threshold not known"
    if math.isinf(threshold):
        return "at least half are right " + ("from the lowest PVI up" if threshold < 0 else "at no PVI")
    return f"at least half are right from {threshold:.3f} {unit} up"


def decile_figure(deciles: pl.DataFrame, *, several: bool) -> str:
    """Accuracy against PVI deciles, one line a run; dashes by number of shots, colours by source of demonstrations.

    Args:
        deciles: schemas.pvi.PVI_DECILES of one dataset and definition.
        several: name the sources.
    """
    shots = deciles["n_shots"].unique().sort().to_list()
    y_axis = alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], format=".2f", gridColor=GRID, minExtent=26, maxExtent=26)
    x_axis = alt.Axis(values=list(range(1, 11)), format="d", gridColor=GRID)
    x = alt.X("decile:Q", title="PVI decile, lowest first", axis=x_axis).scale(domain=[1, 10], nice=False)
    y = alt.Y("accuracy:Q", title="accuracy", axis=y_axis).scale(domain=[0, 1])
    half = alt.Chart(pl.DataFrame({"accuracy": [0.5]})).mark_rule(color=GREY, strokeDash=[3, 3], aria=False)
    layers: list[alt.Chart] = [half.encode(y=y)]
    runs = deciles.sort(BY_SOURCE, "n_shots", "demonstration_set", "decile").partition_by(
        ["demonstrations", "n_shots", "demonstration_set"], as_dict=True, maintain_order=True
    )
    for (source, n_shots, number), own in runs.items():
        name = run_name(n_shots, str(source), number, several=several)
        dash = DASHES[shots.index(n_shots) % len(DASHES)]
        ends = f"{own['accuracy'][0]:.3f} in the lowest decile, {own['accuracy'][-1]:.3f} in the highest"
        named = own.with_columns(description=pl.lit(f"{name}: accuracy {ends}"))
        colour = SOURCE_COLOURS.get(str(source), BLUE)
        line = alt.Chart(named).mark_line(color=colour, strokeWidth=1.6, opacity=0.8, strokeDash=dash)
        layers.append(line.encode(x=x, y=y, description="description:N"))
    return as_svg(alt.layer(*layers).properties(width=DECILE_WIDTH, height=DECILE_HEIGHT), DECILE_ROOM)


def _described(text: str) -> alt.Chart:
    """An unseen mark over the whole figure that the reader's pointer, or a screen reader, finds the words on."""
    return (
        alt.Chart(pl.DataFrame({"description": [text]}))
        .mark_rect(color="#ffffff", fillOpacity=0)
        .encode(
            x=alt.value(0),
            x2=alt.value("width"),
            y=alt.value(0),
            y2=alt.value("height"),
            description="description:N",
        )
    )
