"""Build the report sections of a comparison from its tables. Nothing is computed here."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import polars as pl

from evaluator.compare.across_models import with_measure
from evaluator.compare.report_correlations import Triangle, triangles
from evaluator.compare.report_scaling import ScalingPanel, improvement_panels, value_panels
from evaluator.compare.runs import ComparedRun
from evaluator.methods import REFERENCE_METHOD
from evaluator.metrics.classification import REQUEST_COLUMNS
from evaluator.report import facts, tables
from evaluator.report.differences import (
    JUDGED_BY,
    MAX_PAIRS,
    Difference,
    Differences,
    DifferenceTable,
    Pair,
    against_vanilla,
    pairs_of_models,
)
from evaluator.report.metric_texts import MetricTexts
from evaluator.report.page import Header
from evaluator.report.section import PackageFile, Section
from evaluator.schemas import MEAN_OVER_DATASETS

SCALED = ("true_label_probability", JUDGED_BY)
"""Metrics with larger figures, the first as in figure 4; the expected value of a random guess is 1 / n_labels."""

RUN_FACTS = ("Parameters", "dtype", "Engine", "Revision", "Weights fingerprint", "Finished")
"""Facts of the record that distinguish runs."""


@dataclass(frozen=True, kw_only=True)
class ComparisonData:
    """The tables and texts that the sections show."""

    runs: Sequence[ComparedRun]
    comparison: pl.DataFrame  # schema.COMPARISON
    differences: pl.DataFrame  # schema.DIFFERENCES
    rank_correlations: pl.DataFrame  # schema.RANK_CORRELATIONS
    points: pl.DataFrame  # compare.across_models.scaling_points
    lines: pl.DataFrame  # schema.SCALING
    texts: MetricTexts  # titles of metrics
    equivalence: pl.DataFrame | None = None  # schema.EQUIVALENCE, with a margin


class Cell(NamedTuple):
    value: float
    ci_low: float | None
    ci_high: float | None
    n_queries: int
    n_requests: int


class ModelCell(NamedTuple):
    cell: Cell
    is_best: bool


class ModelTable(NamedTuple):
    """A table with one row a model and one number a cell."""

    columns: list[str]  # methods, measures or datasets
    rows: list[tuple[ComparedRun, list[ModelCell | None]]]  # None where a model was not measured


class AccuracyView(NamedTuple):
    """The accuracies of one suite's part."""

    measure: str
    models: ModelTable  # a column a method
    against_vanilla: DifferenceTable
    improvements: list[ScalingPanel]
    pairs: list[Pair]

    @property
    def means(self) -> dict[tuple[str, str], Difference]:
        """Return the mean difference of each pair of models."""
        return {(pair.a, pair.b): pair.mean for pair in self.pairs}


class Names(NamedTuple):
    """Names of models, measures and metrics on the page."""

    numbers: Mapping[str, int]  # model -> its number on the page
    model_titles: Mapping[str, str]
    titles: Mapping[str, str]  # of measures, in their order
    metric_titles: Mapping[str, str]
    lower_is_better: frozenset[str]  # measures


class RunsContext(NamedTuple):
    names: Names
    runs: Sequence[tuple[ComparedRun, list[str | None]]]  # with RUN_FACTS
    fact_names: Sequence[str]


class MeansContext(NamedTuple):
    names: Names
    definition: str
    title: str
    table: ModelTable  # a column a method, or a dataset


class ScalingContext(NamedTuple):
    drawn: Sequence[ScalingPanel]


class OverVanillaContext(NamedTuple):
    names: Names
    definition: str
    table: DifferenceTable
    improvements: Sequence[ScalingPanel]


class MeasuresContext(NamedTuple):
    names: Names
    definition: str
    measures: ModelTable  # a column a measure
    drawn: Sequence[ScalingPanel]


class RankCorrelationsContext(NamedTuple):
    names: Names
    definition: str
    measure_triangles: Sequence[Triangle]
    model_triangles: Sequence[Triangle]


class PairsContext(NamedTuple):
    names: Names
    definition: str
    models: Sequence[str]
    pairs: Sequence[Pair]
    means: Mapping[tuple[str, str], Difference]
    max_pairs: int
    mean_over_datasets: str


class EquivalenceContext(NamedTuple):
    names: Names
    definition: str
    margin: float
    rows: Sequence[dict[str, Any]]  # schema.EQUIVALENCE of means over datasets


