"""StaICC-Diag, prediction robustness: sensitivity to wrong labels, templates and demonstrations.

Source: Cho & Inoue 2025, section 3.3.
"""

from dataclasses import replace

import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.conversions import as_classification
from evaluator.errors import TemplateError
from evaluator.prompts.demonstrations import N_DEMONSTRATION_SETS
from evaluator.prompts.rows import normal_requests
from evaluator.suites.base import Part, Requests, Suite
from evaluator.suites.staicc import family
from evaluator.suites.staicc.diagnostics.registry import METRIC_TEXTS
from evaluator.suites.staicc.label_noise import label_noise_requests
from evaluator.suites.staicc.terminal import diagnostic_lines

N_SAMPLED_SETS = 8  # demonstration sets of a query in the part `sampling`
RELEASED_TEMPLATE_QUERIES = 100


def robustness_requests(dataset: ClassificationDataset, config: RunConfig) -> pl.DataFrame:
    """Return StaICC-Normal's prompts at five rates of wrong labels, in nine templates, after eight demonstration sets.

    Under `released`, templates are varied on the first hundred queries with one demonstration set, and demonstration
    sets on so many of the first queries that there are no more prompts than in StaICC-Normal. The paper (section 3.3)
    mentions no such limit.
    """
    parts = {
        "gler": label_noise_requests(
            dataset, n_shots=config.n_shots, n_queries=config.n_queries, definition=config.prompt_definition
        ),
        "template": _template_requests(dataset, config),
        "sampling": _sampling_requests(dataset, config),
    }
    return pl.concat(rows.with_columns(part=pl.lit(part)) for part, rows in parts.items())


def _template_requests(dataset: ClassificationDataset, config: RunConfig) -> pl.DataFrame:
    """Return the queries with each alternative template; `position` continues from one template to the next."""
    if not dataset.alternative_templates:
        raise TemplateError(
            f"{dataset.name} has no alternative templates to compare answers over. Give it some where it is loaded "
            "(ClassificationDataset.alternative_templates), or leave it out of staicc-robustness."
        )
    n_sets = N_DEMONSTRATION_SETS
    if config.prompt_definition == "released":
        dataset, n_sets = _first_queries(dataset, RELEASED_TEMPLATE_QUERIES), 1
    return pl.concat(
        _normal(replace(dataset, template=template), config, n_sets).with_columns(
            position=pl.col("position") + number * n_sets * dataset.test.height, template=pl.lit(number, pl.Int64)
        )
        for number, template in enumerate(dataset.alternative_templates)
    )


def _sampling_requests(dataset: ClassificationDataset, config: RunConfig) -> pl.DataFrame:
    if config.prompt_definition == "released":
        dataset = _first_queries(dataset, dataset.test.height * N_DEMONSTRATION_SETS // N_SAMPLED_SETS)
    return _normal(dataset, config, N_SAMPLED_SETS)


def _first_queries(dataset: ClassificationDataset, n_queries: int) -> ClassificationDataset:
    """Return the dataset with only the first test queries, so that the toolkit's generator draws for these alone."""
    return replace(dataset, test=dataset.test.head(n_queries))


def _normal(dataset: ClassificationDataset, config: RunConfig, n_demonstration_sets: int) -> pl.DataFrame:
    n_queries = None if config.n_queries is None else min(config.n_queries, dataset.test.height)
    return normal_requests(
        dataset, n_shots=config.n_shots, n_queries=n_queries, n_demonstration_sets=n_demonstration_sets
    )


STAICC_ROBUSTNESS = Suite(
    summary="Robustness of answers to wrong labels in demonstrations, nine templates and eight demonstration sets.",
    parts={name: Part(kind="diagnostic", prompts_differ=True) for name in ("gler", "template", "sampling")},
    default_datasets=family.DATASETS,
    take=as_classification,
    requests=lambda dataset, config: Requests(robustness_requests(dataset, config)),
    describe=family.describe,
    measure=family.measure,
    sections=family.sections,
    summary_lines=diagnostic_lines,
    metric_texts=METRIC_TEXTS,
)
