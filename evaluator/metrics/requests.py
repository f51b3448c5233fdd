"""From predictions to the per-request columns that every metric is made of, under one definition."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from evaluator.errors import MetricError
from evaluator.metrics.calibration_error import confidence_bin
from evaluator.metrics.checks import require_distributions, require_finite, require_label_space
from evaluator.metrics.released import published_probabilities, released_probabilities
from evaluator.schemas import PREDICTIONS_KEY

GROUP = ["suite", "part", "dataset", "method"]
"""What one value of a metric is about."""


@dataclass(frozen=True, kw_only=True)
class DefinitionRules:
    """How one definition reads label probabilities."""

    predictions: str  # the predictions it measures, by their `definition`
    take: Callable[[pl.DataFrame], pl.DataFrame] | None  # None: as they are, and they must be distributions
    last_bin_closed: bool  # whether ECE counts a confidence of exactly 1


DEFINITIONS: dict[str, DefinitionRules] = {
    "paper": DefinitionRules(predictions="paper", take=None, last_bin_closed=True),
    "released": DefinitionRules(predictions="released", take=released_probabilities, last_bin_closed=False),
    "published": DefinitionRules(predictions="released", take=published_probabilities, last_bin_closed=False),
}


class MeasuredGroup(NamedTuple):
    """All requests of one dataset by one method, under one definition."""

    key: dict[str, str]  # GROUP and "definition"
    n_labels: int
    requests: pl.DataFrame  # per_request_columns


def require_definition(definition: str) -> DefinitionRules:
    if definition not in DEFINITIONS:
        raise MetricError(f"There is no definition {definition!r}; choose one of {', '.join(DEFINITIONS)}.")
    return DEFINITIONS[definition]


def measured_groups(predictions: pl.DataFrame, definition: str) -> Iterator[MeasuredGroup]:
    """Each dataset and method of a PREDICTIONS frame that `definition` measures, in the order of the table's key."""
    rules = require_definition(definition)
    # Sorted, so that sums of floating-point numbers do not depend on the order in which rows arrive.
    chosen = predictions.filter(pl.col("definition") == rules.predictions).sort(PREDICTIONS_KEY)
    for values, rows in chosen.partition_by(GROUP, as_dict=True, maintain_order=True).items():
        key = dict(zip(GROUP, map(str, values), strict=True))
        where = ", ".join([*key.values(), definition])
        n_labels = _n_labels(rows, where)
        yield MeasuredGroup(
            key | {"definition": definition}, n_labels, per_request_columns(rows, n_labels, definition, where)
        )


def per_request_columns(predictions: pl.DataFrame, n_labels: int, definition: str, where: str) -> pl.DataFrame:
    """One row a request: query_id, gold, pred, correct, true_label_prob, confidence and bin (null: in none).

    Args:
        predictions: columns query_id, gold and label_probs (List[f64] of n_labels), of one dataset and method.
        where: what the rows are, for messages.

    Raises:
        MetricError: rows that `definition` cannot take, or gold labels outside the label space.
    """
    rules = require_definition(definition)
    require_label_space(predictions["label_probs"], predictions["gold"], n_labels, where)
    labels = [f"p{label}" for label in range(n_labels)]
    matrix = predictions.select(pl.col("label_probs").list.get(i).alias(name) for i, name in enumerate(labels))
    require_finite(matrix, where)
    if rules.take is None:
        require_distributions(matrix, where)
    else:
        matrix = rules.take(matrix)

    confidence, gold, pred = pl.col("confidence"), pl.col("gold"), pl.col("pred")
    # coalesce takes the first that is not null: of equally probable labels the first, as the toolkit does.
    most_probable = pl.coalesce(pl.when(pl.col(name) == confidence).then(i) for i, name in enumerate(labels))
    of_gold = pl.coalesce(pl.when(gold == i).then(pl.col(name)) for i, name in enumerate(labels))
    return (
        predictions.select("query_id", "gold")
        .hstack(matrix)
        .with_columns(confidence=pl.max_horizontal(labels), true_label_prob=of_gold)
        .with_columns(
            pred=most_probable.cast(pl.Int64),
            bin=confidence_bin(confidence, last_bin_closed=rules.last_bin_closed),
        )
        .with_columns(correct=pred == gold)
        .drop(labels)
    )


def _n_labels(rows: pl.DataFrame, where: str) -> int:
    sizes = rows["label_names"].list.len().unique().sort().to_list()
    if len(sizes) != 1:
        raise MetricError(f"{where}: a dataset has one label space, but label_names have {sizes} entries.")
    return int(sizes[0])
