"""Settings, measures, report sections and terminal lines that all StaICC suites share."""

from collections.abc import Iterator

from evaluator.config import RunConfig
from evaluator.datasets.lcg import SEED
from evaluator.datasets.staicc_sources import SOURCES
from evaluator.report.section import MeasuredRun, Section
from evaluator.suites.base import Described, ScoredRun, Table
from evaluator.suites.classification import classification_tables
from evaluator.suites.staicc.diagnostics.registry import DIAGNOSTICS

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


def describe(config: RunConfig) -> Described:
    return Described(
        shots=str(config.n_shots),
        n_shots=config.n_shots,
        queries=f"{config.n_queries:,}" if config.n_queries else "the whole test split",
        seeds={"splits and demonstrations": SEED},
    )


def measure(run: ScoredRun) -> Iterator[Table]:
    from evaluator.suites.staicc.diagnostics.label_bias import absent_labels

    for name, table in classification_tables(run, DIAGNOSTICS):
        yield name, table
        if name == "predictions":
            yield "absent_labels", absent_labels(table)


def sections(run: MeasuredRun) -> Iterator[Section]:
    from evaluator.suites.staicc.report import staicc_sections  # here, because only a report needs figures

    yield from staicc_sections(run)
