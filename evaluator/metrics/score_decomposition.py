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
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.special import rel_entr

from evaluator.arrays import Floats, Ints
from evaluator.metrics.calibration_error import N_BINS, confidence_bin
from evaluator.metrics.values import Measured

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
    counts = np.bincount(query).astype(np.float64)

    def of_mean(per_request: Floats) -> Floats:
        """Return the pseudo-values of a mean over requests."""
        by_query = np.bincount(query, weights=per_request).astype(np.float64)
        return _pseudo_values(float(by_query.sum()), by_query, counts)

    def of_groups(divergence: Divergence) -> Floats:
        """Return the pseudo-values of a sum over groups, divided by the number of requests."""
        total = divergence(*np.hsplit(np.array([group.total for group in groups]).reshape(-1, 2 * n_labels), 2))
        drops = np.zeros(len(counts))
        for group, whole in zip(groups, total, strict=True):
            drops[group.query] += whole - divergence(*np.hsplit(group.without_one, 2))
        return _pseudo_values(float(total.sum()), drops, counts)

    confidence = confidence_bin(pl.col("confidence"), last_bin_closed=True)
    group_number = requests.select(pl.col("pred") * N_BINS + confidence).to_series().to_numpy()
    groups = [*_groups(np.hstack([probs, true]), query, group_number)]
    brier = of_mean(((probs - true) ** 2).sum(axis=1))
    reliability = of_groups(_squared_distance)
    uncertainty = _uncertainty(true, query, counts)
    calibration, refinement = np.array([math.inf]), np.array([math.nan])
    if np.isfinite(losses).all():
        calibration = of_groups(_divergence_nats)
        refinement = of_mean(losses) - calibration
    parts = (reliability, reliability + uncertainty - brier, uncertainty, calibration, refinement)
    return {name: _measured(values, len(counts)) for name, values in zip(SCORE_PARTS, parts, strict=True)}


def _squared_distance(probs: Floats, true: Floats) -> Floats:
    n: Floats = true.sum(axis=-1)
    distance: Floats = ((probs - true) ** 2).sum(axis=-1)
    return distance / n


def _divergence_nats(probs: Floats, true: Floats) -> Floats:
    divergence: Floats = rel_entr(true, probs).sum(axis=-1)
    return divergence


class _Group(NamedTuple):
    """Sums over a group of several queries: of label probabilities, then numbers of true labels."""

    total: Floats  # [2 * n_labels]
    without_one: Floats  # [n, 2 * n_labels], the sums without each query in turn
    query: Ints  # [n], the queries


def _groups(columns: Floats, query: Ints, group: Ints) -> Iterator[_Group]:
    """Yield each group of several queries. A group that one query fills alone counts as calibrated."""
    totals = np.stack([np.bincount(group, column) for column in columns.T], axis=1)
    order = np.lexsort((query, group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    for start, end in pairwise([*starts, len(order)]):
        rows = order[start:end]
        of_row = query[rows]
        firsts = np.flatnonzero(np.diff(of_row, prepend=-1))  # the first row of each query in the group
        if len(firsts) > 1:
            by_query = np.add.reduceat(columns[rows], firsts)
            yield _Group(totals[group[rows[0]]], _sums_without_one(by_query), of_row[firsts])


def _sums_without_one(rows: Floats) -> Floats:
    """Return the sum of all rows but each in turn, without subtracting: a sum of tiny probabilities must stay exact."""
    before, after = np.zeros_like(rows), np.zeros_like(rows)
    before[1:] = np.cumsum(rows[:-1], axis=0)
    after[:-1] = np.cumsum(rows[:0:-1], axis=0)[::-1]
    return before + after


def _uncertainty(true: Floats, query: Ints, counts: Floats) -> Floats:
    """Return the pseudo-values of the uncertainty."""
    whole = 1 - float(((true.sum(axis=0) / len(true)) ** 2).sum())
    if len(counts) == 1:
        return np.array([whole])
    by_query = np.zeros((len(counts), true.shape[1]))
    np.add.at(by_query, query, true)
    without = 1 - ((_sums_without_one(by_query) / (len(true) - counts)[:, None]) ** 2).sum(axis=1)
    pseudo: Floats = len(counts) * whole - (len(counts) - 1) * without
    return pseudo


def _pseudo_values(total: float, drops: Floats, counts: Floats) -> Floats:
    """Return the jackknife's pseudo-values of total / number of requests, whose mean is the estimate without bias.

    Args:
        total: sum over all requests.
        drops: how much it falls without each query, [n_queries].
        counts: requests of each query.
    """
    n_queries, n_requests = len(counts), float(counts.sum())
    if n_queries == 1:
        return np.array([total / n_requests])
    pseudo: Floats = n_queries * total / n_requests - (n_queries - 1) * (total - drops) / (n_requests - counts)
    return pseudo


def _measured(pseudo_values: Floats, n_queries: int) -> Measured:
    error = float(np.std(pseudo_values, ddof=1)) / math.sqrt(n_queries) if len(pseudo_values) > 1 else None
    value = float(pseudo_values.mean())
    return Measured(value, error, n_queries - 1, "symmetric", lowest=-math.inf, highest=math.inf)
