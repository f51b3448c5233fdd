"""Turn label probabilities into the per-request columns that metrics are computed from, under one definition.

The StaICC toolkit applies softmax to the *whole* matrix of label probabilities as soon as one row fails a check, so
that each row depends on all others. `released` is the check of version 0.1.1, `published` the older one that the
published tables must have been computed with. A matrix is a frame with one Float64 column a label: p0, p1, ...
"""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from evaluator.errors import MetricError, unknown_name
from evaluator.metrics.base import sum_in_order

N_BINS = 10
BIN_EDGES = [b / N_BINS for b in range(N_BINS + 1)]

SUM_TOLERANCE = 1e-5
"""Largest deviation of a row's sum from 1; a float32 softmax over a label space stays well below it."""


def passes_released_check(matrix: pl.DataFrame) -> bool:
    """Return whether version 0.1.1 leaves a matrix unchanged: all entries lie in [0, 1] and each row sums to exactly 1.

    The sum is taken from left to right in double precision, as Python's `sum` does up to 3.11. Since 3.12 `sum`
    compensates for rounding, so that the toolkit can give other numbers than under an older Python.

    Source: StaICC 0.1.1, util/functional.py, probability_matrix_check.
    """
    sums_to_one = matrix.select((sum_in_order(map(pl.col, matrix.columns)) == 1).all()).item()
    return bool(sums_to_one) and passes_published_check(matrix)


def passes_published_check(matrix: pl.DataFrame) -> bool:
    """Return whether all entries lie in [0, 1]; sums are not checked.

    Source: StaICC 0.1.1, util/functional.py, the check that is in comments next to each metric.
    """
    return bool(matrix.select(pl.all_horizontal(pl.all().is_between(0, 1).all())).item())


@dataclass(frozen=True, kw_only=True)
class DefinitionRules:
    """How a definition measures label probabilities."""

    predictions: str  # `definition` of the predictions that it measures
    check: Callable[[pl.DataFrame], bool] | None
    """Whether a matrix of label probabilities stays as it is; else the softmax of its rows is taken. None: rows must be
    distributions already."""


DEFINITIONS: dict[str, DefinitionRules] = {
    "paper": DefinitionRules(predictions="paper", check=None),
    "released": DefinitionRules(predictions="released", check=passes_released_check),
    "published": DefinitionRules(predictions="released", check=passes_published_check),
    "floored": DefinitionRules(predictions="floored", check=None),
}


def per_request_columns(predictions: pl.DataFrame, n_labels: int, definition: str, where: str) -> pl.DataFrame:
    """Return one row a request: query_id, gold, pred, correct, true_label_prob, squared_error, confidence and bin.

    The bin is null for a request in no bin. The label probabilities are in the columns p0, p1, ...

    Args:
        predictions: columns query_id, gold and label_probs (List[f64] of n_labels), all of one dataset and method.
        where: name of the rows, for messages.

    Raises:
        MetricError: rows that `definition` does not accept, or gold labels outside the label space.
    """
    rules = _rules(definition)
    matrix = label_matrix(predictions, n_labels, definition, where)
    require_gold(predictions["gold"], n_labels, where)
    if rules.check and not rules.check(matrix):
        # Operations and their order as in the toolkit: a confidence on a bin's edge must fall on the same side of it.
        exponentials = matrix.select((pl.all() - pl.max_horizontal(pl.all())).exp())
        matrix = exponentials.select(pl.all() / sum_in_order(map(pl.col, matrix.columns)))

    labels = matrix.columns
    confidence, gold, pred = pl.col("confidence"), pl.col("gold"), pl.col("pred")
    # coalesce takes the first value that is not null, hence the first of equally probable labels, as in the toolkit.
    most_probable = pl.coalesce(pl.when(pl.col(name) == confidence).then(i) for i, name in enumerate(labels))
    of_gold = pl.coalesce(pl.when(gold == i).then(pl.col(name)) for i, name in enumerate(labels))
    errors = ((pl.col(name) - (gold == i).cast(pl.Float64)).pow(2) for i, name in enumerate(labels))
    return (
        predictions.select("query_id", "gold")
        .hstack(matrix)
        .with_columns(confidence=pl.max_horizontal(labels), true_label_prob=of_gold, squared_error=sum_in_order(errors))
        .with_columns(
            pred=most_probable.cast(pl.Int64),
            bin=confidence_bin(confidence),
        )
        .with_columns(correct=pred == gold)
    )


