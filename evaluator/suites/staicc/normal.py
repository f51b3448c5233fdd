"""StaICC-Normal: every test query twice, each time behind its own demonstrations (Cho & Inoue 2025, section 3.2)."""

import polars as pl

from evaluator.config import StoreConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.prompts.rows import normal_requests
from evaluator.suites.base import Suite
from evaluator.suites.staicc.diagnostics.readings import METRIC_TEXTS
from evaluator.suites.staicc.sections import sections, summary_lines

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
"""Those of Cho & Inoue 2025, table 2; k-NN prompting in both its forms."""


def requests(dataset: ClassificationDataset, config: StoreConfig) -> pl.DataFrame:
    rows = normal_requests(dataset, n_shots=config.n_shots, n_queries=config.n_queries)
    return rows.with_columns(part=pl.lit("normal"))


STAICC_NORMAL = Suite(
    summary="Ten datasets, 512 queries each behind two demonstration sets: accuracy, probability, F1, calibration.",
    requests=requests,
    parts=("normal",),
    all_methods=INFERENCE_METHODS,
    sections=sections,
    summary_lines=summary_lines,
    metric_texts=METRIC_TEXTS,
)
