"""Build the report sections of StaICC: classification results, diagnostics, learning curve and published models."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl
from markupsafe import Markup

from evaluator.errors import plural
from evaluator.metrics.classification import REQUEST_COLUMNS
from evaluator.metrics.groups import Reading
from evaluator.report import classification, figures
from evaluator.report.methods import datasets_of, method_order
from evaluator.report.notes import in_words, labels_in_words, pronoun
from evaluator.report.section import Block, Group, Legend, MeasuredRun, Panel, Panels, Section, dataset_panels, texts
from evaluator.report.table import (
    DATASET,
    DEFINITIONS,
    Column,
    Row,
    Table,
    by_definition,
    in_order,
    marked,
    metric_column,
    number,
)
from evaluator.report.total_error import total_error_sections
from evaluator.suites.base import classification_page
from evaluator.suites.staicc.diagnostics import AS_PRINTED, DIAGNOSTIC_PARTS, HEADLINES
from evaluator.suites.staicc.robustness import VARIABLES
from evaluator.suites.staicc.standing import TITLES, published_sections, standing_lines

TEXTS = texts("evaluator.suites.staicc")

STYLE = "evaluator.suites.staicc:assets/diagnostics.css"

UNDEFINED = {"paper": "infinite", "released": "undefined"}
"""Definition -> value of the empirical bias if the model gives probability to a label that is no query's gold label."""

STRIPS = (
    ("template", "Accuracy by template", "accuracy", "templates"),
    ("sampling", "Accuracy by demonstration set", "accuracy", "demonstration_sets"),
    *((part, f"Macro-F1 by {part}", "macro_f1", f"{part}s") for part in VARIABLES),
)
"""Figures of a metric at each level of a varied property: part, title, metric, and the property in the plural."""


def staicc_sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield the sections of a run of StaICC suites.

    Args:
        run: has the tables of a classification run, absent_labels, and the three tables of total error.
    """
    further = [*diagnostics_sections(run), *total_error_sections(run, datasets_of(run), texts=TITLES)]
    further += [*learning_curve_sections(run), *published_sections([(run, "", run.record.model.title)])]
    notes = absent_label_notes(run.table("absent_labels"))
    sections = classification_page(run, DIAGNOSTIC_PARTS, further, notes=notes, texts=TITLES)
    standing = [marked('{} <a href="#published">More</a>', line) for line in standing_lines(run)]
    yield from (replace(first, content=(*standing, *first.content)) for first in sections[:1])
    yield from sections[1:]


def diagnostics_sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield a section with the diagnostics of the first method, and a folded section with those of other methods."""
    metrics = run.table("metrics")
    methods = sorted(set(metrics.filter(pl.col("part").is_in(DIAGNOSTIC_PARTS))["method"]), key=method_order)
    if not methods:
        return
    headlines = metrics.filter(pl.col("method").is_in(methods), pl.col("metric").is_in(list(HEADLINES)))
    without = {*metrics["definition"]} - {*headlines["definition"]}
    undiagnosed = [
        Group([f"No diagnostic is measured under the definition {name}."], definition=name)
        for name in DEFINITIONS
        if name in without
    ]
    first, *others = (
        Section(f"diagnostics-{place}", name, [*undiagnosed, *_diagnostics(run, name)], kind="diagnosed", style=STYLE)
        for place, name in enumerate(methods, 1)
    )
    subtitle = f"{first.title}, after Cho & Inoue 2025, section 3.3"
    yield replace(first, title="Diagnostics", subtitle=subtitle, navigation="Diagnostics")
    if others:
        folded = [replace(section, kind="diagnosed method", is_folded=True) for section in others]
        yield Section("other-diagnostics", "Diagnostics of other methods", folded, kind="other-methods")


def absent_label_notes(absent: pl.DataFrame) -> Iterator[str]:
    """Yield a note for each dataset with labels that no query has, and the resulting value of the empirical bias.

    Args:
        absent: schemas.ABSENT_LABELS.
    """
    by_dataset = absent.group_by("dataset").agg(pl.col("label_name", "definition").unique().sort()).sort("dataset")
    for dataset, labels, definitions in by_dataset.select("dataset", "label_name", "definition").iter_rows():
        values = in_words([f"{UNDEFINED[definition]} under {definition}" for definition in definitions])
        yield TEXTS["absent_label_notes"].format(dataset, labels_in_words(labels), pronoun(labels), values)