def confidence_bin(confidence: pl.Expr, *, is_last_closed: bool = False) -> pl.Expr:
    """Return the index of the bin [(b - 1) / 10, b / 10) that holds a confidence, in 0..9.

    The bins of Cho & Inoue 2025 (below table 2) and of their code are half-open, so that a confidence of exactly 1 is
    in no bin: its index is null, and the request adds nothing to ECE but its place in N. With `is_last_closed`, which
    is ours, it is in the last bin. Guo et al. 2017 use ((b - 1) / 10, b / 10] instead.
    """
    inner = pl.sum_horizontal((confidence >= edge).cast(pl.Int64) for edge in BIN_EDGES[1:-1])
    return inner if is_last_closed else pl.when(confidence < BIN_EDGES[-1]).then(inner)


def label_matrix(predictions: pl.DataFrame, n_labels: int, definition: str, where: str) -> pl.DataFrame:
    """Return label_probs as one Float64 column a label: p0, p1, ...

    Raises MetricError for an unknown definition and for rows that the definition does not accept: none at all, rows of
    another length than the label space, entries that are not finite, and under "paper" rows with a negative entry or a
    sum that is not 1 within SUM_TOLERANCE.
    """
    check, label_probs = _rules(definition).check, predictions["label_probs"]
    if not len(label_probs):
        raise MetricError(f"{where}: there are no requests to measure.")
    lengths = f"{where}: label_probs must hold {n_labels} numbers a row, one a label"
    _refuse((label_probs.list.len() != n_labels).fill_null(True), label_probs, lengths)
    matrix = predictions.select(pl.col("label_probs").list.get(i).alias(f"p{i}") for i in range(n_labels))
    is_finite = matrix.select(pl.all_horizontal(pl.all().is_finite().fill_null(False))).to_series()
    _refuse(~is_finite, matrix, f"{where}: label_probs must be finite numbers")
    if check is None:
        sums_to_one = (pl.sum_horizontal(pl.all()) - 1).abs() <= SUM_TOLERANCE
        is_distribution = matrix.select(sums_to_one & (pl.min_horizontal(pl.all()) >= 0)).to_series()
        _refuse(
            ~is_distribution,
            matrix,
            f"{where}: label_probs must be probability distributions, none negative and each row summing to 1 within "
            f"{SUM_TOLERANCE:g} (definitions 'released' and 'published' accept other rows and apply softmax to them)",
        )
    return matrix


def require_gold(gold: pl.Series, n_labels: int, where: str) -> None:
    """Raise MetricError for gold labels outside the label space, and missing ones."""
    is_label = gold.is_between(0, n_labels - 1).fill_null(False)
    _refuse(~is_label, gold, f"{where}: gold must be a label's index from 0 to {n_labels - 1}")


def _rules(definition: str) -> DefinitionRules:
    if definition not in DEFINITIONS:
        raise MetricError(unknown_name("There is no definition", definition, DEFINITIONS))
    return DEFINITIONS[definition]


def _refuse(bad: pl.Series, values: pl.Series | pl.DataFrame, rule: str) -> None:
    """Raise MetricError with the first bad row and the number of them."""
    first = bad.arg_max()
    if first is not None and bad[first]:
        value = list(values.row(first)) if isinstance(values, pl.DataFrame) else values[first]
        shown = value.to_list() if isinstance(value, pl.Series) else value
        raise MetricError(f"{rule}; {bad.sum()} of {len(bad)} are not, the first at row {first}: {shown}.")
