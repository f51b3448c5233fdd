"""StaICC's two modes of demonstrations: those that show the query's own label, and those that do not."""

from dataclasses import replace
from typing import get_args

import polars as pl

from evaluator.config import StoreConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.prompts.demonstrations import LabelDomain, domain_demonstrations
from evaluator.prompts.rows import benchmark_plan, requests
from evaluator.suites.base import Suite
from evaluator.suites.staicc.sections import sections, summary_lines

PARTS: tuple[LabelDomain, ...] = get_args(LabelDomain)


def demonstration_requests(dataset: ClassificationDataset, config: StoreConfig) -> pl.DataFrame:
    """Ask the queries of StaICC-Normal behind in-domain and behind out-of-domain demonstrations."""
    return pl.concat(_requests(dataset, config, part).with_columns(part=pl.lit(part)) for part in PARTS)


def _requests(dataset: ClassificationDataset, config: StoreConfig, part: LabelDomain) -> pl.DataFrame:
    chosen = domain_demonstrations(dataset, part, n_shots=config.n_shots, definition=config.prompt_definition)
    plan = replace(benchmark_plan(dataset, n_shots=config.n_shots), demonstration_ids=chosen)
    return requests(dataset, plan, n_queries=config.n_queries)


STAICC_DEMONSTRATIONS = Suite(
    summary="Demonstrations that show the query's own label at least once, and demonstrations that never do.",
    requests=demonstration_requests,
    parts=PARTS,
    prompts_differ=PARTS,
    sections=sections,
    summary_lines=summary_lines,
)
