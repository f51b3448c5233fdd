"""The classification metrics, by their names in the tables, and their values for any label probabilities."""

import math
from typing import Any

import numpy as np
import polars as pl

from evaluator.errors import MetricError
from evaluator.metrics.base import N_REQUESTS, Metric, mean_metric, metric_values, sum_in_order
from evaluator.metrics.per_request import N_BINS, per_request_columns
from evaluator.schemas import Definition

ACCURACY = mean_metric("correct")
"""The share of requests whose most probable label is the true one; ties go to the first label.

Source: Cho & Inoue 2025 (StaICC), section 3.2.
"""

TRUE_LABEL_PROBABILITY = mean_metric("true_label_prob")
"""The mean probability given to the true label; 1 / n_labels for uniform predictions.

Source: Cho & Inoue 2025 (StaICC), section 3.2. A mean of probabilities, not the exponential of a mean logarithm.
"""


def _f1_statistics(n_labels: int) -> dict[str, pl.Expr]:
    gold, pred = pl.col("gold"), pl.col("pred")
    return {
        name: statistic
        for label in range(n_labels)
        for name, statistic in (
            (f"true_positive_{label}", (gold == label) & (pred == label)),
            (f"predicted_{label}", pred == label),
            (f"gold_{label}", gold == label),
        )
    }


def _label_f1(label: int) -> pl.Expr:
    """Return the F1 of a label, 2PR / (P + R) = 2TP / (predicted + gold); 0 where it is neither predicted nor true."""
    predicted_and_gold = pl.col(f"predicted_{label}") + pl.col(f"gold_{label}")
    f1 = 2 * pl.col(f"true_positive_{label}") / predicted_and_gold
    return pl.when(predicted_and_gold > 0).then(f1).otherwise(0.0)


MACRO_F1 = Metric(
    statistics=_f1_statistics,
    value=lambda n_labels: sum_in_order(map(_label_f1, range(n_labels))) / n_labels,
    interval="score",
)
"""The plain mean of F1 over every label of the space, also those that no request has; scikit-learn omits these without
`labels`.

Source: Cho & Inoue 2025 (StaICC), section 3.2: the mean of F1, not F1 of mean precision and mean recall.
"""


def _gaps(_n_labels: int) -> dict[str, pl.Expr]:
    gap = pl.col("correct").cast(pl.Float64) - pl.col("confidence")
    return N_REQUESTS | {f"gap_{b}": pl.when(pl.col("bin") == b).then(gap).otherwise(0.0) for b in range(N_BINS)}


EXPECTED_CALIBRATION_ERROR = Metric(
    statistics=_gaps,
    # |B|/N x |accuracy(B) - mean confidence(B)| is |sum over B of (correct - confidence)| / N.
    value=lambda _n_labels: sum_in_order(pl.col(f"gap_{b}").abs() for b in range(N_BINS)) / pl.col("n"),
    interval="bins",
)
"""Expected calibration error (ECE-1): the mean gap between confidence and accuracy, in 10 equal bins of confidence.

Sampling noise biases it upwards: even a perfectly calibrated model has an error above 0 on n requests. Its interval and
its estimate of reduced bias are of the error on infinitely many (calibration_interval.py).

Source: Cho & Inoue 2025 (StaICC), section 3.2, after Naeini et al. 2015 and Guo et al. 2017.
"""

BRIER_SCORE = mean_metric("squared_error", limits=(0.0, 2.0))
"""The sum over all labels of (probability - 1 for the true label, 0 for others)^2, averaged over requests: 0 to 2, and
(n_labels - 1) / n_labels for uniform predictions. With two labels it is twice the score of one label's probability
alone, which scikit-learn's `brier_score_loss` returns unless `scale_by_half=False`. A metric of ours, not StaICC's.

Under `released` and `published` it is the same formula on the probabilities that this definition measures.

Source: Brier 1950, "Verification of forecasts expressed in terms of probability", as in scikit-learn's user guide.
"""

LOG_LOSS = mean_metric(
    "log_loss_nats",
    0.0 - pl.col("true_label_prob").log(),  # 0 - log p, because -log(1) would be shown as -0
    interval="log",
    limits=(0.0, math.inf),
)
"""The mean of minus the log-probability of the true label, in nats; log(n_labels) for uniform predictions. A metric of
ours, not StaICC's. Probabilities are over the label space. Infinite where a true label has probability 0;
scikit-learn's `log_loss` replaces such a 0 by the smallest step of the dtype instead.

Under `released` and `published` it is the same formula on the probabilities that this definition measures.

Source: Good 1952, "Rational decisions", the logarithmic score, as in scikit-learn's user guide.
"""

METRICS: dict[str, Metric] = {
    "accuracy": ACCURACY,
    "true_label_probability": TRUE_LABEL_PROBABILITY,
    "macro_f1": MACRO_F1,
    "expected_calibration_error": EXPECTED_CALIBRATION_ERROR,
    "brier_score": BRIER_SCORE,
    "log_loss": LOG_LOSS,
}

STAICC_METRICS = ("accuracy", "true_label_probability", "macro_f1", "expected_calibration_error")
"""The metrics of Cho & Inoue 2025; Brier score and log loss are ours."""

REQUEST_COLUMNS = {"accuracy": "correct", "true_label_probability": "true_label_prob"}
"""Metric that is a mean over requests -> the column of each request's value (per_request.py)."""


def classification_metrics(label_probs: Any, gold: Any, definition: Definition = "paper") -> dict[str, float]:
    """Measure METRICS of one dataset: those of StaICC, the Brier score and the log loss, as in the tables of a run.

    Args:
        label_probs: array-like [n, n_labels] (NumPy, nested lists, a Polars series of lists): a distribution over the
            label space in each row. Under "released" and "published" any finite numbers, as in the toolkit.
        gold: array-like [n] of integers, each an index into the label space.
        definition: "paper"; "released", the formulas of the StaICC toolkit 0.1.1; or "published", those of the
            version that its published tables were computed with (per_request.py has the differences).

    Returns:
        accuracy, true_label_probability, macro_f1 and expected_calibration_error, each in [0, 1]; brier_score in
        [0, 2], log_loss in nats.

    Raises:
        MetricError: no rows, inconsistent shapes, gold labels outside the label space, entries that are not finite,
            rows that are not distributions, or an unknown definition.

    Sources: Cho & Inoue 2025 (StaICC), section 3.2; BRIER_SCORE and LOG_LOSS have those of the two that are ours.
    """
    probs, labels = _as_matrix(label_probs), _as_labels(gold)
    if len(probs) != len(labels):
        raise MetricError(f"label_probs has {len(probs)} rows and gold has {len(labels)}: the numbers must be equal.")
    lists = pl.Series(probs).cast(pl.List(pl.Float64))
    frame = pl.DataFrame({"query_id": np.arange(len(labels)), "gold": labels, "label_probs": lists})
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
