"""Points and lines over numbers of parameters to the panels a reader sees. Nothing is fitted here."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.compare.report_figures import scaling_figure, value_limits


class ScalingPanel(NamedTuple):
    """One figure with its line, a row of schemas.SCALING."""

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
    """A panel a measure.

    Args:
        points: comparison.scaling.scaling_points of one definition.
        lines: schemas.SCALING of that definition.
        titles: of the measures that are drawn, in their order.
        references: what a measure is compared with, where there is such a value.
    """
    chosen = {row["measure"]: row for row in lines.filter(of="value").iter_rows(named=True)}
    panels = []
    for measure, title in titles.items():
        if measure in chosen:
            own = _drawn(points.filter(of="value", measure=measure), title)
            svg = _figure(own, chosen[measure], reference=references.get(measure), is_large=are_large)
            panels.append(ScalingPanel(title, chosen[measure], svg))
    return panels


def improvement_panels(
    points: pl.DataFrame, lines: pl.DataFrame, measure: str, methods: Sequence[str]
) -> list[ScalingPanel]:
    """A panel a method, all on one scale, with a line across at no improvement. Arguments as for value_panels."""
    rows = {row["method"]: row for row in lines.filter(of="improvement", measure=measure).iter_rows(named=True)}
    drawn = {
        method: _drawn(points.filter(of="improvement", measure=measure, method=method), method)
        for method in methods
        if method in rows
    }
    if not drawn:
        return []
    limits = value_limits([*drawn.values(), *(_ends(own, rows[method]) for method, own in drawn.items())], 0)
    return [
        ScalingPanel(method, rows[method], _figure(own, rows[method], reference=0, limits=limits))
        for method, own in drawn.items()
    ]


def _drawn(points: pl.DataFrame, title: str) -> pl.DataFrame:
    known = points.filter(pl.col("n_parameters").is_not_null(), pl.col("value").is_finite())
    return known.with_columns(
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
    """The line at the smallest and the largest model; no rows where there is none."""
    if line["slope"] is None:
        return pl.DataFrame(schema={"n_parameters": pl.Int64, "value": pl.Float64})
    ends = points.select(n_parameters=pl.concat_list(pl.col("n_parameters").min(), pl.col("n_parameters").max()))
    return ends.explode("n_parameters").with_columns(
        value=line["intercept"] + line["slope"] * pl.col("n_parameters").log10()
    )
