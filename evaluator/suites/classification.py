"""What suites of classification share: the tables of their runs, and the lines a terminal shows."""

from collections.abc import Iterable, Iterator

import polars as pl

from evaluator.methods.predictions import predict
from evaluator.metrics.diagnostic import Diagnostic
from evaluator.report.section import MeasuredRun, Section
from evaluator.schemas import PartKind
from evaluator.suites.base import ScoredRun, Table


def classification_tables(run: ScoredRun, diagnostics: Iterable[Diagnostic] = ()) -> Iterator[Table]:
    """Yield predictions, metrics and what else is made of them.

    Args:
        run: with parts of classification.
        diagnostics: what is measured of other parts.
    """
    # Here, because whoever only builds should not wait for SciPy.
    from evaluator.compare.method_differences import method_differences
    from evaluator.methods.training_states import missing_classes
    from evaluator.metrics import (
        confusion_table,
        group_metrics_table,
        label_spaces_table,
        metrics_table,
        reliability_table,
    )

    predictions = predict(run.scored, run.methods, run.config.definitions).collect()
    classified = predictions.filter(pl.col("part").is_in(parts_of_kind(run, "classification")))
    requested = pl.col("definition").is_in(run.config.definitions)
    metrics = metrics_table(classified, predictions, diagnostics).filter(requested)
    yield "predictions", predictions
    yield "metrics", metrics
    yield "group_metrics", group_metrics_table(predictions, diagnostics).filter(requested)
    yield "method_differences", method_differences(predictions, metrics, run.model)
    yield "missing_classes", missing_classes(run.scored, list(run.methods))
    yield "reliability", reliability_table(classified)
    yield "confusion", confusion_table(classified)
    yield "label_spaces", label_spaces_table(predictions)


def classification_page(run: MeasuredRun) -> Iterator[Section]:
    """Yield the sections of a run that has nothing but parts of classification."""
    from evaluator.report.sections.classification import classification_sections, with_head
    from evaluator.report.sections.notes import missing_class_notes, prompt_definition_notes

    metrics = run.table("metrics")
    notes = [*prompt_definition_notes(run.record, metrics), *missing_class_notes(run.table("missing_classes"))]
    sections = list(classification_sections(run))
    yield from with_head(sections, run, metrics, notes) if sections else ()


def parts_of_kind(run: ScoredRun, kind: PartKind) -> list[str]:
    """The parts of this kind that the run asks."""
    return [name for name, part in run.scored.parts.items() if part.kind == kind]