def _diagnostics(run: MeasuredRun, method: str) -> Iterator[Block]:
    """Yield the diagnostics of one method under each definition, then the other metrics of the altered prompts."""
    metrics, varied = (run.table(name).filter(method=method) for name in ("metrics", "group_metrics"))
    datasets, is_headline = datasets_of(run), pl.col("metric").is_in([*HEADLINES, *AS_PRINTED])
    chances = dict(metrics.filter(metric="accuracy").select("dataset", "chance").unique().iter_rows())
    headlines = metrics.filter(is_headline)
    table = partial(Table, is_mean_last=True, style="metrics diagnostics", data={"method": method})
    for definition, rows in by_definition(headlines, datasets):
        names = TITLES.in_order(headlines["metric"])
        caption = _caption(definition, rows.columns, has_absent=not run.table("absent_labels").is_empty())
        columns = [replace(_column(name), note=_reading(name, definition)) for name in names]
        content: list[Block] = [table(rows, [DATASET, *columns], caption=caption)]
        noisy = varied.filter(definition=definition, part="gler", metric="accuracy")
        if noisy.height:
            gler = rows.select("dataset", pl.col("gler").struct["value"]).rows() if "gler" in rows.columns else []
            about = {dataset: f"GLER {number(value)}" for dataset, value in gler if value is not None}
            ordered, draw = in_order(noisy, datasets, "noise_rate"), partial(_noise_figure, chance=chances)
            panels = Panels(dataset_panels(ordered, draw, about), style="panels noise")
            content.append(Group([TEXTS["noise_note"], panels], "Accuracy against wrong labels in demonstrations"))
        yield Group(content, definition=definition, style="definition")
    others = metrics.filter(pl.col("part").is_in(DIAGNOSTIC_PARTS) & ~is_headline)
    for definition, rows in by_definition(others, datasets):
        columns = [_column(name) for name in TITLES.in_order(others["metric"])]
        caption = marked(TEXTS["others_note"], definition)
        others_table = table(rows, [DATASET, *columns], caption=caption)
        folded = Group([others_table], "Other metrics of these parts", is_folded=True)
        strips = list(_strip_panels(varied.filter(definition=definition), rows))
        content = [Group([STRIP_LEGEND, Panels(strips, style="pair")], STRIP_TITLE)] if strips else []
        yield Group([*content, folded], definition=definition, style="definition")


STRIP_TITLE = "One variable of the prompt at a time"
STRIP_LEGEND = Legend({"value": "mean and its 95% interval", "one": "one level: a template, a demonstration set, ..."})


def _column(metric: str) -> Column:
    return replace(metric_column(metric, TITLES), style="number diagnostic")


def _reading(metric: str, definition: Any) -> Reading:
    """Return the unit and direction of a diagnostic or of its form in the paper's tables."""
    return AS_PRINTED.get(metric) or HEADLINES[metric].readings[definition]


def _caption(definition: str, metrics: Sequence[str], *, has_absent: bool) -> Markup:
    text = Markup("Definition <em>{}</em>. Below each value its 95% interval, clustered by query.").format(definition)
    if "contextual_bias" in metrics or "domain_bias" in metrics:
        entropies, limits = (
            ("entropies of the mean", "from 0 to log(labels), which is no bias")
            if definition == "released"
            else ("minus the mean entropy of the", "from −log(labels), which is no bias, to 0")
        )
        text += f" Contextual and domain bias are {entropies} label probabilities on queries without content: {limits}."
    if has_absent:
        text += " The notes at the top of the page explain an infinite or undefined empirical bias."
    return text + " A dash: not measured under this definition."


