"""Draw measured values among the published ones over numbers of parameters: figures 4, 5 and 7 of StaICC."""

import numpy as np
import polars as pl

from evaluator.compare.report_figures import LARGE, SMALL, parameter_axis, value_limits
from evaluator.report.charts import BLUE, GREY, INK
from evaluator.report.figures import Axis, Mark, panel
from evaluator.report.section import Panel
from evaluator.suites.staicc.published import predicted

LINE_POINTS = 24
"""Points of a line: the limits of prediction are curves."""

KEYS = {
    "one": "a published model",
    "line grey": "least-squares line over log₁₀ of parameters",
    "reference": "limits within which 95% of further models are expected",
}
RUN_KEYS = {"value": "a run, with its 95% interval", **KEYS}

MARKS = (
    *(Mark("line", "n_parameters", end, rows="line", color=GREY, dash=(4, 3), size=1.2) for end in ("low", "high")),
    Mark("line", "n_parameters", "value", rows="line", color=GREY, size=1.6),
    Mark("point", "n_parameters", "value", rows="models", color=GREY, opacity=0.7, size=40),
    Mark("rule", "n_parameters", "ci_low", rows="runs", y2="ci_high", color=BLUE, size=2),
    Mark("point", "n_parameters", "value", rows="runs", color=BLUE, size=70),
    Mark("text", "n_parameters", "value", rows="runs", text="number", color=INK, size=10),
    # Transparent points hold the descriptions.
    *(Mark("point", "n_parameters", "value", rows=rows, opacity=0, size=300, is_described=True)
      for rows in ("models", "runs")),
)  # fmt: skip

RUNS = pl.Schema(
    {
        "number": pl.String(),  # label of the point; "" for the only run
        "model": pl.String(),
        "n_parameters": pl.Int64(),
        "value": pl.Float64(),
        "ci_low": pl.Float64(),
        "ci_high": pl.Float64(),
    }
)


def size_panel(
    title: str, published: pl.DataFrame, runs: pl.DataFrame | None = None, *, about: str = "", is_large: bool = False
) -> Panel:
    """Draw published values of a metric with their line, and runs among them.

    Args:
        title: of the metric or method.
        published: of one panel of published.figure_points.
        runs: RUNS, with finite values.
        about: line below the title.
    """
    runs = RUNS.to_frame() if runs is None else runs
    sizes = [*published["n_parameters"], *runs["n_parameters"]]
    grid = np.geomspace(min(sizes), max(sizes), LINE_POINTS).round().astype(np.int64)
    line = predicted(published, grid.tolist())
    ends = value_limits([published, runs, line.rename({"low": "ci_low", "high": "ci_high"})])
    shown = published.with_columns(
        description=pl.format("{}: {} {}", "model", pl.lit(title), pl.col("value").round(4)),
    )
    values = (pl.col(name).round(3) for name in ("value", "ci_low", "ci_high"))
    marked = runs.with_columns(
        dx=pl.lit(7),
        dy=pl.lit(-6),
        description=pl.format("{}: {} {}, 95% interval {} to {}", "model", pl.lit(title), *values),
    )
    drawing = panel(
        MARKS,
        parameter_axis(sizes),
        Axis(domain=ends, form=".2f"),
        size=LARGE if is_large else SMALL,
        data=pl.concat([published.select("model", "n_parameters", "value"), runs], how="diagonal"),
        models=shown,
        line=line,
        runs=marked,
    )
    return Panel(title, [drawing], about)
