"""Prompt search: the best of many prompts on one set of queries, as Yauney & Mimno 2024 (section 5.1) search for it."""

from collections.abc import Iterable, Iterator
from typing import get_args

import polars as pl

from evaluator.config import SearchConfig, SearchPart, StoreConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.data_files import load_data
from evaluator.datasets.multiple_choice import MultipleChoiceDataset, from_classification
from evaluator.errors import DatasetError
from evaluator.suites.base import Suite
from evaluator.suites.prompt_search.prompts import search_requests, search_tables


def search_datasets(named: Iterable[ClassificationDataset], search: SearchConfig) -> dict[str, MultipleChoiceDataset]:
    """The datasets of a search by name: known ones, then those of files. Raises DatasetError for a name twice."""
    datasets: dict[str, MultipleChoiceDataset] = {}
    for dataset in _all_datasets(named, search):
        if dataset.name in datasets:
            raise DatasetError(
                f"{dataset.source} and {datasets[dataset.name].source} are both called {dataset.name!r}. Rename one."
            )
        datasets[dataset.name] = dataset
    return datasets


def _all_datasets(named: Iterable[ClassificationDataset], search: SearchConfig) -> Iterator[MultipleChoiceDataset]:
    yield from map(from_classification, named)
    for path in search.data:
        yield from load_data(path, search.columns)


def requests(dataset: MultipleChoiceDataset, config: StoreConfig) -> pl.DataFrame:
    return search_requests(dataset, _search(config), config.n_queries)


def tables(dataset: MultipleChoiceDataset, config: StoreConfig) -> dict[str, pl.DataFrame]:
    return search_tables(dataset, _search(config), config.n_queries)


def _search(config: StoreConfig) -> SearchConfig:
    assert config.search is not None, "StoreConfig gives prompt-search a SearchConfig"
    return config.search


PROMPT_SEARCH = Suite(
    summary="The best of 200 demonstration sets, instructions or templates: is it better than guessing?",
    requests=requests,
    tables=tables,
    parts=get_args(SearchPart),
    methods=("per_token",),
    all_methods=("per_token", "vanilla", "per_byte", "unconditional"),
    definitions=("paper",),
    label_boundary="merged",
)
