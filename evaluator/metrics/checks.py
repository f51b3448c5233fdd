"""Check label probabilities and gold labels before anything is measured. All errors are MetricError."""

import polars as pl

from evaluator.errors import MetricError

SUM_TOLERANCE = 1e-5
"""Largest deviation of a row's sum from 1; a float32 softmax over a label space stays well below it."""


def require_label_space(label_probs: pl.Series, n_labels: int, where: str) -> None:
    """Raise where there are no rows, or where a row has another length than the label space."""
    if not len(label_probs):
        raise MetricError(f"{where}: there are no requests to measure.")
    _refuse(
        (label_probs.list.len() != n_labels).fill_null(True),
        label_probs,
        f"{where}: label_probs must hold {n_labels} numbers a row, one a label",
    )


def require_gold(gold: pl.Series, n_labels: int, where: str) -> None:
    """Raise for gold labels outside the label space, and missing ones."""
    _refuse(
        ~gold.is_between(0, n_labels - 1).fill_null(False),
        gold,
        f"{where}: gold must be a label's index from 0 to {n_labels - 1}",
    )


def require_finite(matrix: pl.DataFrame, where: str) -> None:
    """Raise for missing, NaN and infinite entries. `matrix` has one Float64 column a label."""
    finite = matrix.select(pl.all_horizontal(pl.all().is_finite().fill_null(False))).to_series()
    _refuse(~finite, matrix, f"{where}: label_probs must be finite numbers")


def require_distributions(matrix: pl.DataFrame, where: str) -> None:
    """Raise for rows with a negative entry or a sum that is not 1 within SUM_TOLERANCE."""
    sums_to_one = (pl.sum_horizontal(pl.all()) - 1).abs() <= SUM_TOLERANCE
    is_distribution = matrix.select(sums_to_one & (pl.min_horizontal(pl.all()) >= 0)).to_series()
    _refuse(
        ~is_distribution,
        matrix,
        f"{where}: label_probs must be probability distributions, none negative and each row summing to 1 within "
        f"{SUM_TOLERANCE:g} (definitions 'released' and 'published' accept other rows and apply softmax to them)",
    )


def _refuse(bad: pl.Series, values: pl.Series | pl.DataFrame, what: str) -> None:
    if bad.any():
        first = bad.arg_max()
        assert first is not None, "bad has a true entry"
        value = list(values.row(first)) if isinstance(values, pl.DataFrame) else values[first]
        shown = value.to_list() if isinstance(value, pl.Series) else value
        raise MetricError(f"{what}; {bad.sum()} of {len(bad)} are not, the first at row {first}: {shown}.")
