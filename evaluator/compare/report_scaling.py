"""Draw points and fitted lines over numbers of parameters as panels."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.compare.report_figures import scaling_figure, value_limits


class ScalingPanel(NamedTuple):
    """One figure with its line, a row of schema.SCALING."""

    title: str
    line: dict[str, Any]
    svg: Markup | None  # None where no model has both a value and a number of parameters


def value_panels(
    points: pl.DataFrame,
    lines: pl.DataFrame,
    titles: Mapping[str, str],
    references: Mapping[str, float],
    *,
    are_large: bool = False,
) -> list[ScalingPanel]:
    """Return a panel for each measure.

    Args:
        points: compare.across_models.scaling_points of one definition.
        lines: schema.SCALING of that definition.
        titles: of the measures to draw, in their order.
        references: measure -> value to compare with, drawn as a dashed line.
    """
    line_of_measure = {row["measure"]: row for row in lines.filter(of="value").iter_rows(named=True)}
    panels = []
    for measure, title in titles.items():
        if measure in line_of_measure:
            line = line_of_measure[measure]
            drawn = _drawn(points.filter(of="value", measure=measure), title)
            svg = _figure(drawn, line, reference=references.get(measure), is_large=are_large)
            panels.append(ScalingPanel(title, line, svg))
    return panels


def improvement_panels(
    points: pl.DataFrame, lines: pl.DataFrame, measure: str, methods: Sequence[str]
) -> list[ScalingPanel]:
    """Return a panel for each method, all on one scale, with a line at 0. Arguments as for value_panels."""
    rows = {row["method"]: row for row in lines.filter(of="improvement", measure=measure).iter_rows(named=True)}
    drawn = {
        method: _drawn(points.filter(of="improvement", measure=measure, method=method), method)
        for method in methods
        if method in rows
    }
    if not drawn:
        return []
    limits = value_limits([*drawn.values(), *(_ends(shown, rows[method]) for method, shown in drawn.items())], 0)
    return [
        ScalingPanel(method, rows[method], _figure(shown, rows[method], reference=0, limits=limits))
        for method, shown in drawn.items()
    ]


def _drawn(points: pl.DataFrame, title: str) -> pl.DataFrame:
    finite = points.filter(pl.col("n_parameters").is_not_null(), pl.col("value").is_finite())
    return finite.with_columns(
        description=pl.format(
            "{} {}: {} {}, 95% interval {} to {}, {} parameters",
            *("number", "model", pl.lit(title)),
            *(_decimals(column) for column in ("value", "ci_low", "ci_high")),
            "n_parameters",
        )
    )


def _decimals(column: str) -> pl.Expr:
    return pl.col(column).round(3).cast(pl.String).fill_null("unknown")


def _figure(points: pl.DataFrame, line: Mapping[str, Any], **drawn: Any) -> Markup | None:
    return None if points.is_empty() else Markup(scaling_figure(points, _ends(points, line), **drawn))


def _ends(points: pl.DataFrame, line: Mapping[str, Any]) -> pl.DataFrame:
    """Return the line at the smallest and the largest model; no rows where there is no line."""
    if line["slope"] is None:
        return pl.DataFrame(schema={"n_parameters": pl.Int64, "value": pl.Float64})
    ends = points.select(n_parameters=pl.concat_list(pl.col("n_parameters").min(), pl.col("n_parameters").max()))
    return ends.explode("n_parameters").with_columns(
        value=line["intercept"] + line["slope"] * pl.col("n_parameters").log10()
    )
