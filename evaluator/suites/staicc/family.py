"""Define what all StaICC suites share: datasets, settings, measures, report sections and terminal lines."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.lcg import SEED
from evaluator.datasets.staicc_sources import SOURCES
from evaluator.report.section import MeasuredRun, Section
from evaluator.suites.base import Family, Part, Plan, Requests, ScoredRun, Suite, Table, described
from evaluator.suites.classification import classification_tables, kept_predictions
from evaluator.suites.staicc.completed import completed
from evaluator.suites.staicc.diagnostics.registry import DIAGNOSTICS, METRIC_TEXTS
from evaluator.suites.staicc.terminal import diagnostic_lines

DATASETS = tuple(SOURCES)

INFERENCE_METHODS = (
    "vanilla",
    "noisy_channel",
    "contextual_calibration",
    "domain_calibration",
    "batch_calibration",
    "ppl_icl",
    "topk",
    "sa_icl",
    "knn_centroid",
    "knn_neighbours",
    "hidden_calibration",
)
"""The methods of Cho & Inoue 2025, table 2, with both forms of k-NN prompting."""


def staicc_suite(
    *,
    summary: str,
    parts: Mapping[str, Part],
    requests: Callable[[ClassificationDataset, RunConfig], Iterator[pl.DataFrame]],
    methods: tuple[str, ...] = ("vanilla",),
    plan: Plan | None = None,
) -> Suite:
    """Return a suite with these fields, and with those that all suites of StaICC share."""
    return Suite(
        summary=summary,
        parts=parts,
        methods=methods,
        default_datasets=DATASETS,
        take=completed,
        requests=lambda dataset, config: Requests(requests(dataset, config)),
        plan=plan or Plan(),
        describe=partial(described, every_query="the whole test split", seeds={"splits and demonstrations": SEED}),
        family=STAICC,
    )


def measure(run: ScoredRun) -> Iterator[Table]:
    """Yield the tables of a classification run with the diagnostics, absent_labels and those of total error."""
    from evaluator.suites.staicc.diagnostics.label_bias import absent_labels
    from evaluator.suites.staicc.total_error import total_error_tables

    predictions = kept_predictions(run)
    tables = {}
    for name, table in classification_tables(run, DIAGNOSTICS, predictions=predictions):
        tables[name] = table
        yield name, table
    yield "absent_labels", absent_labels(predictions)
    yield from total_error_tables(predictions, tables["metrics"])
    if "learning_curve" in run.scored.parts:
        from evaluator.suites.staicc.learning_curve import learning_curve

        yield "learning_curve", learning_curve(run.scored, run.config.definitions)


def sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield the sections of the report."""
    from evaluator.suites.staicc.report import staicc_sections  # here, because only a report needs figures

    yield from staicc_sections(run)


STAICC = Family(measure=measure, sections=sections, summary_lines=diagnostic_lines, metric_texts=METRIC_TEXTS)
