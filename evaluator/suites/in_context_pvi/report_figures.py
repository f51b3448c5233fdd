"""Draw the figures of in-context PVI, similar to the figures of Lu et al. 2023."""

import math
from dataclasses import replace
from itertools import cycle

import polars as pl

from evaluator.report import figures

DENSITY = figures.Size(175, 92, left=32, right=8, top=6, bottom=36)
DECILES = figures.Size(250, 150, left=48, right=12, top=8, bottom=38)

SOURCE_COLOURS = {
    "hardest": (figures.VERMILION, "vermilion"),
    "easiest": (figures.GREEN, "green"),
    "middle": (figures.PURPLE, "purple"),
}
"""Rule of demonstrations chosen by PVI -> colour of its lines, and name of the colour in assets/page.css. Other lines
are blue."""

NAMES = ("run_name", "set_name")
"""Columns with names for the page, which are removed from the data of a figure."""

UNIT = "bits"  # unit of PVI under all definitions


def threshold_text(threshold: float | None) -> str:
    """Return a description of a threshold of PVI_SUMMARY."""
    if threshold is None:
        return "no threshold"
    if math.isinf(threshold):
        return "at least half are right " + ("from the lowest PVI up" if threshold < 0 else "at no PVI")
    return f"at least half are right from {threshold:.3f} {UNIT} up"


def density_figure(densities: pl.DataFrame) -> figures.Drawing:
    """Draw histograms of PVI for right (blue) and wrong (vermilion) predictions, and the threshold.

    The two outer bins are drawn no wider than the others. The threshold is not drawn if it is null or outside the axis.

    Args:
        densities: PVI_DENSITIES of one run, with the columns `threshold` of PVI_SUMMARY and NAMES.

    Source: Lu et al. 2023, figure 4.
    """
    inner, threshold = densities.filter(bin=1).row(0, named=True), densities["threshold"][0]
    step = inner["bin_high"] - inner["bin_low"]
    low, high = inner["bin_low"] - step, float(densities["bin_low"].to_numpy().max() + step)
    bars = densities.filter(pl.col("n") > 0).select(
        low=pl.col("bin_low").clip(low, high),
        high=pl.col("bin_high").clip(low, high),
        density="density",
        colour=pl.when("correct").then(pl.lit(figures.BLUE)).otherwise(pl.lit(figures.VERMILION)),
    )
    at = [threshold] if threshold is not None and low < threshold < high else []
    right, wrong = (densities.filter(correct=correct)["n"].sum() for correct in (True, False))
    description = f"{right:,} right and {wrong:,} wrong predictions; {threshold_text(threshold)}"
    marks = [
        figures.Mark("bar", "low", "density", rows="bars", x2="high", y2=0, color="colour", opacity=0.45),
        figures.Mark("rule", "low", rows="threshold", color=figures.INK, size=1.5, dash=(4, 3)),
        figures.Mark("band", "low", rows="whole", x2="high"),
    ]
    return figures.panel(
        marks,
        figures.Axis(title=f"PVI, {UNIT}", domain=(low, high), form="~r"),
        figures.Axis(ticks=3, form="~r"),
        size=DENSITY,
        data=densities.drop(NAMES),
        bars=bars,
        threshold=pl.DataFrame({"low": at}, schema={"low": pl.Float64}),
        whole=pl.DataFrame({"low": [low], "high": [high], "description": [description]}),
    )


def decile_figure(deciles: pl.DataFrame) -> figures.Drawing:
    """Draw accuracy by PVI decile, with a line for each run.

    Dashes depend on the number of shots, colours on the source of demonstrations.

    Args:
        deciles: PVI_DECILES of one dataset and definition, with the columns NAMES.
    """
    dashes = dict(zip(deciles["n_shots"].unique().sort(), cycle(figures.DASHES), strict=False))
    colours = {source: colour for source, (colour, _) in SOURCE_COLOURS.items()}
    accuracy = pl.col("accuracy").round(3).sort_by("decile")
    ends = (accuracy.first().over("run_name"), accuracy.last().over("run_name"))
    lines = deciles.select(
        x="decile",
        y="accuracy",
        colour=pl.col("demonstrations").replace_strict(colours, default=figures.BLUE),
        dash=pl.col("n_shots").replace_strict(dashes, return_dtype=pl.String),
        description=pl.format("{}: accuracy {} in the lowest decile, {} in the highest", "run_name", *ends),
    )
    half = figures.Mark("rule", y="half", rows="halves", color=figures.GREY, size=1, dash=(3, 3))
    return figures.panel(
        [half, replace(figures.LINES, opacity=0.8)],
        figures.Axis(title="PVI decile, lowest first", domain=(1, 10), ticks=tuple(range(1, 11)), form="d"),
        figures.Axis(title="accuracy", domain=(0, 1), ticks=(0, 0.25, 0.5, 0.75, 1), form=".2f"),
        size=DECILES,
        data=deciles.drop(NAMES),
        lines=lines,
        halves=pl.DataFrame({"half": [0.5]}),
    )