def _noise_figure(rows: pl.DataFrame, chance: Mapping[str, float]) -> list[str]:
    """Return the figure of accuracy by noise rate for one dataset."""
    accuracy = pl.col("value").round(3)
    description = pl.format("Noise rate {}: accuracy {}, {} requests", "noise_rate", accuracy, "n_requests")
    points = rows.select("noise_rate", "n_requests", accuracy="value", description=description)
    return [figures.noise_figure(points, chance.get(rows["dataset"][0]))]


def _strip_panels(values: pl.DataFrame, measured: pl.DataFrame) -> Iterator[Panel]:
    """Yield a panel for each entry of STRIPS: for each dataset, a metric at every level and the mean over levels.

    Args:
        values: rows of schemas.GROUP_METRICS.
        measured: a row for each dataset, with the means over levels as columns of structs.
    """
    for part, title, metric, levels in STRIPS:
        mean = f"{metric}_mean_over_{levels}"
        varied = values.filter(part=part, metric=metric).sort("template", "demonstration_set")
        if varied.height and mean in measured.columns:
            means = measured.select("dataset", mean).drop_nulls().unnest(mean)
            rows = means.select("dataset", "value", "ci_low", "ci_high")
            listed = dict(varied.group_by("dataset", maintain_order=True).agg("value").iter_rows())

            def text(row: Row, listed: Mapping[str, Sequence[float]] = listed, named: str = levels) -> str:
                numbers = ", ".join(f"{value:.3f}" for value in listed[row["dataset"]])
                return f"{classification.value_text(row)}; {named.replace('_', ' ')}: {numbers}"

            dots = in_order(varied, rows["dataset"].to_list()).select("dataset", "value")
            yield Panel(title, [figures.interval_rows(rows.with_columns(classification.described(rows, text)), dots)])


def learning_curve_sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield the section of the learning curve, if the run has this table."""
    if "learning_curve" not in run.record.tables:
        return
    curve, datasets, groups = run.table("learning_curve"), datasets_of(run), []
    for definition in (name for name in DEFINITIONS if name in set(curve["definition"])):
        rows = in_order(curve.filter(definition=definition), datasets, "n_shots")
        panels = dataset_panels(rows.filter(metric="accuracy"), _curve_figure)
        tables = [_curve_table(rows.filter(metric=name), TITLES.title(name), definition) for name in REQUEST_COLUMNS]
        folded = Group(tables, "The numbers of the learning curve", is_folded=True)
        content: list[Block] = [Panels(panels, style="panels noise"), folded]
        groups.append(Group(content, definition=definition, style="definition"))
    yield Section(
        "learning-curve",
        "Learning curve",
        [TEXTS["curve_note"], *groups],
        subtitle="vanilla, at every demonstration of the prompts",
        kind="learning-curve",
        navigation="Learning curve",
        style=STYLE,
    )


def _curve_table(points: pl.DataFrame, title: str, definition: str) -> Table:
    """Return the table of one metric: a row for each dataset, a column for each number of demonstrations."""
    cell = pl.struct("n_shots", "value", "ci_low", "ci_high", "n_examples", "n_requests")
    columns = [
        Column(
            str(n_shots),
            "value",
            of=str(n_shots),
            interval=("ci_low", "ci_high"),
            tip=lambda row: f"{plural(row['n_examples'], 'example')} in {plural(row['n_requests'], 'request')}",
            style="number point",
            data={"shots": "n_shots"},
        )
        for n_shots in sorted(set(points["n_shots"]))
    ]
    caption = Markup("{} after as many demonstrations, definition <em>{}</em>. Below each value its 95% interval.")
    return Table(
        points.select("dataset", "n_shots", cell=cell).pivot(on="n_shots", index="dataset", values="cell"),
        [DATASET, *columns],
        caption=caption.format(title, definition),
        style="metrics curve",
    )


def _curve_figure(rows: pl.DataFrame) -> list[str]:
    def text(row: Row) -> str:
        ends = f"{classification.recorded(row['ci_low'])} to {classification.recorded(row['ci_high'])}"
        about = f"{row['dataset']}, {plural(row['n_shots'], 'demonstration')}"
        return f"{about}: accuracy {row['value']:.3f}, 95% interval {ends}, {plural(row['n_requests'], 'request')}"

    return [figures.learning_curve_figure(rows.with_columns(classification.described(rows, text)))]
