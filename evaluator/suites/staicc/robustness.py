"""Build the prompts of StaICC-Diag that show how answers depend on wrong labels, templates and demonstrations.

Source: Cho & Inoue 2025, section 3.3.
"""

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.errors import TemplateError
from evaluator.prompts.demonstrations import N_DEMONSTRATION_SETS
from evaluator.prompts.rows import normal_requests, of_parts
from evaluator.suites.base import Part
from evaluator.suites.staicc.family import staicc_suite
from evaluator.suites.staicc.label_noise import label_noise_requests

N_SAMPLED_SETS = 8  # demonstration sets of a query in the part `sampling`
RELEASED_TEMPLATE_QUERIES = 100  # of the part `template`, under `released`


def robustness_requests(dataset: ClassificationDataset, config: RunConfig) -> Iterator[pl.DataFrame]:
    """Yield StaICC-Normal's prompts at five rates of wrong labels, in nine templates, after eight demonstration sets.

    Under `released`, templates are varied on the first hundred queries with one demonstration set. Demonstration sets
    are varied on the first queries only, as many as give no more prompts than StaICC-Normal has. The paper (section
    3.3) mentions no such limits.
    """
    parts = {
        "gler": label_noise_requests(
            dataset, n_shots=config.n_shots, n_queries=config.n_queries, definition=config.prompt_definition
        ),
        "template": _template_requests(dataset, config),
        "sampling": _sampling_requests(dataset, config),
    }
    return of_parts(parts)


def _template_requests(dataset: ClassificationDataset, config: RunConfig) -> Iterator[pl.DataFrame]:
    """Yield the queries with each alternative template; `position` continues from one template to the next."""
    if not dataset.alternative_templates:
        raise TemplateError(
            f"{dataset.name} has no alternative templates to compare answers over. Give it some where it is loaded "
            "(ClassificationDataset.alternative_templates), or leave it out of staicc-robustness."
        )
    n_sets = N_DEMONSTRATION_SETS
    if config.prompt_definition == "released":
        dataset, n_sets = _first_queries(dataset, RELEASED_TEMPLATE_QUERIES), 1
    for number, template in enumerate(dataset.alternative_templates):
        position = pl.col("position") + number * n_sets * dataset.test.height
        for rows in _normal(replace(dataset, template=template), config, n_sets):
            yield rows.with_columns(position=position, template=pl.lit(number, pl.Int64))


def _sampling_requests(dataset: ClassificationDataset, config: RunConfig) -> Iterator[pl.DataFrame]:
    if config.prompt_definition == "released":
        dataset = _first_queries(dataset, dataset.test.height * N_DEMONSTRATION_SETS // N_SAMPLED_SETS)
    return _normal(dataset, config, N_SAMPLED_SETS)


def _first_queries(dataset: ClassificationDataset, n_queries: int) -> ClassificationDataset:
    """Return the dataset with only the first test queries, so that the toolkit's generator draws for these alone."""
    return replace(dataset, test=dataset.test.head(n_queries))


def _normal(dataset: ClassificationDataset, config: RunConfig, n_demonstration_sets: int) -> Iterator[pl.DataFrame]:
    n_queries = None if config.n_queries is None else min(config.n_queries, dataset.test.height)
    return normal_requests(
        dataset, n_shots=config.n_shots, n_queries=n_queries, n_demonstration_sets=n_demonstration_sets
    )


STAICC_ROBUSTNESS = staicc_suite(
    summary="Robustness of answers to wrong labels in demonstrations, nine templates and eight demonstration sets.",
    parts={name: Part(kind="diagnostic", prompts_differ=True) for name in ("gler", "template", "sampling")},
    requests=robustness_requests,
)