def comparison_header(data: ComparisonData, notes: Sequence[str]) -> Header:
    """Build the head of the page: the compared models, warnings and notes."""
    first = data.runs[0].record
    measured = data.comparison.select(pl.format("{} / {}", "suite", "part")).to_series().unique().sort()
    n_datasets, n_shots = len(_datasets(data)), first.prompts.n_shots
    shots = "" if n_shots is None else f" · {n_shots} shot{'s' * (n_shots != 1)}"
    warnings = [
        (run.model, warning)
        for run in data.runs
        for warning in (facts.warning(run.record), *facts.left_out_warnings(run.record))
    ]
    return Header(
        kicker="In-context classification",
        heading=f"{len(data.runs)} models compared",
        subject=f"{'; '.join(measured)} · {n_datasets} dataset{'s' * (n_datasets != 1)}{shots}",
        warnings=tuple((model, warning) for model, warning in warnings if warning),
        about=Section(
            anchor="runs",
            title="What is compared",
            template=_template("runs"),
            context=RunsContext(_names(data), [(run, _run_facts(run)) for run in data.runs], RUN_FACTS),
            notes=tuple(notes),
            style=PackageFile("evaluator.compare", "assets/compare.css"),
        ),
    )


def comparison_sections(data: ComparisonData) -> Iterator[Section]:
    """Yield for each definition: means, scaling, methods against vanilla, every measure, rank correlations, pairs."""
    names, datasets, present = _names(data), _datasets(data), set(data.comparison["definition"])
    definitions = {name: meaning for name, meaning in tables.DEFINITIONS.items() if name in present}
    for number, definition in enumerate(definitions):
        sections = _definition_sections(data, names, definition, datasets)
        first = next(sections)
        yield first if number else replace(first, definitions=definitions, datasets=tuple(datasets))
        yield from sections


def _definition_sections(
    data: ComparisonData, names: Names, definition: str, datasets: Sequence[str]
) -> Iterator[Section]:
    section = partial(_section, definition)
    rows = with_measure(data.comparison).filter(definition=definition)
    means = rows.filter(dataset=MEAN_OVER_DATASETS)
    by_dataset = rows.filter(pl.col("dataset") != MEAN_OVER_DATASETS, method=REFERENCE_METHOD)
    vanilla = means.filter(method=REFERENCE_METHOD)
    points, lines = (frame.filter(definition=definition) for frame in (data.points, data.lines))
    judged = [name for name in names.titles if name in _measures(means, JUDGED_BY)]
    views = [_accuracy_view(data, means.filter(measure=name), points, lines, datasets) for name in judged]
    for number, view in enumerate(views, 1):
        title = names.titles[view.measure]
        context = MeansContext(names, definition, title, view.models)
        yield section(f"means-{number}", title, "mean over datasets", "means", context, title)
        table = _model_table(data.runs, by_dataset.filter(measure=view.measure), "dataset", datasets)
        by_model = MeansContext(names, definition, title, table)
        yield section(f"datasets-{number}", f"{title} by dataset", "vanilla", "by_dataset", by_model, "By dataset")
    large_panels, panels = _panels(points, lines, vanilla, names.titles)
    if large_panels:
        title = f"{' and '.join(panel.title for panel in large_panels)} by size".capitalize()
        subtitle = "after figure 4 of Cho & Inoue 2025"
        yield section("scaling", title, subtitle, "scaling", ScalingContext(large_panels), "By size")
    for number, view in enumerate(views, 1):
        if view.against_vanilla.columns:
            subtitle = f"{names.titles[view.measure]}, after figure 5"
            against = OverVanillaContext(names, definition, view.against_vanilla, view.improvements)
            title = "Methods against vanilla"
            yield section(f"over-vanilla-{number}", title, subtitle, "over_vanilla", against, "Methods")
    if panels:
        table = _model_table(data.runs, vanilla, "measure", list(names.titles))
        measures = MeasuresContext(names, definition, table, panels)
        yield section("measures", "Every measure", "and by size, after figure 7", "measures", measures, "Every measure")
    ranks = _rank_correlations_context(data, names, definition)
    yield section("ranks", "Rank correlations", "after figure 8", "rank_correlations", ranks, "Rank correlations")
    for number, view in enumerate(views, 1):
        models = [run.model for run in data.runs]
        pairs = PairsContext(names, definition, models, view.pairs, view.means, MAX_PAIRS, MEAN_OVER_DATASETS)
        title, subtitle = "Model against model", names.titles[view.measure]
        yield section(f"pairs-{number}", title, subtitle, "pairs", pairs, title)
    margins = None if data.equivalence is None else data.equivalence.filter(definition=definition)
    if margins is not None and not margins.is_empty():
        rows = margins.filter(dataset=MEAN_OVER_DATASETS)
        equivalence = EquivalenceContext(names, definition, rows.item(0, "margin"), rows.to_dicts())
        title, subtitle = "No worse, and equivalent", "two one-sided tests"
        yield section("equivalence", title, subtitle, "equivalence", equivalence, "Margin")


