"""StaICC-Normal: every test query after two demonstration sets of its own (Cho & Inoue 2025, section 3.2)."""

import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.conversions import as_classification
from evaluator.prompts.rows import normal_requests
from evaluator.suites.base import Part, Requests, Suite
from evaluator.suites.staicc import family
from evaluator.suites.staicc.diagnostics.registry import METRIC_TEXTS
from evaluator.suites.staicc.terminal import diagnostic_lines


def requests(dataset: ClassificationDataset, config: RunConfig) -> pl.DataFrame:
    rows = normal_requests(dataset, n_shots=config.n_shots, n_queries=config.n_queries)
    return rows.with_columns(part=pl.lit("normal"))


STAICC_NORMAL = Suite(
    summary="Ten datasets, 512 queries each after two demonstration sets: accuracy, probability, F1, calibration.",
    parts={"normal": Part()},
    all_methods=family.INFERENCE_METHODS,
    default_datasets=family.DATASETS,
    take=as_classification,
    requests=lambda dataset, config: Requests(requests(dataset, config)),
    describe=family.describe,
    measure=family.measure,
    sections=family.sections,
    summary_lines=diagnostic_lines,
    metric_texts=METRIC_TEXTS,
)
