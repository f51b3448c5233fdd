"""Build prompts in several templates and with several demonstration sets, and measure how far their answers agree.

Source: Cho & Inoue 2025, section 3.3.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from evaluator.arrays import Floats
from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.errors import MetricError, TemplateError
from evaluator.metrics.classification import ACCURACY, N_REQUESTS, Measured, Metric, metric_values
from evaluator.metrics.groups import PredictionGroup
from evaluator.metrics.intervals import jackknife, two_way_standard_error
from evaluator.prompts.demonstrations import N_DEMONSTRATION_SETS
from evaluator.prompts.rows import normal_requests, variations
from evaluator.templates.template import ORTHOGONAL_ARRAY

N_SAMPLED_SETS = 8  # demonstration sets of a query in the part `sampling`
RELEASED_TEMPLATE_QUERIES = 100  # of the part `template`, under `released`
MAX_SD = math.sqrt(0.5)
"""Largest standard deviation of numbers in [0, 1]: that of one 0 and one 1."""

CONSISTENCY = Metric(
    statistics=lambda _n_labels: N_REQUESTS | {"agreeing": pl.col("agreeing")},
    value=lambda _n_labels: pl.col("agreeing") / pl.col("n"),
    interval="score",
)
"""Mean share of the most frequent label among the answers to the variations of one prompt; a row is such a prompt."""


def template_requests(dataset: ClassificationDataset, config: RunConfig) -> Iterator[pl.DataFrame]:
    """Yield the queries in each template; under `released` the first hundred, after one demonstration set."""
    if not dataset.alternative_templates:
        raise TemplateError(
            f"{dataset.name} has no alternative templates to compare answers over. Give it some where it is loaded "
            "(ClassificationDataset.alternative_templates), or leave it out of staicc-robustness."
        )
    n_sets = N_DEMONSTRATION_SETS
    if config.prompt_definition == "released":
        dataset, n_sets = _first_queries(dataset, RELEASED_TEMPLATE_QUERIES), 1
    variants = (
        ({"template": pl.lit(number, pl.Int64)}, _normal(replace(dataset, template=template), config, n_sets))
        for number, template in enumerate(dataset.alternative_templates)
    )
    yield from variations(variants, n_sets * dataset.test.height)


def sampling_requests(dataset: ClassificationDataset, config: RunConfig) -> Iterator[pl.DataFrame]:
    """Yield the queries after eight demonstration sets each.

    Under `released` only the first queries, as many as give no more prompts than StaICC-Normal has.
    """
    if config.prompt_definition == "released":
        dataset = _first_queries(dataset, dataset.test.height * N_DEMONSTRATION_SETS // N_SAMPLED_SETS)
    return _normal(dataset, config, N_SAMPLED_SETS)


def _first_queries(dataset: ClassificationDataset, n_queries: int) -> ClassificationDataset:
    """Return the dataset with only the first test queries, so that the toolkit's generator draws for no other query."""
    return replace(dataset, test=dataset.test.head(n_queries))


def _normal(dataset: ClassificationDataset, config: RunConfig, n_demonstration_sets: int) -> Iterator[pl.DataFrame]:
    n_queries = None if config.n_queries is None else min(config.n_queries, dataset.test.height)
    return normal_requests(
        dataset, n_shots=config.n_shots, n_queries=n_queries, n_demonstration_sets=n_demonstration_sets
    )


def template_consistency(group: PredictionGroup) -> dict[str, Measured]:
    """Measure template_consistency: the share of templates that give the most frequent label, averaged over queries and
    their demonstration sets.

    `paper` and `released` are one formula; they read probabilities differently, which can break ties. The interval is
    over queries, for these templates: with more templates the shares would be smaller, so the data give no interval
    over other templates. The interval of template_accuracy covers other templates.

    Raises MetricError if queries are not answered equally often with each template.

    Sources: Cho & Inoue 2025, section 3.3; StaICC 0.1.1, util/functional.py, consistency.
    """
    require_complete_grid(group, "template", "templates")
    prompts = _agreement(group.repeated_requests, ["query_id", "demonstration_set"])
    return metric_values(prompts, group.n_labels, {"template_consistency": CONSISTENCY})


