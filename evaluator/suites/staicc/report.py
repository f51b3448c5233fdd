"""Build the report sections of StaICC: those of any classification run, and those of its diagnostics."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.metrics.diagnostic import Reading
from evaluator.report import figures, tables
from evaluator.report.metric_texts import METRIC_TEXTS as CORE_TEXTS
from evaluator.report.metric_texts import MetricTexts
from evaluator.report.section import MeasuredRun, PackageFile, Section
from evaluator.report.sections.classification import classification_sections, datasets_of, with_head
from evaluator.report.sections.methods import method_order
from evaluator.report.sections.notes import (
    in_words,
    labels_in_words,
    missing_class_notes,
    prompt_definition_notes,
    pronoun,
)
from evaluator.report.sections.results import Figure, row_title, value_text
from evaluator.report.tables import Cell, ResultTable, result_tables
from evaluator.schemas import MEAN_OVER_DATASETS, Definition
from evaluator.suites.staicc.diagnostics.registry import DIAGNOSTIC_PARTS, HEADLINES, METRIC_TEXTS

TEXTS = MetricTexts({**CORE_TEXTS, **METRIC_TEXTS})

UNDEFINED = {"paper": "infinite", "released": "undefined"}
"""Value of the empirical bias, by definition, when a label that no query has is given probability."""


class Strip(NamedTuple):
    """A figure of the accuracies of a part at each value of what it varies."""

    part: str
    title: str
    variations: str  # name of what is varied, in the plural
    mean: str  # metric that is the mean of these accuracies


STRIPS = (
    Strip("template", "Accuracy by template", "templates", "accuracy_mean_over_templates"),
    Strip("sampling", "Accuracy by demonstration set", "demonstration sets", "accuracy_mean_over_demonstration_sets"),
)


class NoisePanel(NamedTuple):
    dataset: str  # or MEAN_OVER_DATASETS
    gler: Cell | None
    svg: Markup


class DiagnosticsContext(NamedTuple):
    """Variables of the template diagnostics.html: all diagnostics of one method."""

    method: str
    six: Sequence[ResultTable]  # the diagnostics of the paper, one table a definition
    others: Sequence[ResultTable]  # the other metrics of these parts, one table a definition
    noise: Mapping[str, Sequence[NoisePanel]]  # by definition
    strips: Mapping[str, Sequence[Figure]]  # by definition
    undiagnosed: Sequence[str]  # definitions without any diagnostic
    has_absent_labels: bool
    reading: Callable[[str, Definition], Reading]  # of a metric under a definition
    mean_over_datasets: str


def staicc_sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield the sections of a run of StaICC suites.

    Args:
        run: with the tables of a classification run, group_metrics, missing_classes and absent_labels.
    """
    metrics = run.table("metrics")
    notes = [
        *prompt_definition_notes(run.record, metrics),
        *missing_class_notes(run.table("missing_classes")),
        *absent_label_notes(run.table("absent_labels")),
    ]
    classified = classification_sections(run, texts=TEXTS, without_parts=DIAGNOSTIC_PARTS)
    sections = [*classified, *diagnostics_sections(run)]
    yield from with_head(sections, run, metrics, notes) if sections else ()


