"""Build prompts whose demonstrations include the query's label at least once, and prompts where they never do."""

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.prompts.demonstrations import LabelDomain, domain_demonstrations
from evaluator.prompts.rows import benchmark_plan, of_parts, requests
from evaluator.suites.base import Part
from evaluator.suites.staicc.family import staicc_suite

PARTS: tuple[LabelDomain, ...] = get_args(LabelDomain)


def demonstration_requests(dataset: ClassificationDataset, config: RunConfig) -> Iterator[pl.DataFrame]:
    """Yield the queries of StaICC-Normal after in-domain and after out-of-domain demonstrations."""
    return of_parts({part: _requests(dataset, config, part) for part in PARTS})


def _requests(dataset: ClassificationDataset, config: RunConfig, part: LabelDomain) -> Iterator[pl.DataFrame]:
    rows = domain_demonstrations(dataset, part, n_shots=config.n_shots, definition=config.prompt_definition)
    plan = replace(benchmark_plan(dataset, n_shots=config.n_shots), demonstration_ids=rows)
    return requests(dataset, plan, n_queries=config.n_queries)


STAICC_DEMONSTRATIONS = staicc_suite(
    summary="Demonstrations that show the query's label at least once, and demonstrations that never do.",
    parts={name: Part(prompts_differ=True) for name in PARTS},
    requests=demonstration_requests,
)
