"""Draw the figures of Yauney & Mimno 2024 as SVG elements."""

from typing import Literal

import altair as alt
import numpy as np
import numpy.typing as npt
import polars as pl

from evaluator.random_baselines.held_out_prediction import ranking_curves
from evaluator.report.charts import BLUE, GREEN, GREY, GRID, VERMILION, Drawing, Room, chart_svg, stacked, unit_channel

WIDTH, HEIGHT, ROOM = 205, 130, Room(left=40, right=8, top=6, bottom=36)
TAIL_HEIGHT = 62
SQUARE, SQUARE_ROOM = 150, Room(left=48, right=10, top=6, bottom=38)
BAR_WIDTH, BAR_HEIGHT = 330, 74

PATTERNS = {"solid": [1, 0], "dashed": [5, 3], "dotted": [2, 2]}
DASHES = {1: "solid", 2: "dashed", 4: "dotted"}
"""Number of shots -> dashes of a line, because six lines cannot be distinguished by colour alone."""

Kind = Literal["ROC", "precision-recall"]
CURVE_POINTS = 300
"""Largest number of points of a curve; it may have thousands, which would not be visible."""


def search_panel(curves: pl.DataFrame, baselines: pl.DataFrame, base_model: str) -> Drawing:
    """Draw expected maximum accuracy by number of prompts, with both baselines: a panel of figures 3, 4 and 9 to 11.

    Args:
        curves: schema.PUBLISHED_CURVES of one task, drawn with dashes by shots.
        base_model: drawn in blue; other models are green.
        baselines: schema.PUBLISHED_BASELINES of that task, drawn dashed under the authors' rules and solid under sound
            ones.
    """
    dash = pl.when(pl.col("rules") == "released").then(pl.lit("dashed")).otherwise(pl.lit("solid"))
    guesses = [
        baselines.select(
            "tries",
            value=column,
            colour=pl.lit(colour),
            dash=dash,
            description=pl.format(
                name + " {} of guessing, {} rules", pl.col(column).last().over("rules").round(3), "rules"
            ),
        )
        for column, colour, name in (("chance", GREY, "Chance"), ("max_random", VERMILION, "Best of 200"))
    ]
    lines = pl.concat([*guesses, _model_lines(curves, "expected_maximum", base_model)])
    values = lines["value"].to_numpy()
    margin = 0.06 * float(np.ptp(values))
    limits = [max(0.0, float(values.min()) - margin), min(1.0, float(values.max()) + margin)]
    axis = alt.Axis(format=".2f", gridColor=GRID, tickCount=4)
    y = alt.Y("value:Q", title=None, axis=axis).scale(domain=limits, zero=False, nice=False)
    return _lines_figure(lines, y, HEIGHT, stacked(prompts=curves, guessing=baselines))


def tail_panel(curves: pl.DataFrame, column: str, base_model: str) -> Drawing:
    """Draw the probability that guessing reaches the expected maximum: a lower panel of figures 3 and 4.

    Args:
        curves: schema.PUBLISHED_CURVES of one task.
        column: "standard_tail" or "max_tail".
    """
    axis = alt.Axis(values=[0, 0.5, 1], format=".1f", gridColor=GRID)
    y = alt.Y("value:Q", title=None, axis=axis).scale(domain=[0, 1])
    return _lines_figure(_model_lines(curves, column, base_model), y, TAIL_HEIGHT, curves)


def _model_lines(curves: pl.DataFrame, column: str, base_model: str) -> pl.DataFrame:
    last = pl.col(column).last().over("model", "shots").round(3)
    return curves.select(
        "tries",
        value=column,
        colour=pl.when(pl.col("model") == base_model).then(pl.lit(BLUE)).otherwise(pl.lit(GREEN)),
        dash=pl.col("shots").replace_strict(DASHES),
        description=pl.format(
            "{}, {}-shot: {} at {} prompts", "model", "shots", last, pl.col("tries").max().over("model", "shots")
        ),
    )


def _lines_figure(lines: pl.DataFrame, y: alt.Y, height: int, data: pl.DataFrame) -> Drawing:
    """Draw one line for each description, all of them as one mark, because ten layers would take ten times as long.

    Args:
        lines: tries, value, colour, dash, description.
        data: what they show.
    """
    # On a linear axis the first tries, which gain most, would be one pixel wide.
    axis = alt.Axis(values=[1, 2, 5, 10, 20, 50, 100, 200], gridColor=GRID, format="~s")
    x = alt.X("tries:Q", title="prompts tried", axis=axis).scale(type="log", domain=[1, 200], nice=False)
    dash = alt.StrokeDash("dash:N", legend=None).scale(domain=list(PATTERNS), range=list(PATTERNS.values()))
    colour = alt.Color("colour:N", scale=None)
    drawn = alt.Chart(lines).mark_line(strokeWidth=1.6)
    drawn = drawn.encode(x=x, y=y, color=colour, strokeDash=dash, detail="description:N", description="description:N")
    return chart_svg(alt.layer(drawn).properties(width=WIDTH, height=height), ROOM, data)