def diagnostics_sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield the diagnostics of the first method in full, and those of other methods folded."""
    metrics, groups, datasets = run.table("metrics"), run.table("group_metrics"), datasets_of(run)
    diagnosed = metrics.filter(pl.col("part").is_in(DIAGNOSTIC_PARTS))
    methods = sorted(set(diagnosed["method"]), key=method_order)
    views = [_view(method, metrics.filter(method=method), groups.filter(method=method), datasets) for method in methods]
    diagnosed_definitions = {table.definition for view in views for table in view.six}
    undiagnosed = [name for name in tables.DEFINITIONS if name in {*metrics["definition"]} - diagnosed_definitions]
    has_absent_labels = not run.table("absent_labels").is_empty()
    if not views:
        return
    first, *others = (view._replace(undiagnosed=undiagnosed, has_absent_labels=has_absent_labels) for view in views)
    yield _section(first, 1, subtitle=f"{first.method}, after Cho & Inoue 2025, section 3.3", navigation="Diagnostics")
    if others:
        yield Section(
            anchor="other-diagnostics",
            title="Diagnostics of other methods",
            kind="other-methods",
            sections=tuple(
                _section(view, number, title=view.method, is_folded=True) for number, view in enumerate(others, 2)
            ),
        )


def _section(
    view: DiagnosticsContext,
    number: int,
    *,
    title: str = "Diagnostics",
    subtitle: str = "",
    navigation: str = "",
    is_folded: bool = False,
) -> Section:
    return Section(
        anchor=f"diagnostics-{number}",
        title=title,
        subtitle=subtitle,
        kind="diagnosed method" if is_folded else "diagnosed",
        navigation=navigation,
        is_folded=is_folded,
        template=PackageFile("evaluator.suites.staicc", "templates/diagnostics.html"),
        context=view,
        style=PackageFile("evaluator.suites.staicc", "assets/diagnostics.css"),
    )


def absent_label_notes(absent: pl.DataFrame) -> Iterator[str]:
    """Name the labels that no query has, and the value of the empirical bias that results.

    Args:
        absent: schemas.ABSENT_LABELS.
    """
    if absent.is_empty():
        return
    by_dataset = absent.group_by("dataset").agg(pl.col("label_name", "definition").unique().sort()).sort("dataset")
    for dataset, labels, definitions in by_dataset.select("dataset", "label_name", "definition").iter_rows():
        values = in_words([f"{UNDEFINED[definition]} under {definition}" for definition in definitions])
        yield (
            f"{dataset}: no query has {labels_in_words(labels)}. The empirical bias of a method that gives "
            f"{pronoun(labels)} probability is {values}, and so is the mean over datasets."
        )


def _reading(metric: str, definition: Definition) -> Reading:
    """Return the unit and direction of a headline metric under a definition."""
    return HEADLINES[metric].readings[definition]


def _view(method: str, metrics: pl.DataFrame, groups: pl.DataFrame, datasets: Sequence[str]) -> DiagnosticsContext:
    is_one_of_six = pl.col("metric").is_in(list(HEADLINES))
    diagnosed = metrics.filter(pl.col("part").is_in(DIAGNOSTIC_PARTS))
    six = result_tables(metrics.filter(is_one_of_six), {}, datasets, TEXTS)
    others = result_tables(diagnosed.filter(~is_one_of_six), {}, datasets, TEXTS)
    chances = dict(metrics.filter(metric="accuracy").select("dataset", "chance").unique().iter_rows())
    accuracies = groups.filter(metric="accuracy")
    order = (*datasets, MEAN_OVER_DATASETS)
    return DiagnosticsContext(
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
        undiagnosed=(),
        has_absent_labels=False,
        reading=_reading,
        mean_over_datasets=MEAN_OVER_DATASETS,
    )


def _noise_panels(
    accuracies: pl.DataFrame, six: ResultTable, chances: dict[str, float | None], order: Sequence[str]
) -> Iterator[NoisePanel]:
    slopes = {row.dataset: cell for row, cell in six.column("gler")} if "gler" in six.metrics else {}
    for dataset in order:
        by_rate = accuracies.filter(part="gler", dataset=dataset).sort("noise_rate")
        if by_rate.height:
            points = by_rate.select("noise_rate", "n_requests", accuracy="value")
            described = pl.format(
                "Noise rate {}: accuracy {}, {} requests", "noise_rate", pl.col("accuracy").round(3), "n_requests"
            )
            svg = figures.noise_figure(points.with_columns(description=described), chances.get(dataset))
            yield NoisePanel(dataset, slopes.get(dataset), Markup(svg))


def _strip_figures(accuracies: pl.DataFrame, measured: ResultTable) -> Iterator[Figure]:
    for strip in STRIPS:
        varied = accuracies.filter(part=strip.part).sort("template", "demonstration_set")
        means = (
            [(row.dataset, cell) for row, cell in measured.column(strip.mean) if cell]
            if strip.mean in measured.metrics
            else []
        )
        if varied.height and means:
            values = {name: varied.filter(dataset=name)["value"].to_list() for name, _ in means}
            rows = [
                {"dataset": row_title(name), "value": cell.value, "ci_low": cell.ci_low, "ci_high": cell.ci_high}
                | {"description": _strip_text(name, cell, strip, values[name])}
                for name, cell in means
            ]
            dots = [{"dataset": row_title(name), "value": value} for name, _ in means for value in values[name]]
            yield Figure(strip.title, Markup(figures.strip_figure(pl.DataFrame(rows), pl.DataFrame(dots))))


def _strip_text(dataset: str, mean: Cell, strip: Strip, values: Sequence[float]) -> str:
    listed = ", ".join(f"{value:.3f}" for value in values)
    return f"{value_text(dataset, mean)}; {strip.variations}: {listed}"
