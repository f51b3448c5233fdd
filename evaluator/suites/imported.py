"""Measure and show answers from elsewhere: as classification, and where they are there, what should not matter."""

from collections.abc import Iterator
from functools import partial

import polars as pl

from evaluator.decisions.questions import VARIED
from evaluator.imports.answers import IMPORTED, NUMBERS, WITH_REFUSALS
from evaluator.report.section import MeasuredRun, Section
from evaluator.schemas import PREDICTIONS_KEY
from evaluator.suites.base import Family, ScoredRun, Table, classification_page, classification_tables
from evaluator.suites.decide.consistency import DIAGNOSTICS, total_error_of_accuracies, total_errors
from evaluator.suites.decide.report import effects_sections, graded_sections
from evaluator.suites.decide.suite import METRIC_TEXTS, GradedAnswers, summary_lines

ANSWERED_METRICS = ("accuracy", "macro_f1")
"""Metrics of predicted labels alone, without probabilities."""

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
    graded, errors = GradedAnswers(run, [IMPORTED]), total_errors(IMPORTED)
    readers = [graded.add, errors.add]
    changed = partial(_with_floored, imported=imported)
    for name, table in classification_tables(run, DIAGNOSTICS, further=readers, changed=changed):
        if name == "metrics":
            table = table.filter(kept)
        elif name in OF_PROBABILITIES:
            table = table.clear() if numbers == "labels" else table.filter(pl.col("part") != WITH_REFUSALS)
        yield name, table
    yield "graded", graded.table()
    if {*VARIED} & {*run.scored.parts}:
        yield from total_error_of_accuracies(errors, run.config.definitions).items()


def sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield the sections of a run of imported answers."""
    yield from classification_page(run, VARIED, [*effects_sections(run), *graded_sections(run)])


def _with_floored(predictions: pl.LazyFrame, imported: pl.DataFrame) -> pl.LazyFrame:
    """Add predictions under the definition `floored`, if a dataset has a reported zero: none is below the floor."""
    floored = imported.filter(~pl.col("part").is_in(VARIED)).with_columns(pl.col("floor").fill_null(0.0))
    floors = floored.partition_by("floor", as_dict=True)
    if not {*floors} - {(0.0,)}:
        return predictions
    tables = [predictions]
    for (floor,), datasets in floors.items():
        raised = pl.max_horizontal(pl.element(), pl.lit(floor))
        of_datasets = predictions.join(datasets.select("dataset", "part").lazy(), on=["dataset", "part"], how="semi")
        probs = pl.col("label_probs").list.eval(raised / raised.sum())
        tables.append(of_datasets.with_columns(label_probs=probs, definition=pl.lit("floored")))
    return pl.concat(tables).sort(PREDICTIONS_KEY)


IMPORTED_ANSWERS = Family(
    measure=imported_tables, sections=sections, summary_lines=summary_lines, metric_texts=METRIC_TEXTS
)
"""How answers that were read are measured and shown."""
