"""Build the section of total error: intervals side by side, variance components, and what more prompts would buy."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import polars as pl

from evaluator.report.metric_texts import MetricTexts
from evaluator.report.section import MeasuredRun, Section, core_template
from evaluator.report.tables import DEFINITIONS
from evaluator.schemas import MEAN_OVER_DATASETS


class TotalErrorView(NamedTuple):
    """The rows of one definition."""

    definition: str
    totals: list[dict[str, Any]]  # TOTAL_ERROR with `title`, the mean over datasets last
    components: list[dict[str, Any]]  # VARIANCE_COMPONENTS with `title`
    designs: list[dict[str, Any]]  # DESIGN_STUDY with `title`, of the mean over datasets, or of a single dataset


class TotalErrorContext(NamedTuple):
    """Variables of the template total_error.html."""

    views: Sequence[TotalErrorView]
    mean_over_datasets: str
    several_datasets: bool


def total_error_sections(
    run: MeasuredRun, datasets: Sequence[str], *, texts: MetricTexts | None = None
) -> Iterator[Section]:
    """Yield the section; nothing where no answers were decomposed.

    Args:
        run: with the tables total_error, variance_components and design_study.
        datasets: the order of rows.
        texts: titles of metrics.
    """
    totals, components, designs = (run.table(name) for name in ("total_error", "variance_components", "design_study"))
    if components.is_empty():
        return
    titles = texts or MetricTexts()
    order = (*datasets, MEAN_OVER_DATASETS)
    shown_designs = MEAN_OVER_DATASETS if len(datasets) > 1 else datasets[0]
    views = [
        TotalErrorView(
            definition,
            *(
                _rows(frame.filter(definition=definition), order, titles)
                for frame in (totals, components, designs.filter(dataset=shown_designs))
            ),
        )
        for definition in (*DEFINITIONS, *sorted({*components["definition"]} - {*DEFINITIONS}))
        if definition in set(components["definition"])
    ]
    yield Section(
        anchor="total-error",
        title="Total error",
        subtitle="queries and prompts are both samples",
        kind="total-error",
        navigation="Total error",
        template=core_template("total_error.html"),
        context=TotalErrorContext(views, MEAN_OVER_DATASETS, len(datasets) > 1),
    )


def _rows(frame: pl.DataFrame, order: Sequence[str], texts: MetricTexts) -> list[dict[str, Any]]:
    """Return rows in the page's order of datasets, without the mean of a single one."""
    kept = order[:-1] if len(order) == 2 else order
    rows = [row for row in frame.to_dicts() if row["dataset"] in kept]
    titled = [row | {"title": texts.title(row["metric"])} for row in rows]

    def place(row: dict[str, Any]) -> tuple[object, ...]:
        return str(row["part"]), str(row["method"]), row["n_shots"] or 0, row["metric"], kept.index(row["dataset"])

    return sorted(titled, key=place)
