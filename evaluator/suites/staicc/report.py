"""Build the report sections of StaICC: those of every classification run, then the diagnostics."""

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
from evaluator.report.sections.total_error import total_error_sections
from evaluator.report.tables import Cell, ResultTable, result_tables
from evaluator.schemas import MEAN_OVER_DATASETS, Definition
from evaluator.suites.staicc.diagnostics import DIAGNOSTIC_PARTS, HEADLINES, METRIC_TEXTS
from evaluator.suites.staicc.report_learning_curve import learning_curve_section

TEXTS = MetricTexts({**CORE_TEXTS, **METRIC_TEXTS})

UNDEFINED = {"paper": "infinite", "released": "undefined"}
"""Value of the empirical bias, by definition, when a label that no query has is given probability."""


class Strip(NamedTuple):
    """Texts of a figure with the accuracy of a part for each template or demonstration set."""

    part: str
    title: str
    variations: str  # plural name of what differs between the accuracies
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
    headlines: Sequence[ResultTable]  # the six diagnostics of the paper, one table for each definition
    others: Sequence[ResultTable]  # the other metrics of these parts, one table for each definition
    noise: Mapping[str, Sequence[NoisePanel]]  # by definition
    strips: Mapping[str, Sequence[Figure]]  # by definition
    undiagnosed: Sequence[str]  # definitions without any diagnostic
    has_absent_labels: bool
    reading: Callable[[str, Definition], Reading]  # unit and direction of a headline metric under a definition
    mean_over_datasets: str


def staicc_sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield the sections of a run of StaICC suites.

    Args:
        run: with the tables of a classification run, group_metrics, missing_classes, absent_labels and
            the three of total error.
    """
    metrics = run.table("metrics")
    notes = [
        *prompt_definition_notes(run.record, metrics),
        *missing_class_notes(run.table("missing_classes")),
        *absent_label_notes(run.table("absent_labels")),
    ]
    classified = classification_sections(run, texts=TEXTS, without_parts=DIAGNOSTIC_PARTS)
    sections = [*classified, *diagnostics_sections(run), *total_error_sections(run, datasets_of(run), texts=TEXTS)]
    if any("learning_curve" in parts for parts in run.record.prompts.parts.values()):
        sections.append(learning_curve_section(run.table("learning_curve"), datasets_of(run)))
    yield from with_head(sections, run, metrics, notes) if sections else ()


def diagnostics_sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield a section with the diagnostics of the first method, and a folded one for each other method."""
    metrics = run.table("metrics")
    methods = sorted(set(metrics.filter(pl.col("part").is_in(DIAGNOSTIC_PARTS))["method"]), key=method_order)
    if not methods:
        return
    headlines = metrics.filter(pl.col("method").is_in(methods), pl.col("metric").is_in(list(HEADLINES)))
    without_headlines = {*metrics["definition"]} - {*headlines["definition"]}
    undiagnosed = [name for name in tables.DEFINITIONS if name in without_headlines]
    first, *others = (_view(run, method, undiagnosed) for method in methods)
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


def _view(run: MeasuredRun, method: str, undiagnosed: Sequence[str]) -> DiagnosticsContext:
    metrics, groups = (run.table(name).filter(method=method) for name in ("metrics", "group_metrics"))
    datasets = datasets_of(run)
    is_headline = pl.col("metric").is_in(list(HEADLINES))
    diagnosed = metrics.filter(pl.col("part").is_in(DIAGNOSTIC_PARTS))
    headlines = result_tables(metrics.filter(is_headline), {}, datasets, TEXTS)
    others = result_tables(diagnosed.filter(~is_headline), {}, datasets, TEXTS)
    chances = dict(metrics.filter(metric="accuracy").select("dataset", "chance").unique().iter_rows())
    accuracies = groups.filter(metric="accuracy")
    order = (*datasets, MEAN_OVER_DATASETS)
    return DiagnosticsContext(
        method,
        headlines,
        others,
        noise={
            table.definition: list(_noise_panels(accuracies.filter(definition=table.definition), table, chances, order))
            for table in headlines
        },
        strips={
            table.definition: list(_strip_figures(accuracies.filter(definition=table.definition), table))
            for table in others
        },
        undiagnosed=undiagnosed,
        has_absent_labels=not run.table("absent_labels").is_empty(),
        reading=lambda metric, definition: HEADLINES[metric].readings[definition],
        mean_over_datasets=MEAN_OVER_DATASETS,
    )


def _noise_panels(
    accuracies: pl.DataFrame, headlines: ResultTable, chances: dict[str, float | None], order: Sequence[str]
) -> Iterator[NoisePanel]:
    slopes = {row.dataset: cell for row, cell in headlines.column("gler")} if "gler" in headlines.metrics else {}
    for dataset in order:
        by_rate = accuracies.filter(part="gler", dataset=dataset).sort("noise_rate")
        if by_rate.height:
            points = by_rate.select("noise_rate", "n_requests", accuracy="value")
            described = pl.format(
                "Noise rate {}: accuracy {}, {} requests", "noise_rate", pl.col("accuracy").round(3), "n_requests"
            )
            points = points.with_columns(description=described)
            svg = Markup(figures.noise_figure(points, chances.get(dataset)))
            yield NoisePanel(dataset, slopes.get(dataset), svg)


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
