"""Build the report section of the learning curve: accuracy by the number of preceding demonstrations."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.metrics.registry import REQUEST_COLUMNS
from evaluator.report import figures
from evaluator.report.metric_texts import METRIC_TEXTS
from evaluator.report.section import PackageFile, Section
from evaluator.report.sections.results import decimals_text, row_title
from evaluator.report.tables import DEFINITIONS
from evaluator.schemas import MEAN_OVER_DATASETS


class CurvePanel(NamedTuple):
    dataset: str  # or MEAN_OVER_DATASETS
    svg: Markup


class CurvePoint(NamedTuple):
    """The columns of schemas.LEARNING_CURVE that a cell of the table shows."""

    n_shots: int
    value: float
    ci_low: float | None
    ci_high: float | None
    n_examples: int
    n_requests: int


class LearningCurveContext(NamedTuple):
    n_shots: Sequence[int]
    panels: Mapping[str, Sequence[CurvePanel]]  # by definition
    points: Mapping[str, Mapping[str, Mapping[str, Sequence[CurvePoint]]]]  # by definition, metric and dataset
    mean_over_datasets: str


def learning_curve_section(curve: pl.DataFrame, datasets: Sequence[str]) -> Section:
    """Build the section from schemas.LEARNING_CURVE; `datasets` is the order of panels and rows."""
    order = (*datasets, MEAN_OVER_DATASETS)
    measured = [name for name in DEFINITIONS if name in set(curve["definition"])]
    accuracies = curve.filter(metric="accuracy")
    return Section(
        anchor="learning-curve",
        title="Learning curve",
        subtitle="vanilla, at every demonstration of the prompts",
        kind="learning-curve",
        navigation="Learning curve",
        template=PackageFile("evaluator.suites.staicc", "templates/learning_curve.html"),
        style=PackageFile("evaluator.suites.staicc", "assets/diagnostics.css"),
        context=LearningCurveContext(
            sorted(set(curve["n_shots"])),
            {name: list(_panels(accuracies.filter(definition=name), order)) for name in measured},
            {
                name: {
                    METRIC_TEXTS[metric].title: _points(rows, order)
                    for metric in REQUEST_COLUMNS
                    if (rows := _rows(curve, name, metric)).height
                }
                for name in measured
            },
            MEAN_OVER_DATASETS,
        ),
    )


def _rows(curve: pl.DataFrame, definition: str, metric: str) -> pl.DataFrame:
    return curve.filter(definition=definition, metric=metric).sort("n_shots")


def _points(rows: pl.DataFrame, order: Sequence[str]) -> dict[str, list[CurvePoint]]:
    points = {
        dataset: [CurvePoint(*row) for row in rows.filter(dataset=dataset).select(CurvePoint._fields).iter_rows()]
        for dataset in order
    }
    return {dataset: of_dataset for dataset, of_dataset in points.items() if of_dataset}


def _panels(accuracies: pl.DataFrame, order: Sequence[str]) -> Iterator[CurvePanel]:
    for dataset in order:
        rows = accuracies.filter(dataset=dataset).sort("n_shots")
        if rows.height:
            descriptions = [
                f"{row_title(dataset)}, {row['n_shots']} demonstrations: accuracy {row['value']:.3f}, 95% interval "
                f"{decimals_text(row['ci_low'])} to {decimals_text(row['ci_high'])}, {row['n_requests']:,} requests"
                for row in rows.iter_rows(named=True)
            ]
            points = rows.with_columns(description=pl.Series(descriptions))
            yield CurvePanel(dataset, Markup(figures.learning_curve_figure(points)))
