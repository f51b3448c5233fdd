"""StaICC's two modes of demonstrations: with at least one of the query's label, and without any."""

from dataclasses import replace
from typing import get_args

import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.conversions import as_classification
from evaluator.prompts.demonstrations import LabelDomain, domain_demonstrations
from evaluator.prompts.rows import benchmark_plan, requests
from evaluator.suites.base import Part, Requests, Suite
from evaluator.suites.staicc import family
from evaluator.suites.staicc.diagnostics.registry import METRIC_TEXTS
from evaluator.suites.staicc.terminal import diagnostic_lines

PARTS: tuple[LabelDomain, ...] = get_args(LabelDomain)


def demonstration_requests(dataset: ClassificationDataset, config: RunConfig) -> pl.DataFrame:
    """Return the queries of StaICC-Normal after in-domain and after out-of-domain demonstrations."""
    return pl.concat(_requests(dataset, config, part).with_columns(part=pl.lit(part)) for part in PARTS)


def _requests(dataset: ClassificationDataset, config: RunConfig, part: LabelDomain) -> pl.DataFrame:
    chosen = domain_demonstrations(dataset, part, n_shots=config.n_shots, definition=config.prompt_definition)
    plan = replace(benchmark_plan(dataset, n_shots=config.n_shots), demonstration_ids=chosen)
    return requests(dataset, plan, n_queries=config.n_queries)


STAICC_DEMONSTRATIONS = Suite(
    summary="Demonstrations that show the query's label at least once, and demonstrations that never do.",
    parts={name: Part(prompts_differ=True) for name in PARTS},
    default_datasets=family.DATASETS,
    take=as_classification,
    requests=lambda dataset, config: Requests(demonstration_requests(dataset, config)),
    describe=family.describe,
    measure=family.measure,
    sections=family.sections,
    summary_lines=diagnostic_lines,
    metric_texts=METRIC_TEXTS,
)
