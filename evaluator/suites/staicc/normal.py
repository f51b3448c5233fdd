"""Build the prompts of StaICC-Normal: every test query after two demonstration sets drawn for it.

Source: Cho & Inoue 2025, section 3.2.
"""

import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.prompts.rows import normal_requests
from evaluator.suites.base import Part
from evaluator.suites.staicc.family import INFERENCE_METHODS, staicc_suite


def requests(dataset: ClassificationDataset, config: RunConfig) -> pl.DataFrame:
    """Return normal_requests as the part `normal`."""
    rows = normal_requests(dataset, n_shots=config.n_shots, n_queries=config.n_queries)
    return rows.with_columns(part=pl.lit("normal"))


STAICC_NORMAL = staicc_suite(
    summary="Ten datasets, 512 queries each after two demonstration sets: accuracy, probability, F1, calibration.",
    parts={"normal": Part()},
    requests=requests,
    all_methods=INFERENCE_METHODS,
)
