"""Decompose Brier score and log loss: what is lost to miscalibration, and what would be left without it.

Brier score = reliability - resolution + uncertainty, and log loss = calibration + refinement. Requests are grouped by
predicted label and by the ten confidence bins of the calibration error, in which

    reliability  is the mean squared distance between a group's mean label probabilities and its label frequencies,
    calibration  the mean Kullback-Leibler divergence of these frequencies from these probabilities, in nats,
    uncertainty  the Brier score of predicting the overall label frequencies for every request,
    resolution   reliability + uncertainty - Brier score, and
    refinement   log loss - calibration: what remains if groups were calibrated.

So the sums are exact, and what probabilities tell within a group counts for resolution and refinement.

Frequencies of few requests differ from probabilities by chance, which makes plain estimates of reliability and
calibration too large. The jackknife over queries removes this bias, which is why the parts of a calibrated model are
around 0 and can be below it. A group that one query fills alone says nothing about calibration and counts as
calibrated. Intervals are value -+ t x standard error, from the same jackknife.

Sources: Murphy 1973, "A new vector partition of the probability score"; Bröcker 2009, "Reliability, sufficiency, and
the decomposition of proper scores", for scores other than Brier's. For forecasts of few values and one request a query,
reliability and uncertainty are those of Ferro & Fricker 2012, "A bias-corrected decomposition of the Brier score".
"""

import math
from collections.abc import Callable

import numpy as np
import polars as pl
from scipy.special import rel_entr

from evaluator.arrays import Floats, Ints
from evaluator.metrics.base import Measured
from evaluator.metrics.intervals import jackknife
from evaluator.metrics.per_request import N_BINS, confidence_bin

Divergence = Callable[[Floats, Floats], Floats]
"""From sums [..., n_labels] of label probabilities and of true labels over a group to what the group adds, [...]."""

SCORE_PARTS = (
    "brier_reliability",
    "brier_resolution",
    "brier_uncertainty",
    "log_loss_calibration",
    "log_loss_refinement",
)


def score_parts(requests: pl.DataFrame, n_labels: int) -> dict[str, Measured]:
    """Return SCORE_PARTS with their standard errors, by a jackknife over queries.

    Args:
        requests: per_request.per_request_columns of one dataset and method.

    Where the log loss is infinite, so is its calibration, and its refinement is undefined (NaN).
    """
    probs = requests.select(f"p{label}" for label in range(n_labels)).to_numpy()
    true = np.eye(n_labels)[requests["gold"].to_numpy()]
    losses = requests.select(0.0 - pl.col("true_label_prob").log()).to_series().to_numpy()
    query = np.unique(requests["query_id"].to_numpy(), return_inverse=True)[1]
    n_queries = int(query.max()) + 1

    # Every quantity is an array [1 + n_queries]: over all requests, then without each query in turn.
    def left_out(total: Floats, falls: Floats) -> Floats:
        """Return a total, and what is left of it without each query, by which it falls."""
        return np.concatenate([total[None], total - falls]) if n_queries > 1 else total[None]

    def sums(per_request: Floats) -> Floats:
        by_query = np.zeros((n_queries, *per_request.shape[1:]))
        np.add.at(by_query, query, per_request)
        return left_out(by_query.sum(axis=0), by_query)

    def divergence_of(groups: list[tuple[Ints, Floats]], divergence: Divergence) -> Floats:
        """Return the mean divergence over requests."""
        total, falls = np.zeros(()), np.zeros(n_queries)
        for queries, by_query in groups:
            of_group = divergence(*np.split(by_query.sum(axis=0), 2))
            falls[queries] += of_group - divergence(*np.split(_sums_without_one(by_query), 2, axis=1))
            total = total + of_group
        return left_out(total, falls) / n

    n = sums(np.ones(len(query)))
    confidence = confidence_bin(pl.col("confidence"), is_last_closed=True)
    group = requests.select(pl.col("pred") * N_BINS + confidence).to_series().to_numpy()
    groups = _groups(np.hstack([probs, true]), query, group)
    brier = sums(((probs - true) ** 2).sum(axis=1)) / n
    reliability = divergence_of(groups, _squared_distance)
    uncertainty = 1 - ((sums(true) / n[:, None]) ** 2).sum(axis=1)
    calibration, refinement = np.array([math.inf]), np.array([math.nan])
    if np.isfinite(losses).all():
        calibration = divergence_of(groups, _divergence_nats)
        refinement = sums(losses) / n - calibration
    parts = (reliability, reliability + uncertainty - brier, uncertainty, calibration, refinement)
    return {name: _measured(values, n_queries) for name, values in zip(SCORE_PARTS, parts, strict=True)}


def _squared_distance(probs: Floats, true: Floats) -> Floats:
    return np.asarray(((probs - true) ** 2).sum(axis=-1) / true.sum(axis=-1))


def _divergence_nats(probs: Floats, true: Floats) -> Floats:
    return np.asarray(rel_entr(true, probs).sum(axis=-1))


def _groups(columns: Floats, query: Ints, group: Ints) -> list[tuple[Ints, Floats]]:
    """Return the queries of each group and the sums of the columns over each of them, [queries, 2 * n_labels].

    Groups that a single query fills are left out: they count as calibrated.
    """
    order = np.lexsort((query, group))
    # Rows of one group and query are neighbours now; sum each such run.
    is_first = (np.diff(group[order], prepend=-1) != 0) | (np.diff(query[order], prepend=-1) != 0)
    firsts = np.flatnonzero(is_first)
    by_query = np.add.reduceat(columns[order], firsts)
    starts = np.flatnonzero(np.diff(group[order][firsts], prepend=-1))[1:]
    pairs = zip(np.split(query[order][firsts], starts), np.split(by_query, starts), strict=True)
    return [(queries, sums) for queries, sums in pairs if len(queries) > 1]


def _sums_without_one(rows: Floats) -> Floats:
    """Return the sum of all rows but each in turn, without subtracting: a sum of tiny probabilities must stay exact."""
    before, after = np.zeros_like(rows), np.zeros_like(rows)
    before[1:] = np.cumsum(rows[:-1], axis=0)
    after[:-1] = np.cumsum(rows[:0:-1], axis=0)[::-1]
    return before + after


def _measured(values: Floats, n_queries: int) -> Measured:
    """Return the first value without its bias, and its error, from the values without each query that follow it."""
    error, bias = jackknife(float(values[0]), values[1:])
    unbiased = float(values[0]) - (bias or 0.0)
    return Measured(unbiased, error, n_queries - 1, "symmetric", lowest=-math.inf, highest=math.inf)
