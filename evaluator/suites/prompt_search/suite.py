"""Prompt search: the best of many prompts on one set of queries, as Yauney & Mimno 2024 (section 5.1) search for it."""

from collections.abc import Iterator, Sequence
from typing import get_args

import polars as pl

from evaluator.config import DataOptions, SearchConfig, SearchPart, StoreConfig
from evaluator.datasets.conversions import as_multiple_choice
from evaluator.datasets.multiple_choice import MultipleChoiceDataset
from evaluator.datasets.sources import load_datasets
from evaluator.report.section import MeasuredRun, Section
from evaluator.suites.base import Suite
from evaluator.suites.prompt_search.prompts import search_requests, search_tables
from evaluator.suites.prompt_search.terminal import best_prompt_lines


def search_datasets(names: Sequence[str], search: SearchConfig) -> dict[str, MultipleChoiceDataset]:
    """Return the datasets by name: the named ones and those of files. Raises as load_datasets does."""
    datasets = load_datasets(names, DataOptions(paths=search.data, columns=search.columns))
    return {dataset.name: as_multiple_choice(dataset) for dataset in datasets}


def requests(dataset: MultipleChoiceDataset, config: StoreConfig) -> pl.DataFrame:
    return search_requests(dataset, _search(config), config.n_queries)


def tables(dataset: MultipleChoiceDataset, config: StoreConfig) -> dict[str, pl.DataFrame]:
    return search_tables(dataset, _search(config), config.n_queries)


def _search(config: StoreConfig) -> SearchConfig:
    assert config.search is not None, "StoreConfig gives prompt-search a SearchConfig"
    return config.search


def sections(run: MeasuredRun) -> Iterator[Section]:
    from evaluator.suites.prompt_search.report import search_sections  # here, because only a report needs figures

    return search_sections(run)


PROMPT_SEARCH = Suite(
    summary="The best of 200 demonstration sets, instructions or templates: is it better than guessing?",
    requests=requests,
    tables=tables,
    parts=get_args(SearchPart),
    methods=("per_token",),
    all_methods=("per_token", "vanilla", "per_byte", "unconditional"),
    definitions=("paper",),
    sections=sections,
    summary_lines=best_prompt_lines,
    label_boundary="merged",
)
