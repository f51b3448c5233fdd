"""Figures of the published experiments, after those of Yauney & Mimno 2024, as SVG elements."""

from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.report.plot import (
    BLUE,
    GREEN,
    GREY,
    VERMILION,
    Axis,
    Plot,
    Room,
    log_axis,
    share_axis,
    value_axis,
)
from evaluator.statistics.ranking import ranking_curves

WIDTH, HEIGHT, ROOM = 205, 130, Room(left=40, right=8, top=6, bottom=36)
TAIL_HEIGHT = 62
SQUARE, SQUARE_ROOM = 150, Room(left=44, right=10, top=6, bottom=38)
BAR_WIDTH, BAR_HEIGHT = 330, 74

DASHED = "5,3"
DASHES = {1: "", 2: DASHED, 4: "2,2"}
"""Shots -> dashes of a line; colour alone would not tell six lines apart."""

TICKS = (1, 2, 5, 10, 20, 50, 100, 200)

Kind = Literal["ROC", "precision-recall"]
CURVE_POINTS = 300
"""Of a curve over thousands of thresholds as many are drawn: more would not be seen."""


def search_panel(curves: pl.DataFrame, baselines: pl.DataFrame, base_model: str) -> str:
    """Expected maximum accuracy by number of prompts, with both baselines: one panel of figures 3, 4 and 9 to 11.

    Args:
        curves: schema.PUBLISHED_CURVES of one task; base_model in blue, others in green, dashes by shots.
        baselines: schema.PUBLISHED_BASELINES of that task: the authors' dashed, sound ones solid.
    """
    values = pl.concat([curves["expected_maximum"], baselines["chance"], baselines["max_random"]]).to_numpy()
    margin = 0.06 * float(np.ptp(values))
    limits = (max(0.0, float(values.min()) - margin), min(1.0, float(values.max()) + margin))
    plot = _tries_plot(value_axis(limits, count=4, decimals=2), HEIGHT)
    for column, colour, about in (("chance", GREY, "Chance"), ("max_random", VERMILION, "Best of 200")):
        for (rules,), rows in baselines.partition_by("rules", as_dict=True, maintain_order=True).items():
            last = round(rows[column][-1], 3)
            plot.line(
                rows.select("tries", column).iter_rows(),
                colour=colour,
                width=1.6,
                dash=DASHED if rules == "released" else "",
                description=f"{about} {last} of guessing, {rules} rules",
            )
    _draw_models(plot, curves, "expected_maximum", base_model)
    return plot.svg()


def tail_panel(curves: pl.DataFrame, column: str, base_model: str) -> str:
    """Probability that guessing reaches the expected maximum: the lower panels of figures 3 and 4.

    Args:
        curves: schema.PUBLISHED_CURVES of one task.
        column: "standard_tail" or "max_tail".
    """
    plot = _tries_plot(share_axis(), TAIL_HEIGHT)
    _draw_models(plot, curves, column, base_model)
    return plot.svg()


def _tries_plot(y: Axis, height: int) -> Plot:
    # A linear axis would give the first tries, which gain most, a pixel's width.
    return Plot(log_axis((1, 200), "prompts tried", TICKS), y, width=WIDTH, height=height, room=ROOM)


def _draw_models(plot: Plot, curves: pl.DataFrame, column: str, base_model: str) -> None:
    for rows in curves.partition_by("model", "shots", maintain_order=True):
        model, shots, most, last = rows.select("model", "shots", "tries", pl.col(column).round(3)).row(-1)
        plot.line(
            rows.select("tries", column).iter_rows(),
            colour=BLUE if model == base_model else GREEN,
            width=1.6,
            dash=DASHES[shots],
            description=f"{model}, {shots}-shot: {last} at {most} prompts",
        )


def histogram_panel(histogram: pl.DataFrame, column: str, colour: str, mark_at: float) -> str:
    """One of the three distributions of figure 1, with a line at the number that stands for it.

    Args:
        histogram: columns accuracy and `column`, a share; all three panels of one histogram have the same axis.
        mark_at: an accuracy.
    """
    likely = histogram.filter(pl.max_horizontal(pl.exclude("accuracy")) > 1e-4)["accuracy"].to_numpy()
    step = float(histogram["accuracy"][1] - histogram["accuracy"][0])
    domain = (float(likely[0]) - step, float(likely[-1]) + step)
    shown = histogram.filter(pl.col("accuracy").is_between(*domain))
    highest = float(shown[column].to_numpy().max())
    x, y = value_axis(domain, "accuracy", count=8, decimals=2), value_axis((0, 1.05 * highest), count=3, decimals=2)
    plot = Plot(x, y, width=BAR_WIDTH, height=BAR_HEIGHT, room=ROOM)
    # Bars from edge to edge, because one a count of right answers is all there can be.
    for accuracy, share in shown.select("accuracy", column).iter_rows():
        plot.bar((accuracy - step / 2, accuracy + step / 2), (0, share), colour=colour, opacity=0.55)
    plot.rule((mark_at, 0), (mark_at, y.domain[1]), colour=colour, width=2)
    return plot.svg()


def ranking_panel(trials: pl.DataFrame, kind: Kind) -> str:
    """ROC or precision-recall curves of the three predictors: figures 5 and 8.

    Args:
        trials: columns held_out.TRIALS; verdicts are drawn in blue (standard) and vermilion (max), the distribution
            function in grey.
        kind: of curve; precision-recall curves are steps, as average precision sums them.
    """
    outcome = trials["above_standard_on_test"].to_numpy()
    predictors = (
        (-trials["log10_max_tail"].to_numpy(), GREY),
        (trials["above_standard_on_train"].to_numpy().astype(np.float64), BLUE),
        (trials["above_max_on_train"].to_numpy().astype(np.float64), VERMILION),
    )
    is_roc = kind == "ROC"
    x = share_axis("false positive rate" if is_roc else "recall")
    y = share_axis("true positive rate" if is_roc else "precision")
    plot = Plot(x, y, width=SQUARE, height=SQUARE, room=SQUARE_ROOM)
    if is_roc:
        plot.line([(0, 0), (1, 1)], colour=GREY, width=1, dash="3,3")
    for score, colour in predictors:
        points = _curve(score, outcome, kind).select("x", "y").iter_rows()
        plot.line(points, colour=colour, width=1.8, shape="linear" if is_roc else "step-before")
    return plot.svg()


def _curve(score: npt.NDArray[np.float64], outcome: npt.NDArray[np.bool_], kind: Kind) -> pl.DataFrame:
    curves = ranking_curves(score, outcome)
    x, y = (
        (curves.false_positive_rate, curves.true_positive_rate)
        if kind == "ROC"
        else (curves.true_positive_rate, curves.precision)
    )
    kept = np.unique(np.linspace(0, len(x) - 1, min(len(x), CURVE_POINTS)).round().astype(np.int64))
    return pl.DataFrame({"x": x[kept], "y": y[kept], "order": kept})
