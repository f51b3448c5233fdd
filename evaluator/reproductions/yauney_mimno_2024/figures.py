"""Draw the figures of Yauney & Mimno 2024 as SVG elements."""

from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.arrays import Floats
from evaluator.random_baselines.held_out import ranking_curves
from evaluator.report import figures

SEARCH, TAIL = (figures.Size(205, height, left=40, right=8, top=6, bottom=36) for height in (130, 62))
HISTOGRAM = SEARCH._replace(width=330, height=74)
SQUARE = figures.Size(150, 150, left=48, right=10, top=6, bottom=38)

# On a linear axis the first tries, which gain most, would be one pixel wide.
TRIES = figures.Axis(
    title="prompts tried", domain=(1, 200), ticks=(1, 2, 5, 10, 20, 50, 100, 200), form="~s", is_logarithmic=True
)

DASHES = {1: "solid", 2: "dashed", 4: "dotted"}
"""Number of shots -> dashes of a line, because six lines cannot be distinguished by colour alone."""

Kind = Literal["ROC", "precision-recall"]
CURVE_POINTS = 300
"""Largest number of points of a curve; it may have thousands, which would not be visible."""


def search_panel(models: pl.DataFrame, baselines: pl.DataFrame, base_model: str) -> figures.Drawing:
    """Draw expected maximum accuracy by number of prompts, with both baselines: a panel of figures 3, 4 and 9 to 11.

    Args:
        models: PUBLISHED_CURVES of one task, drawn with dashes by shots.
        base_model: drawn in blue; other models are green.
        baselines: PUBLISHED_BASELINES of that task, drawn dashed under the authors' rules and solid under sound
            ones.
    """
    dash = pl.when(pl.col("rules") == "released").then(pl.lit("dashed")).otherwise(pl.lit("solid"))
    guesses = [
        baselines.select(
            x="tries",
            y=column,
            colour=pl.lit(colour),
            dash=dash,
            description=pl.format(
                name + " {} of guessing, {} rules", pl.col(column).last().over("rules").round(3), "rules"
            ),
        )
        for column, colour, name in (
            ("chance", figures.GREY, "Chance"),
            ("max_random", figures.VERMILION, "Best of 200"),
        )
    ]
    lines = pl.concat([*guesses, _model_lines(models, "expected_maximum", base_model)])
    values = lines["y"].to_numpy()
    margin = 0.06 * float(np.ptp(values))
    limits = (max(0.0, float(values.min()) - margin), min(1.0, float(values.max()) + margin))
    y = figures.Axis(domain=limits, ticks=4, form=".2f")
    data = figures.stacked(prompts=models, guessing=baselines)
    return figures.panel([figures.LINES], TRIES, y, size=SEARCH, data=data, lines=lines)


def tail_panel(models: pl.DataFrame, column: str, base_model: str) -> figures.Drawing:
    """Draw the probability that guessing reaches the expected maximum: a lower panel of figures 3 and 4.

    Args:
        models: PUBLISHED_CURVES of one task.
        column: "standard_tail" or "max_tail".
    """
    y = figures.Axis(domain=(0, 1), ticks=(0, 0.5, 1), form=".1f")
    lines = _model_lines(models, column, base_model)
    return figures.panel([figures.LINES], TRIES, y, size=TAIL, data=models, lines=lines)


def _model_lines(models: pl.DataFrame, column: str, base_model: str) -> pl.DataFrame:
    last = pl.col(column).last().over("model", "shots").round(3)
    return models.select(
        x="tries",
        y=column,
        colour=pl.when(pl.col("model") == base_model).then(pl.lit(figures.BLUE)).otherwise(pl.lit(figures.GREEN)),
        dash=pl.col("shots").replace_strict(DASHES),
        description=pl.format(
            "{}, {}-shot: {} at {} prompts", "model", "shots", last, pl.col("tries").max().over("model", "shots")
        ),
    )


def histogram_panel(histogram: pl.DataFrame, column: str, colour: str, mark_at: float) -> figures.Drawing:
    """Draw one of the three distributions of figure 1, with a line at its best or expected accuracy.

    Args:
        histogram: columns accuracy and `column`, a share; all three panels of one histogram have the same axis.
        mark_at: accuracy of the line.
    """
    likely = histogram.filter(pl.max_horizontal(pl.exclude("accuracy")) > 1e-4)["accuracy"].to_numpy()
    step = float(histogram["accuracy"][1] - histogram["accuracy"][0])
    domain = (float(likely[0]) - step, float(likely[-1]) + step)
    # Bars touch, because there is one for every possible count of right answers.
    bars = histogram.with_columns(low=pl.col("accuracy") - step / 2, high=pl.col("accuracy") + step / 2)
    return figures.panel(
        [
            figures.Mark("bar", "low", column, rows="bars", x2="high", y2=0, color=colour, opacity=0.55),
            figures.Mark("rule", "at", rows="line", color=colour),
        ],
        figures.Axis(title="accuracy", domain=domain, ticks=8, form=".2f"),
        figures.Axis(ticks=3, form=".2f"),
        size=HISTOGRAM,
        data=histogram.select("accuracy", column),
        bars=bars.filter(pl.col("accuracy").is_between(*domain)),
        line=pl.DataFrame({"at": [mark_at]}),
    )


def ranking_panel(trials: pl.DataFrame, kind: Kind) -> figures.Drawing:
    """Draw ROC or precision-recall curves of the three predictors: a panel of figures 5 and 8.

    Args:
        trials: columns held_out.TRIALS; verdicts are drawn in blue (standard) and vermilion (max), the
            distribution function in grey.
        kind: type of curve; precision-recall curves are drawn as the steps that average precision sums.
    """
    outcome = trials["above_standard_on_test"].to_numpy()
    predictors = (
        ("max tail", -trials["log10_max_tail"].to_numpy(), figures.GREY),
        ("standard", trials["above_standard_on_train"].to_numpy().astype(np.float64), figures.BLUE),
        ("max", trials["above_max_on_train"].to_numpy().astype(np.float64), figures.VERMILION),
    )
    lines = pl.concat(
        _curve(score, outcome, kind).with_columns(predictor=pl.lit(name), colour=pl.lit(colour))
        for name, score, colour in predictors
    )
    is_roc = kind == "ROC"
    names = ("false positive rate", "true positive rate") if is_roc else ("recall", "precision")
    x, y = (figures.Axis(title=name, domain=(0, 1), ticks=(0, 0.5, 1), form=".1f") for name in names)
    marks = [figures.Mark("line", "x", "y", rows="lines", color="colour", size=1.8, order="order", steps=not is_roc)]
    data = lines.drop("colour")
    if not is_roc:
        return figures.panel(marks, x, y, size=SQUARE, data=data, lines=lines)
    chance = figures.Mark("line", "at", "at", rows="chance", color=figures.GREY, size=1, dash=(3, 3))
    ends = pl.DataFrame({"at": [0.0, 1.0]})
    return figures.panel([chance, *marks], x, y, size=SQUARE, data=data, lines=lines, chance=ends)


def _curve(score: Floats, outcome: npt.NDArray[np.bool_], kind: Kind) -> pl.DataFrame:
    found = ranking_curves(score, outcome)
    # False and true positive rates, or the latter, which is the recall, and precision.
    x, y = found[:2] if kind == "ROC" else found[1:]
    points = np.unique(np.linspace(0, len(x) - 1, min(len(x), CURVE_POINTS)).round().astype(np.int64))
    return pl.DataFrame({"x": x[points], "y": y[points], "order": points})
