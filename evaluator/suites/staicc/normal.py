"""Build the prompts of StaICC-Normal: every test query after two demonstration sets drawn for it.

Source: Cho & Inoue 2025, section 3.2.
"""

from collections.abc import Iterator

import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.prompts.rows import normal_requests, of_parts
from evaluator.suites.base import Part
from evaluator.suites.staicc.family import INFERENCE_METHODS, staicc_suite


def requests(dataset: ClassificationDataset, config: RunConfig) -> Iterator[pl.DataFrame]:
    """Yield normal_requests as the part `normal`."""
    return of_parts({"normal": normal_requests(dataset, n_shots=config.n_shots, n_queries=config.n_queries)})


STAICC_NORMAL = staicc_suite(
    summary="Ten datasets, 512 queries each after two demonstration sets: accuracy, probability, F1, calibration.",
    parts={"normal": Part()},
    requests=requests,
    methods=INFERENCE_METHODS,
)
