"""Figures of in-context PVI, after those of Lu et al. 2023, as SVG elements."""

import math

import polars as pl

from evaluator.report.plot import BLUE, GREEN, GREY, INK, PURPLE, VERMILION, Plot, Room, share_axis, value_axis
from evaluator.suites.in_context_pvi.report_sources import BY_SOURCE, run_name

DENSITY_WIDTH, DENSITY_HEIGHT, DENSITY_ROOM = 175, 92, Room(left=32, right=8, top=6, bottom=36)
DECILE_WIDTH, DECILE_HEIGHT, DECILE_ROOM = 250, 150, Room(left=44, right=12, top=8, bottom=38)
DASHES = ("", "5,3", "2,2", "8,3,2,3")
"""Of the lines of several numbers of shots."""

SOURCE_COLOURS = {"hardest": VERMILION, "easiest": GREEN, "middle": PURPLE}
"""Of the lines of demonstrations that were chosen by PVI, as in assets/pvi.css; others are blue."""


def density_figure(densities: pl.DataFrame, threshold: float | None, unit: str) -> str:
    """How PVIs of right (blue) and wrong (vermilion) predictions spread, with a line at the threshold; figure 4.

    Args:
        densities: PVI_DENSITIES of one run; the two outer bins are drawn no wider than the others.
        threshold: of PVI_SUMMARY; not drawn where there is none, or beyond what is drawn.
        unit: of PVI.
    """
    inner = densities.filter(pl.col("bin") == 1).row(0, named=True)
    step = inner["bin_high"] - inner["bin_low"]
    low, high = inner["bin_low"] - step, float(densities["bin_low"].to_numpy().max() + step)
    filled = densities.filter(pl.col("n") > 0)
    highest = float(filled["density"].to_numpy().max()) if filled.height else 1.0
    x, y = value_axis((low, high), f"PVI, {unit}"), value_axis((0, 1.05 * highest), count=3)
    plot = Plot(x, y, width=DENSITY_WIDTH, height=DENSITY_HEIGHT, room=DENSITY_ROOM)
    for row in filled.iter_rows(named=True):
        # Ends of the outer bins lie beyond the axis, which draws them at its ends.
        edges, colour = (row["bin_low"], row["bin_high"]), BLUE if row["correct"] else VERMILION
        plot.bar(edges, (0, row["density"]), colour=colour, opacity=0.45)
    if threshold is not None and low < threshold < high:
        plot.rule((threshold, 0), (threshold, y.domain[1]), colour=INK, dash="4,3")
    plot.band((low, high), y.domain, density_description(densities, threshold, unit))
    return plot.svg()


def density_description(densities: pl.DataFrame, threshold: float | None, unit: str) -> str:
    """What a density figure shows, in words."""
    right, wrong = (densities.filter(correct=correct)["n"].sum() for correct in (True, False))
    return f"{right:,} right and {wrong:,} wrong predictions; {threshold_text(threshold, unit)}"


def threshold_text(threshold: float | None, unit: str) -> str:
    """The threshold of PVI_SUMMARY in words."""
    if threshold is None:
        return "threshold not known"
    if math.isinf(threshold):
        return "at least half are right " + ("from the lowest PVI up" if threshold < 0 else "at no PVI")
    return f"at least half are right from {threshold:.3f} {unit} up"


def decile_figure(deciles: pl.DataFrame, *, several: bool) -> str:
    """Accuracy against PVI deciles, one line a run; dashes by number of shots, colours by source of demonstrations.

    Args:
        deciles: PVI_DECILES of one dataset and definition.
        several: name the sources.
    """
    shots = deciles["n_shots"].unique().sort().to_list()
    x = value_axis((1, 10), "PVI decile, lowest first", at=range(1, 11), decimals=0)
    plot = Plot(x, share_axis("accuracy"), width=DECILE_WIDTH, height=DECILE_HEIGHT, room=DECILE_ROOM)
    plot.rule((1, 0.5), (10, 0.5), colour=GREY, width=1, dash="3,3")
    runs = deciles.sort(BY_SOURCE, "n_shots", "demonstration_set", "decile").partition_by(
        ["demonstrations", "n_shots", "demonstration_set"], as_dict=True, maintain_order=True
    )
    for (source, n_shots, number), run in runs.items():
        name = run_name(n_shots, str(source), number, several=several)
        ends = f"{run['accuracy'][0]:.3f} in the lowest decile, {run['accuracy'][-1]:.3f} in the highest"
        plot.line(
            run.select("decile", "accuracy").iter_rows(),
            colour=SOURCE_COLOURS.get(str(source), BLUE),
            width=1.6,
            opacity=0.8,
            dash=DASHES[shots.index(n_shots) % len(DASHES)],
            description=f"{name}: accuracy {ends}",
        )
    return plot.svg()
