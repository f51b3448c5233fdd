"""Draw the figures of in-context PVI, after those of Lu et al. 2023, as SVG elements."""

import math
from functools import cache

import altair as alt
import polars as pl

from evaluator.report.charts import (
    BLUE,
    GREEN,
    GREY,
    GRID,
    INK,
    PURPLE,
    VERMILION,
    Drawing,
    Room,
    VegaSpec,
    compiled,
    draw_svg,
    styled,
)
from evaluator.suites.in_context_pvi.report.sources import BY_SOURCE, run_name

DENSITY_WIDTH, DENSITY_HEIGHT, DENSITY_ROOM = 175, 92, Room(left=32, right=8, top=6, bottom=36)
DECILE_WIDTH, DECILE_HEIGHT, DECILE_ROOM = 250, 150, Room(left=48, right=12, top=8, bottom=38)
DASHES = ([1, 0], [5, 3], [2, 2], [8, 3, 2, 3])
"""Dashes of lines, one pattern for each number of shots."""

SOURCE_COLOURS = {"hardest": VERMILION, "easiest": GREEN, "middle": PURPLE}
"""Colours of the lines of demonstrations chosen by PVI, as in assets/pvi.css; other lines are blue."""


def density_figure(densities: pl.DataFrame, threshold: float | None, unit: str) -> Drawing:
    """Draw histograms of the PVIs of right (blue) and wrong (vermilion) predictions and the threshold; figure 4.

    Args:
        densities: PVI_DENSITIES of one run; the two outer bins are drawn no wider than the others.
        threshold: of PVI_SUMMARY; not drawn where it is None or outside the axis.
        unit: of PVI.
    """
    inner = densities.filter(pl.col("bin") == 1).row(0, named=True)
    step = inner["bin_high"] - inner["bin_low"]
    low, high = inner["bin_low"] - step, float(densities["bin_low"].to_numpy().max() + step)
    drawn = densities.filter(pl.col("n") > 0).select(
        low=pl.col("bin_low").clip(low, high),
        high=pl.col("bin_high").clip(low, high),
        density="density",
        colour=pl.when("correct").then(pl.lit(BLUE)).otherwise(pl.lit(VERMILION)),
    )
    at = [threshold] if threshold is not None and low < threshold < high else []
    return draw_svg(
        _density_chart(low, high, unit),
        data=densities.with_columns(threshold=pl.lit(threshold, pl.Float64)),
        bars=drawn,
        threshold=pl.DataFrame({"low": at}, schema={"low": pl.Float64}),
        whole=pl.DataFrame({"description": [density_description(densities, threshold, unit)]}),
    )


@cache
def _density_chart(low: float, high: float, unit: str) -> VegaSpec:
    x_axis = alt.Axis(gridColor=GRID, tickCount=5, format="~r")
    x_scale = alt.Scale(domain=[low, high], nice=False)
    x = alt.X("low:Q", title=f"PVI, {unit}", axis=x_axis, scale=x_scale)
    y = alt.Y("density:Q", title=None, axis=alt.Axis(gridColor=GRID, tickCount=3, format="~r"))
    bars = alt.Chart(alt.NamedData("bars")).mark_rect(opacity=0.45, aria=False)
    rule = alt.Chart(alt.NamedData("threshold")).mark_rule(color=INK, strokeWidth=1.5, strokeDash=[4, 3], aria=False)
    # A transparent mark over the figure has its description, for the pointer and for screen readers.
    whole = alt.Chart(alt.NamedData("whole")).mark_rect(color="#ffffff", fillOpacity=0)
    layers = [
        bars.encode(x=x, x2="high:Q", y=y, y2=alt.datum(0), color=alt.Color("colour:N", scale=None)),
        rule.encode(x=x),
        whole.encode(
            x=alt.value(0),
            x2=alt.value("width"),
            y=alt.value(0),
            y2=alt.value("height"),
            description="description:N",
        ),
    ]
    chart = alt.layer(*layers).properties(width=DENSITY_WIDTH, height=DENSITY_HEIGHT)
    return compiled(styled(chart, DENSITY_ROOM))


def density_description(densities: pl.DataFrame, threshold: float | None, unit: str) -> str:
    """Return the text alternative of a density figure."""
    right, wrong = (densities.filter(correct=correct)["n"].sum() for correct in (True, False))
    return f"{right:,} right and {wrong:,} wrong predictions; {threshold_text(threshold, unit)}"


def threshold_text(threshold: float | None, unit: str) -> str:
    """Describe the threshold of PVI_SUMMARY in words."""
    if threshold is None:
        return "no threshold"
    if math.isinf(threshold):
        return "at least half are right " + ("from the lowest PVI up" if threshold < 0 else "at no PVI")
    return f"at least half are right from {threshold:.3f} {unit} up"


def decile_figure(deciles: pl.DataFrame, *, several: bool) -> Drawing:
    """Draw accuracy by PVI decile, one line a run; dashes by number of shots, colours by source of demonstrations.

    Args:
        deciles: PVI_DECILES of one dataset and definition.
        several: whether names of runs include their sources.
    """
    shots = deciles["n_shots"].unique().sort().to_list()
    runs = deciles.sort(BY_SOURCE, "n_shots", "demonstration_set", "decile").partition_by(
        ["demonstrations", "n_shots", "demonstration_set"], as_dict=True, maintain_order=True
    )
    lines = pl.concat(
        run.select(
            "decile",
            "accuracy",
            "n_shots",
            colour=pl.lit(SOURCE_COLOURS.get(str(source), BLUE)),
            description=pl.format(
                "{}: accuracy {} in the lowest decile, {} in the highest",
                pl.lit(run_name(n_shots, str(source), number, several=several)),
                pl.lit(f"{run['accuracy'][0]:.3f}"),
                pl.lit(f"{run['accuracy'][-1]:.3f}"),
            ),
        )
        for (source, n_shots, number), run in runs.items()
    )
    return draw_svg(_decile_chart(tuple(shots)), data=deciles, lines=lines)


@cache
def _decile_chart(shots: tuple[int, ...]) -> VegaSpec:
    y_axis = alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], format=".2f", gridColor=GRID)
    x_axis = alt.Axis(values=list(range(1, 11)), format="d", gridColor=GRID)
    x_scale, y_scale = alt.Scale(domain=[1, 10], nice=False), alt.Scale(domain=[0, 1])
    y = alt.Y("accuracy:Q", title="accuracy", axis=y_axis, scale=y_scale)
    dashes = [DASHES[place % len(DASHES)] for place, _ in enumerate(shots)]
    half = alt.Chart(alt.InlineData(values=[{"accuracy": 0.5}]))
    # All lines are one mark: a layer a line would take several times as long to draw.
    lines = alt.Chart(alt.NamedData("lines")).mark_line(strokeWidth=1.6, opacity=0.8)
    layers = [
        half.mark_rule(color=GREY, strokeDash=[3, 3], aria=False).encode(y=y),
        lines.encode(
            x=alt.X("decile:Q", title="PVI decile, lowest first", axis=x_axis, scale=x_scale),
            y=y,
            color=alt.Color("colour:N", scale=None),
            strokeDash=alt.StrokeDash("n_shots:N", legend=None, scale=alt.Scale(domain=list(shots), range=dashes)),
            detail="description:N",
            description="description:N",
        ),
    ]
    chart = alt.layer(*layers).properties(width=DECILE_WIDTH, height=DECILE_HEIGHT)
    return compiled(styled(chart, DECILE_ROOM))
