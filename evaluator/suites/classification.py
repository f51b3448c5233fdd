"""Measure and report runs of classification suites."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import polars as pl

from evaluator.imports.answers import IMPORTED, NUMBERS, WITH_REFUSALS
from evaluator.methods.base import predict
from evaluator.report.section import MeasuredRun, Section
from evaluator.schemas import METRICS_KEY, PREDICTIONS_KEY
from evaluator.suites.base import Family, ScoredRun, Table

if TYPE_CHECKING:  # building prompts does not need SciPy
    from evaluator.metrics.groups import Diagnostic, PredictionGroup


ANSWERED_METRICS = ("accuracy", "macro_f1")
"""Metrics of predicted labels alone, without probabilities."""


def classification_tables(
    run: ScoredRun,
    diagnostics: "Iterable[Diagnostic]" = (),
    *,
    shared: str = "",
    further: "Callable[[PredictionGroup], None] | None" = None,
    changed: Callable[[pl.LazyFrame], pl.LazyFrame] = lambda predictions: predictions,
) -> Iterator[Table]:
    """Write the predictions of a run, and yield the tables that are made of them: metrics and those derived from them.

    Args:
        run: with parts of the kind classification.
        diagnostics: what to measure on other parts.
        shared: what was drawn once for all queries, so that intervals over queries do not cover it.
        further: reads every group of predictions, before the first table, for further tables of a suite.
        changed: adds predictions, as under definitions that methods do not have.
    """
    from evaluator import metrics
    from evaluator.compare.differences import method_differences
    from evaluator.methods.training_states import missing_classes
    from evaluator.metrics.groups import PredictionGroup
    from evaluator.metrics.label_mass import label_mass_metrics
    from evaluator.metrics.thresholds import coverage_tables, joined_tables

    predictions = run.keep("predictions", changed(predict(run.scored, run.methods, run.config.definitions)))
    parts = [name for name, part in run.scored.parts.items() if part.kind == "classification"]
    covered: list[dict[str, pl.DataFrame]] = []

    def read(group: PredictionGroup) -> None:
        if further:
            further(group)
        if group.definition == "paper" and group.key["part"] in parts:
            covered.append(coverage_tables(group))

    # Answers to queries without a true option are compared with each other alone, which diagnostics do.
    has_gold = pl.col("gold").is_not_null() | ~pl.col("part").is_in(parts)
    groups = metrics.measured_groups(predictions.filter(has_gold), parts, diagnostics, read)
    requested = pl.col("definition").is_in(run.config.definitions)
    draws = {name: ", ".join(filter(None, (shared, method.drawn_once))) for name, method in run.methods.items()}
    measured = metrics.metrics_table(groups, draws).filter(requested)
    measured = pl.concat([measured, label_mass_metrics(run.scored, run.config.definitions)]).sort(METRICS_KEY)
    yield "metrics", measured
    yield "group_metrics", metrics.group_metrics_table(groups).filter(requested)
    yield "method_differences", method_differences(groups, measured, run.model)
    yield "missing_classes", missing_classes(run.scored, run.methods)
    yield "reliability", metrics.reliability_table(groups)
    yield "confusion", metrics.confusion_table(groups)
    yield from joined_tables(covered)
    yield "label_spaces", metrics.label_spaces_table(predictions)


def classification_page(run: MeasuredRun) -> Iterator[Section]:
    """Yield the sections of a run whose parts are all of the kind classification."""
    from evaluator.report.classification import classification_sections, with_head
    from evaluator.report.notes import missing_class_notes, prompt_definition_notes

    metrics = run.table("metrics")
    notes = [*prompt_definition_notes(run.record, metrics), *missing_class_notes(run.table("missing_classes"))]
    sections = list(classification_sections(run))
    yield from with_head(sections, run, metrics, notes) if sections else ()


OF_PROBABILITIES = ("reliability", "coverage", "risk_coverage", "thresholds")
"""Tables that mean nothing where labels alone are known."""


def imported_tables(run: ScoredRun) -> Iterator[Table]:
    """Yield the tables of imported answers, without metrics that the imported numbers say nothing about."""
    imported = run.store.table(IMPORTED, NUMBERS).collect()
    numbers = imported["numbers"][0]
    kept = {
        "log-likelihoods": pl.lit(True),
        "probabilities": ~pl.col("metric").str.starts_with("label_mass"),
        "labels": pl.col("metric").is_in(ANSWERED_METRICS),
    }[numbers] & (pl.col("part").ne(WITH_REFUSALS) | pl.col("metric").is_in(ANSWERED_METRICS))
    for name, table in classification_tables(run, changed=lambda rows: _with_floored(rows, imported)):
        if name == "metrics":
            yield name, table.filter(kept)
        elif name in OF_PROBABILITIES:
            yield name, table.clear() if numbers == "labels" else table.filter(pl.col("part") != WITH_REFUSALS)
        else:
            yield name, table


def _with_floored(predictions: pl.LazyFrame, imported: pl.DataFrame) -> pl.LazyFrame:
    """Add predictions under the definition `floored`, if a dataset has a reported zero: none is below the floor."""
    floors = imported.with_columns(pl.col("floor").fill_null(0.0)).partition_by("floor", as_dict=True)
    if [*floors] == [(0.0,)]:
        return predictions
    tables = [predictions]
    for (floor,), datasets in floors.items():
        raised = pl.max_horizontal(pl.element(), pl.lit(floor))
        of_datasets = predictions.join(datasets.select("dataset", "part").lazy(), on=["dataset", "part"], how="semi")
        floored = pl.col("label_probs").list.eval(raised / raised.sum())
        tables.append(of_datasets.with_columns(label_probs=floored, definition=pl.lit("floored")))
    return pl.concat(tables).sort(PREDICTIONS_KEY)


IMPORTED_ANSWERS = Family(measure=imported_tables, sections=classification_page)
"""How answers that `evaluator import` reads are measured and shown: as a run of one part of classification."""