def _section(
    definition: str, anchor: str, title: str, subtitle: str, template: str, context: object, navigation: str
) -> Section:
    return Section(
        anchor=f"{definition}-{anchor}",
        title=title,
        subtitle=subtitle,
        template=_template(template),
        context=context,
        navigation=navigation,
        definition=definition,
    )


def _panels(
    points: pl.DataFrame, lines: pl.DataFrame, vanilla: pl.DataFrame, titles: Mapping[str, str]
) -> tuple[list[ScalingPanel], list[ScalingPanel]]:
    """Return the large panels of the measures of SCALED, and the panels of all other measures."""
    scaled = {name: titles[name] for metric in SCALED for name in titles if name in _measures(vanilla, metric)}
    others = {name: title for name, title in titles.items() if name not in scaled}
    chances = _chances(vanilla)
    return value_panels(points, lines, scaled, chances, are_large=True), value_panels(points, lines, others, chances)


def _rank_correlations_context(data: ComparisonData, names: Names, definition: str) -> RankCorrelationsContext:
    correlations = data.rank_correlations.filter(definition=definition)
    measures = triangles(correlations, "measures", list(names.titles))
    models = triangles(correlations, "models", [run.model for run in data.runs])
    return RankCorrelationsContext(names, definition, measures, models)


def _template(name: str) -> PackageFile:
    return PackageFile("evaluator.compare", f"templates/{name}.html")


def _datasets(data: ComparisonData) -> list[str]:
    return tables.dataset_order(data.comparison, data.runs[0].record.prompts.datasets)


def _names(data: ComparisonData) -> Names:
    measures = with_measure(data.comparison).select("measure", "metric").unique().sort("measure")
    metrics: dict[str, str] = dict(measures.iter_rows())
    order = data.texts.in_order(metrics.values())
    return Names(
        numbers={run.model: run.number for run in data.runs},
        model_titles={run.model: f"{run.number} {run.model}" for run in data.runs},
        titles={
            name: data.texts.title(metrics[name]) + name.removeprefix(metrics[name])
            for name in sorted(metrics, key=lambda name: (order.index(metrics[name]), name))
        },
        metric_titles={metric: data.texts.title(metric) for metric in {*metrics.values(), *REQUEST_COLUMNS}},
        lower_is_better=frozenset(name for name, metric in metrics.items() if data.texts.lower_is_better(metric)),
    )


def _run_facts(run: ComparedRun) -> list[str | None]:
    values = facts.headline_facts(run.record)
    return [values[name] for name in RUN_FACTS]


def _accuracy_view(
    data: ComparisonData, means: pl.DataFrame, points: pl.DataFrame, lines: pl.DataFrame, datasets: Sequence[str]
) -> AccuracyView:
    suite, part, measure, definition = means.select("suite", "part", "measure", "definition").row(0)
    differences = Differences(data.differences.filter(suite=suite, part=part, definition=definition))
    models = [run.model for run in data.runs]
    others = sorted(set(means["method"]) - {REFERENCE_METHOD})
    return AccuracyView(
        measure,
        _model_table(data.runs, means, "method", [REFERENCE_METHOD, *others], differences),
        against_vanilla(differences, models, others),
        improvement_panels(points, lines, measure, others),
        pairs_of_models(differences, models, datasets),
    )


def _model_table(
    runs: Sequence[ComparedRun],
    means: pl.DataFrame,
    column: str,
    order: Sequence[str],
    differences: Differences | None = None,
) -> ModelTable:
    """Build a table of models without its empty columns; only with `differences` are best cells marked."""
    numbers = ("value", "ci_low", "ci_high", "n_queries", "n_requests")
    cells = {(number, name): Cell(*rest) for number, name, *rest in means.select("number", column, *numbers).rows()}
    models = [run.model for run in runs]
    columns = [name for name in order if any((run.number, name) in cells for run in runs)]

    def cell(run: ComparedRun, name: str) -> ModelCell | None:
        value = cells.get((run.number, name))
        return value and ModelCell(value, differences is not None and differences.is_best(run.model, name, models))

    return ModelTable(columns, [(run, [cell(run, name) for name in columns]) for run in runs])


def _measures(rows: pl.DataFrame, metric: str) -> set[str]:
    return set(rows.filter(metric=metric)["measure"])


def _chances(vanilla: pl.DataFrame) -> dict[str, float]:
    """Return the score of a random guess for each measure of SCALED; it is the same for all models."""
    chances = vanilla.filter(metric=JUDGED_BY).select("suite", "part", "chance").unique()
    scaled = vanilla.filter(pl.col("metric").is_in(SCALED)).select("suite", "part", "measure").unique()
    return dict(scaled.join(chances, on=["suite", "part"]).select("measure", "chance").iter_rows())
