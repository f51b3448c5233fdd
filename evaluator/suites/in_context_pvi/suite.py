"""In-context PVI: how many bits each input gives a model about its label (Lu et al. 2023).

The published datasets have digits for labels, one token each. Labels of several tokens are scored as their sum, as by
every method that does not say otherwise.
"""

from collections.abc import Iterator, Sequence

import polars as pl

from evaluator.config import DataOptions, PviConfig, StoreConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.conversions import as_classification
from evaluator.datasets.sources import load_datasets
from evaluator.report.section import MeasuredRun, Section
from evaluator.suites.base import Suite
from evaluator.suites.in_context_pvi.chosen_demonstrations import (
    CHOSEN,
    EASIEST_DEMONSTRATIONS,
    HARDEST_DEMONSTRATIONS,
    MIDDLE_DEMONSTRATIONS,
)
from evaluator.suites.in_context_pvi.prompts import INPUT, pvi_queries, pvi_requests
from evaluator.suites.in_context_pvi.ranked_sets import pvi_candidates
from evaluator.suites.in_context_pvi.released_scores import PVI_RELEASED
from evaluator.suites.in_context_pvi.terminal import v_information_lines


def pvi_datasets(names: Sequence[str], pvi: PviConfig) -> dict[str, ClassificationDataset]:
    """Return the datasets by name: the named ones and those of files. Raises as load_datasets and as_classification."""
    data = DataOptions(paths=pvi.data, hub=pvi.hub, columns=pvi.columns)
    query_every_row = pvi.source == "published"  # published demonstrations are none of the rows
    datasets = load_datasets(names, data, query_every_row=query_every_row)
    return {dataset.name: as_classification(dataset, query_every_row=query_every_row) for dataset in datasets}


def requests(dataset: ClassificationDataset, config: StoreConfig) -> pl.DataFrame:
    return pvi_requests(dataset, _pvi(config), config.n_queries)


def tables(dataset: ClassificationDataset, config: StoreConfig) -> dict[str, pl.DataFrame]:
    pvi = _pvi(config)
    written = {"pvi_queries": pvi_queries(dataset, pvi, config.n_queries)}
    return written | ({"pvi_candidates": pvi_candidates(dataset, pvi)} if {*CHOSEN} & {*config.methods} else {})


def _pvi(config: StoreConfig) -> PviConfig:
    assert config.pvi is not None, "StoreConfig gives pvi a PviConfig"
    return config.pvi


def sections(run: MeasuredRun) -> Iterator[Section]:
    from evaluator.suites.in_context_pvi.report import pvi_sections  # here, because only a report needs figures

    return pvi_sections(run)


IN_CONTEXT_PVI = Suite(
    summary="How hard each query is for a model: the bits that its input gives about its label.",
    requests=requests,
    tables=tables,
    parts=(INPUT,),  # null prompts have no query to predict the label of
    all_methods=("vanilla", "pvi_released", *CHOSEN),
    own_methods={
        "pvi_released": PVI_RELEASED,
        "hardest_demonstrations": HARDEST_DEMONSTRATIONS,
        "easiest_demonstrations": EASIEST_DEMONSTRATIONS,
        "middle_demonstrations": MIDDLE_DEMONSTRATIONS,
    },
    definitions=("paper", "released"),
    sections=sections,
    summary_lines=v_information_lines,
    label_boundary="merged",
)