def sampling_consistency(group: PredictionGroup) -> dict[str, Measured]:
    """Measure sampling_consistency, the share of demonstration sets that give the most frequent label, averaged over
    queries, and accuracy_mean_over_demonstration_sets, the accuracy over all of them.

    Different queries have different demonstration sets. The intervals, which are over queries, therefore cover other
    demonstration sets as well.

    Raises and sources as template_consistency.
    """
    require_complete_grid(group, "demonstration_set", "demonstration sets")
    requests = group.repeated_requests
    agreement = metric_values(_agreement(requests, ["query_id"]), group.n_labels, {"sampling_consistency": CONSISTENCY})
    accuracy = {"accuracy_mean_over_demonstration_sets": ACCURACY}
    return agreement | metric_values(requests, group.n_labels, accuracy)


def _agreement(requests: pl.DataFrame, prompt: list[str]) -> pl.DataFrame:
    """Return the columns `prompt` and `agreeing`, the share of the most frequent answer, one row a prompt."""
    counts = requests.group_by(*prompt, "pred").len()
    share = pl.col("len").max() / pl.col("len").sum()
    return counts.group_by(prompt).agg(agreeing=share).sort(prompt)


def template_accuracy(group: PredictionGroup) -> dict[str, Measured]:
    """Measure accuracy_mean_over_templates and accuracy_sd_over_templates.

    The mean is the expected accuracy of a user without reason to prefer a template. Its interval covers other queries
    *and* other texts of the templates' attributes (metrics.intervals.two_way_standard_error). The standard deviation is
    that of these templates' accuracies (n - 1 in the denominator), with an interval over queries alone. Both include
    the noise of single answers, which shrinks as the number of queries grows.

    Neither is in the paper or the toolkit; `paper` and `released` differ in the predictions they read.

    Raises MetricError if queries are not answered equally often with each template.
    """
    require_complete_grid(group, "template", "templates")
    cells = _cells(group)
    standard_error, degrees_of_freedom = two_way_standard_error(cells, template_attributes(cells.shape[1]))
    # For the jackknife: the accuracies of the templates without one query, for each query, [query, template].
    without_one = (cells.sum(axis=0) - cells) / max(len(cells) - 1, 1)
    deviation = float(cells.mean(axis=0).std(ddof=1))
    return {
        "accuracy_mean_over_templates": Measured(
            float(cells.mean()), standard_error, degrees_of_freedom, "score", 0.0, 1.0, over="queries and templates"
        ),
        "accuracy_sd_over_templates": Measured(
            deviation,
            jackknife(deviation, without_one.std(axis=1, ddof=1)).standard_error,
            len(cells) - 1,
            "symmetric",
            0.0,
            MAX_SD,
        ),
    }


def template_attributes(n_templates: int) -> Sequence[Sequence[int]] | None:
    """Return the rows of the orthogonal array where there are as many templates; None for templates of their own."""
    return ORTHOGONAL_ARRAY if n_templates == len(ORTHOGONAL_ARRAY) else None


def _cells(group: PredictionGroup) -> Floats:
    """Return the share of correct answers [query, template], over demonstration sets."""
    answers = group.repeated_requests.group_by("query_id", "template")
    cells = answers.agg(pl.col("correct").mean()).sort("query_id", "template")
    return np.asarray(cells["correct"].to_numpy()).reshape(-1, cells["template"].n_unique())


def require_complete_grid(group: PredictionGroup, column: str, what: str) -> None:
    """Raise MetricError unless every query has equally many answers with each value of `column`.

    There must be two values or more; `what` is their plural name in the message.
    """
    cells = group.rows.group_by("query_id", column).len()
    n_values, n_queries = cells[column].n_unique(), cells["query_id"].n_unique()
    if n_values < 2:
        raise MetricError(
            f"{group.where}: answers are compared over {what}, but there is only one. Build at least two."
        )
    if cells.height < n_values * n_queries or cells["len"].n_unique() > 1:
        raise MetricError(
            f"{group.where}: every query must be answered equally often with each of the {n_values} {what}, but of "
            f"{n_values * n_queries} pairs {cells.height} are present, with {sorted(set(cells['len']))} answers. "
            "Measure complete parts."
        )
