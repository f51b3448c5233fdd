"""Measure how many of a query's answers agree, right or wrong."""

import polars as pl

from evaluator.metrics.accuracy import ACCURACY
from evaluator.metrics.base import N_REQUESTS, Metric
from evaluator.metrics.per_request import PredictionGroup
from evaluator.metrics.values import Measured, metric_values
from evaluator.suites.staicc.diagnostics.complete_grid import require_complete_grid

CONSISTENCY = Metric(
    statistics=lambda _n_labels: N_REQUESTS | {"agreeing": pl.col("agreeing")},
    value=lambda _n_labels: pl.col("agreeing") / pl.col("n"),
    interval="score",
)
"""Mean share of the most frequent label among the answers to the variations of one prompt; a row is such a prompt."""


def template_consistency(group: PredictionGroup) -> dict[str, Measured]:
    """Measure template_consistency: the share of templates that give the most frequent label, averaged over queries and
    their demonstration sets.

    `paper` and `released` are one formula; they read probabilities differently, which can break ties. The interval is
    over queries, for these templates: with more templates the shares would be smaller, so the data give no interval
    over other templates. The interval of template_accuracy covers those.

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
