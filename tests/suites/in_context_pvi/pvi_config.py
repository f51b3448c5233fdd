"""Configurations of the suite pvi, and the datasets that they read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluator.config import DataOptions, RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.conversions import as_classification
from evaluator.progress import finish
from evaluator.run.build import read_datasets
from evaluator.suites.in_context_pvi.prompts import PviOptions


def pvi_config(
    *data: Path,
    datasets: Sequence[str] = ("snli",),
    n_queries: int | None = None,
    methods: Sequence[str] = ("vanilla",),
    **options: Any,
) -> RunConfig:
    """A run of the suite alone; `options` are fields of PviOptions."""
    return RunConfig(
        suites=("pvi",),
        datasets=tuple(datasets),
        data=DataOptions(paths=data),
        n_queries=n_queries,
        methods=tuple(methods),
        suite_options={"pvi": PviOptions(**options)},
    )


def read_dataset(config: RunConfig) -> ClassificationDataset:
    """The one dataset of a run."""
    (dataset,) = finish(read_datasets(config))[0].values()
    return as_classification(dataset)
