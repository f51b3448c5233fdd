"""What disturbed prompts show: metrics and the metrics of noise rates, templates and demonstration sets go in; tables
and figures come out. Numbers are laid out here, never computed.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.metrics.per_request import DIAGNOSTIC_PARTS
from evaluator.report import figures
from evaluator.report.group_views import Figure, row_title, value_text
from evaluator.report.methods import method_order
from evaluator.report.tables import Cell, ResultTable, result_tables
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.suites.staicc.diagnostics.readings import TITLES


class Strip(NamedTuple):
    """A part that asks the same in several ways, and what its accuracies' mean is called."""

    part: str
    title: str
    way: str
    mean: str


STRIPS = (
    Strip("template", "Accuracy by template", "templates", "accuracy_mean_over_templates"),
    Strip("sampling", "Accuracy by demonstration set", "demonstration sets", "accuracy_mean_over_demonstration_sets"),
)


class NoisePanel(NamedTuple):
    dataset: str  # or MEAN_OVER_DATASETS
    gler: Cell | None
    svg: Markup


class DiagnosticsView(NamedTuple):
    """All diagnostics of one method."""

    method: str
    six: list[ResultTable]  # the diagnostics of the paper, one table a definition
    others: list[ResultTable]  # what else is measured of these parts
    noise: dict[str, list[NoisePanel]]  # by definition
    strips: dict[str, list[Figure]]  # by definition


def diagnostics_views(metrics: pl.DataFrame, groups: pl.DataFrame, datasets: Sequence[str]) -> list[DiagnosticsView]:
    """One a method that was measured on disturbed prompts, vanilla first.

    Args:
        metrics: schemas.METRICS.
        groups: schemas.GROUP_METRICS.
        datasets: the order of rows and panels.
    """
    disturbed = metrics.filter(pl.col("part").is_in(DIAGNOSTIC_PARTS))
    return [
        _view(method, metrics.filter(method=method), groups.filter(method=method), datasets)
        for method in sorted(set(disturbed["method"]), key=method_order)
    ]


def _view(method: str, metrics: pl.DataFrame, groups: pl.DataFrame, datasets: Sequence[str]) -> DiagnosticsView:
    is_one_of_six = pl.col("metric").is_in(list(TITLES))
    disturbed = metrics.filter(pl.col("part").is_in(DIAGNOSTIC_PARTS))
    six = result_tables(metrics.filter(is_one_of_six), {}, datasets)
    others = result_tables(disturbed.filter(~is_one_of_six), {}, datasets)
    chances = dict(metrics.filter(metric="accuracy").select("dataset", "chance").unique().iter_rows())
    accuracies = groups.filter(metric="accuracy")
    order = (*datasets, MEAN_OVER_DATASETS)
    return DiagnosticsView(
        method,
        six,
        others,
        noise={
            table.definition: list(_noise_panels(accuracies.filter(definition=table.definition), table, chances, order))
            for table in six
        },
        strips={
            table.definition: list(_strip_figures(accuracies.filter(definition=table.definition), table))
            for table in others
        },
    )


def _noise_panels(
    accuracies: pl.DataFrame, six: ResultTable, chances: dict[str, float | None], order: Sequence[str]
) -> Iterator[NoisePanel]:
    slopes = {row.dataset: cell for row, cell in six.column("gler")} if "gler" in six.metrics else {}
    for dataset in order:
        own = accuracies.filter(part="gler", dataset=dataset).sort("noise_rate")
        if own.height:
            points = own.select("noise_rate", "n_requests", accuracy="value")
            described = pl.format(
                "Noise rate {}: accuracy {}, {} requests", "noise_rate", pl.col("accuracy").round(3), "n_requests"
            )
            svg = figures.noise_figure(points.with_columns(description=described), chances.get(dataset))
            yield NoisePanel(dataset, slopes.get(dataset), Markup(svg))


def _strip_figures(accuracies: pl.DataFrame, measured: ResultTable) -> Iterator[Figure]:
    for strip in STRIPS:
        own = accuracies.filter(part=strip.part).sort("template", "demonstration_set")
        means = (
            [(row.dataset, cell) for row, cell in measured.column(strip.mean) if cell]
            if strip.mean in measured.metrics
            else []
        )
        if own.height and means:
            values = {name: own.filter(dataset=name)["value"].to_list() for name, _ in means}
            rows = [
                {"dataset": row_title(name), "value": cell.value, "ci_low": cell.ci_low, "ci_high": cell.ci_high}
                | {"description": _strip_text(name, cell, strip, values[name])}
                for name, cell in means
            ]
            dots = [{"dataset": row_title(name), "value": value} for name, _ in means for value in values[name]]
            yield Figure(strip.title, Markup(figures.strip_figure(pl.DataFrame(rows), pl.DataFrame(dots))))


def _strip_text(dataset: str, mean: Cell, strip: Strip, values: Sequence[float]) -> str:
    listed = ", ".join(f"{value:.3f}" for value in values)
    return f"{value_text(dataset, mean)}; {strip.way}: {listed}"
