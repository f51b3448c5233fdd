"""Compute classification metrics of any label probabilities, by the same code as the tables of a run."""

from typing import Any

import numpy as np
import polars as pl

from evaluator.errors import MetricError
from evaluator.metrics.per_request import per_request_columns
from evaluator.metrics.registry import METRICS
from evaluator.metrics.values import metric_values
from evaluator.schemas import Definition


def classification_metrics(label_probs: Any, gold: Any, definition: Definition = "paper") -> dict[str, float]:
    """Measure METRICS of one dataset: those of StaICC, the Brier score and the log loss.

    Args:
        label_probs: array-like [n, n_labels] (NumPy, nested lists, a Polars series of lists): a distribution over the
            label space in each row. Under "released" and "published" any finite numbers, as in the toolkit.
        gold: array-like [n] of integers, each an index into the label space.
        definition: "paper"; "released", the formulas of the StaICC toolkit 0.1.1; or "published", those of the
            version that its published tables were computed with (toolkit_formulas.py has the differences).

    Returns:
        accuracy, true_label_probability, macro_f1 and expected_calibration_error, each in [0, 1]; brier_score in
        [0, 2], log_loss in nats.

    Raises:
        MetricError: no rows, inconsistent shapes, gold labels outside the label space, entries that are not finite,
            rows that are not distributions, or an unknown definition.

    Sources: Cho & Inoue 2025 (StaICC), section 3.2; brier_score.py and log_loss.py for the two that are ours.
    """
    probs, labels = _as_matrix(label_probs), _as_labels(gold)
    if len(probs) != len(labels):
        raise MetricError(f"label_probs has {len(probs)} rows and gold has {len(labels)}: the numbers must be equal.")
    frame = pl.DataFrame(
        {
            "query_id": np.arange(len(labels)),
            "gold": labels,
            "label_probs": pl.Series(probs).cast(pl.List(pl.Float64)),
        }
    )
    n_labels = probs.shape[1]
    requests = per_request_columns(frame, n_labels, definition, definition)
    return {name: measured.value for name, measured in metric_values(requests, n_labels, METRICS).items()}


def _as_matrix(label_probs: Any) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    rows = label_probs.to_list() if isinstance(label_probs, pl.Series) else label_probs
    try:
        matrix = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise MetricError(f"label_probs must be numbers of shape [n, n_labels]: {error}.") from error
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise MetricError(f"label_probs must be of shape [n, n_labels], neither of them 0; got {list(matrix.shape)}.")
    return matrix


def _as_labels(gold: Any) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    try:
        labels = np.asarray(gold)
    except ValueError as error:
        raise MetricError(f"gold must be one label index a row: {error}.") from error
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise MetricError(
            f"gold must be integers of shape [n], each an index into the label space; got {labels.dtype} of shape "
            f"{list(labels.shape)}."
        )
    return labels.astype(np.int64)
