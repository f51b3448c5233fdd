"""The page about several runs: their comparison goes in; one HTML file that needs no network comes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from evaluator.compare.measures import with_measure
from evaluator.compare.runs import ComparedRun
from evaluator.compare.table import REFERENCE_METHOD
from evaluator.report import facts, tables
from evaluator.report.comparison_correlations import Triangle, triangles
from evaluator.report.comparison_differences import (
    JUDGED_BY,
    MOST_PAIRS,
    Difference,
    Differences,
    DifferenceTable,
    Pair,
    against_vanilla,
    pairs_of_models,
)
from evaluator.report.comparison_scaling import ScalingPanel, improvement_panels, value_panels
from evaluator.report.html_page import write_html_page
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.suites.in_context_pvi.compare import PviAgreement
from evaluator.suites.in_context_pvi.report_comparison import pvi_views

SCALED = ("true_label_probability", JUDGED_BY)
"""Metrics drawn larger than others, the first as in figure 4; a guess at random scores 1 / n_labels in both."""

RUN_FACTS = ("Parameters", "dtype", "Engine", "Revision", "Weights fingerprint", "Finished")
"""Lines of the record that tell runs apart."""


@dataclass(frozen=True, kw_only=True)
class ComparisonData:
    """All that the page shows; whatever is computed was computed before."""

    runs: Sequence[ComparedRun]
    notes: Sequence[str]
    comparison: pl.DataFrame  # schemas.COMPARISON
    differences: pl.DataFrame  # schemas.DIFFERENCES
    rank_correlations: pl.DataFrame  # schemas.RANK_CORRELATIONS
    points: pl.DataFrame  # comparison.scaling.scaling_points
    lines: pl.DataFrame  # schemas.SCALING
    pvi: PviAgreement | None  # None unless all are runs of the suite pvi


class ModelCell(NamedTuple):
    cell: tables.Cell
    is_best: bool


class ModelTable(NamedTuple):
    """Means over datasets, a row a model."""

    columns: list[str]  # methods, or measures
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
        """The mean difference of each pair."""
        return {(pair.a, pair.b): pair.mean for pair in self.pairs}


class DefinitionView(NamedTuple):
    """Everything under one definition."""

    accuracies: list[AccuracyView]
    scaling: list[ScalingPanel]
    diagnostics: list[ScalingPanel]
    measures: ModelTable  # a column a measure
    measure_triangles: list[Triangle]
    model_triangles: list[Triangle]


def write_comparison(data: ComparisonData, path: Path) -> Path:
    """Write the page and return its path. Equal data give equal bytes."""
    return write_html_page(path, "comparison.html", _shown(data), script="page.js")


def _shown(data: ComparisonData) -> dict[str, Any]:
    comparison = with_measure(data.comparison)
    present = set(comparison["definition"])
    definitions = {name: meaning for name, meaning in tables.DEFINITIONS.items() if name in present}
    first = data.runs[0].record
    datasets = tables.dataset_order(comparison, facts.look_up(first, "store", "datasets") or ())
    titles = _titles(comparison)
    measured = comparison.select(pl.format("{} / {}", "suite", "part")).to_series().unique().sort()
    return {
        "runs": [(run, _run_facts(run), facts.warning(run.record)) for run in data.runs],
        "fact_names": RUN_FACTS,
        "notes": data.notes,
        "measured": measured.to_list(),
        "n_shots": facts.look_up(first, "store", "n_shots"),
        "models": [run.model for run in data.runs],
        "model_titles": {run.model: f"{run.number} {run.model}" for run in data.runs},
        "numbers": {run.model: run.number for run in data.runs},
        "datasets": datasets,
        "definitions": definitions,
        "titles": titles,
        "views": {name: _definition_view(data, comparison, name, titles, datasets) for name in definitions},
        "pvi_views": pvi_views(data.pvi, [run.model for run in data.runs], datasets),
        "mean_over_datasets": MEAN_OVER_DATASETS,
        "most_pairs": MOST_PAIRS,
    }


def _run_facts(run: ComparedRun) -> list[str | None]:
    known = {fact.name: fact.value for fact in facts.headline_facts(run.record)}
    return [known[name] for name in RUN_FACTS]


def _titles(comparison: pl.DataFrame) -> dict[str, str]:
    """Measure -> its title; metrics that have a title of their own come first, others by name."""
    metrics = dict(comparison.select("measure", "metric").unique().sort("measure").iter_rows())
    first = list(tables.METRIC_TITLES)
    order = sorted(metrics, key=lambda name: first.index(metrics[name]) if metrics[name] in first else len(first))
    return {name: tables.metric_title(metrics[name]) + name.removeprefix(metrics[name]) for name in order}


def _definition_view(
    data: ComparisonData, comparison: pl.DataFrame, definition: str, titles: Mapping[str, str], datasets: Sequence[str]
) -> DefinitionView:
    means = comparison.filter(definition=definition, dataset=MEAN_OVER_DATASETS)
    vanilla = means.filter(method=REFERENCE_METHOD)
    points, lines, correlations = (
        frame.filter(definition=definition) for frame in (data.points, data.lines, data.rank_correlations)
    )
    scaled = {name: titles[name] for metric in SCALED for name in titles if name in _measures(vanilla, metric)}
    others = {name: title for name, title in titles.items() if name not in scaled}
    judged = [name for name in titles if name in _measures(means, JUDGED_BY)]
    return DefinitionView(
        accuracies=[_accuracy_view(data, means.filter(measure=name), points, lines, datasets) for name in judged],
        scaling=value_panels(points, lines, scaled, _chances(vanilla), are_large=True),
        diagnostics=value_panels(points, lines, others, _chances(vanilla)),
        measures=_model_table(data.runs, vanilla, "measure", list(titles)),
        measure_triangles=triangles(correlations, "measures", list(titles)),
        model_triangles=triangles(correlations, "models", [run.model for run in data.runs]),
    )


def _accuracy_view(
    data: ComparisonData, means: pl.DataFrame, points: pl.DataFrame, lines: pl.DataFrame, datasets: Sequence[str]
) -> AccuracyView:
    suite, part, measure, definition = means.select("suite", "part", "measure", "definition").row(0)
    found = Differences(data.differences.filter(suite=suite, part=part, definition=definition))
    models = [run.model for run in data.runs]
    others = sorted(set(means["method"]) - {REFERENCE_METHOD})
    return AccuracyView(
        measure,
        _model_table(data.runs, means, "method", [REFERENCE_METHOD, *others], found),
        against_vanilla(found, models, others),
        improvement_panels(points, lines, measure, others),
        pairs_of_models(found, models, datasets),
    )


def _model_table(
    runs: Sequence[ComparedRun],
    means: pl.DataFrame,
    column: str,
    order: Sequence[str],
    differences: Differences | None = None,
) -> ModelTable:
    """Columns that nothing was measured of are left out; without differences no model is the best."""
    numbers = ("value", "ci_low", "ci_high", "n_queries", "n_requests")
    cells = {
        (number, name): tables.Cell(*rest) for number, name, *rest in means.select("number", column, *numbers).rows()
    }
    models = [run.model for run in runs]
    columns = [name for name in order if any((run.number, name) in cells for run in runs)]

    def cell(run: ComparedRun, name: str) -> ModelCell | None:
        found = cells.get((run.number, name))
        return found and ModelCell(found, differences is not None and differences.is_best(run.model, name, models))

    return ModelTable(columns, [(run, [cell(run, name) for name in columns]) for run in runs])


def _measures(rows: pl.DataFrame, metric: str) -> set[str]:
    return set(rows.filter(metric=metric)["measure"])


def _chances(vanilla: pl.DataFrame) -> dict[str, float]:
    """Measures of SCALED -> what a guess at random scores; it is the same for all models."""
    known = vanilla.filter(metric=JUDGED_BY).select("suite", "part", "chance").unique()
    guessed = vanilla.filter(pl.col("metric").is_in(SCALED)).select("suite", "part", "measure").unique()
    return dict(guessed.join(known, on=["suite", "part"]).select("measure", "chance").iter_rows())