def histogram_panel(histogram: pl.DataFrame, column: str, colour: str, mark_at: float) -> Drawing:
    """Draw one of the three distributions of figure 1, with a line at its best or expected accuracy.

    Args:
        histogram: columns accuracy and `column`, a share; all three panels of one histogram have the same axis.
        mark_at: accuracy of the line.
    """
    likely = histogram.filter(pl.max_horizontal(pl.exclude("accuracy")) > 1e-4)["accuracy"].to_numpy()
    step = float(histogram["accuracy"][1] - histogram["accuracy"][0])
    domain = [float(likely[0]) - step, float(likely[-1]) + step]
    x_axis = alt.Axis(format=".2f", gridColor=GRID, tickCount=8)
    x_scale = alt.Scale(domain=domain, nice=False)
    y = alt.Y(f"{column}:Q", title=None, axis=alt.Axis(format=".2f", gridColor=GRID, tickCount=3))
    # Bars touch, because there is one for every possible count of right answers.
    bars = histogram.with_columns(low=pl.col("accuracy") - step / 2, high=pl.col("accuracy") + step / 2)
    shown = bars.filter(pl.col("accuracy").is_between(domain[0], domain[1]))
    x = alt.X("low:Q", title="accuracy", axis=x_axis, scale=x_scale)
    layers = [
        alt.Chart(shown)
        .mark_rect(color=colour, opacity=0.55, aria=False)
        .encode(x=x, x2="high:Q", y=y, y2=alt.datum(0)),
        alt.Chart(pl.DataFrame({"low": [mark_at]})).mark_rule(color=colour, strokeWidth=2, aria=False).encode(x=x),
    ]
    return chart_svg(
        alt.layer(*layers).properties(width=BAR_WIDTH, height=BAR_HEIGHT), ROOM, histogram.select("accuracy", column)
    )


def ranking_panel(trials: pl.DataFrame, kind: Kind) -> Drawing:
    """Draw ROC or precision-recall curves of the three predictors: a panel of figures 5 and 8.

    Args:
        trials: columns held_out.TRIALS; verdicts are drawn in blue (standard) and vermilion (max), the
            distribution function in grey.
        kind: type of curve; precision-recall curves are drawn as the steps that average precision sums.
    """
    outcome = trials["above_standard_on_test"].to_numpy()
    predictors = (
        ("max tail", -trials["log10_max_tail"].to_numpy(), GREY),
        ("standard", trials["above_standard_on_train"].to_numpy().astype(np.float64), BLUE),
        ("max", trials["above_max_on_train"].to_numpy().astype(np.float64), VERMILION),
    )
    curves = pl.concat(
        _curve(score, outcome, kind).with_columns(predictor=pl.lit(name), colour=pl.lit(colour))
        for name, score, colour in predictors
    )
    is_roc = kind == "ROC"
    x = unit_channel(alt.X, "x", "false positive rate" if is_roc else "recall")
    y = unit_channel(alt.Y, "y", "true positive rate" if is_roc else "precision")
    shape: Literal["linear", "step-before"] = "linear" if is_roc else "step-before"
    drawn = alt.Chart(curves).mark_line(strokeWidth=1.8, interpolate=shape, aria=False)
    lines = [drawn.encode(x=x, y=y, order="order:Q", color=alt.Color("colour:N", scale=None))]
    if is_roc:
        chance = alt.Chart(pl.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0]}))
        lines.insert(0, chance.mark_line(color=GREY, strokeDash=[3, 3], strokeWidth=1, aria=False).encode(x=x, y=y))
    return chart_svg(alt.layer(*lines).properties(width=SQUARE, height=SQUARE), SQUARE_ROOM, curves.drop("colour"))


def _curve(score: npt.NDArray[np.float64], outcome: npt.NDArray[np.bool_], kind: Kind) -> pl.DataFrame:
    curves = ranking_curves(score, outcome)
    x, y = (
        (curves.false_positive_rate, curves.true_positive_rate)
        if kind == "ROC"
        else (curves.true_positive_rate, curves.precision)
    )
    points = np.unique(np.linspace(0, len(x) - 1, min(len(x), CURVE_POINTS)).round().astype(np.int64))
    return pl.DataFrame({"x": x[points], "y": y[points], "order": points})
