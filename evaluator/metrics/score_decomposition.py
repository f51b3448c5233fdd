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
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import rel_entr

from evaluator.metrics.calibration_error import N_BINS, confidence_bin
from evaluator.metrics.values import Measured

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
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
    query = np.unique(requests["query_id"].to_numpy(), return_inverse=True)[1]
    confidence = confidence_bin(pl.col("confidence"), last_bin_closed=True)
    group = requests.select(pl.col("pred") * N_BINS + confidence).to_series().to_numpy()
    counts = np.bincount(query).astype(np.float64)

    def mean_pseudo_values(of_requests: Floats) -> Floats:
        sums = np.bincount(query, weights=of_requests).astype(np.float64)
        return _pseudo_values(float(sums.sum()), sums, counts)

    brier = mean_pseudo_values(((probs - true) ** 2).sum(axis=1))
    losses = requests.select(0.0 - pl.col("true_label_prob").log()).to_series().to_numpy()
    is_finite = bool(np.isfinite(losses).all())
    divergences = [_squared_distance, _divergence_nats] if is_finite else [_squared_distance]
    totals = _totals(_groups(probs, true, query, group), divergences, len(counts))
    reliability = _pseudo_values(*totals[0], counts)
    uncertainty = _uncertainty_pseudo_values(true, query, counts)
    parts = {
        "brier_reliability": reliability,
        "brier_resolution": reliability + uncertainty - brier,
        "brier_uncertainty": uncertainty,
    }
    if is_finite:
        calibration = _pseudo_values(*totals[1], counts)
        parts |= {"log_loss_calibration": calibration, "log_loss_refinement": mean_pseudo_values(losses) - calibration}
    else:
        parts |= {"log_loss_calibration": np.array([math.inf]), "log_loss_refinement": np.array([math.nan])}
    return {name: _measured(values, len(counts)) for name, values in parts.items()}


def _squared_distance(probs: Floats, true: Floats) -> Floats:
    n: Floats = true.sum(axis=-1)
    distance: Floats = ((probs - true) ** 2).sum(axis=-1)
    return distance / n


def _divergence_nats(probs: Floats, true: Floats) -> Floats:
    divergence: Floats = rel_entr(true, probs).sum(axis=-1)
    return divergence


class _Group(NamedTuple):
    """Sums over a group of several queries, and over the group without each of these in turn."""

    sums: Floats  # [1, 2 * n_labels]: of label probabilities, then numbers of true labels
    without: Floats  # [n, 2 * n_labels], one row a query
    query: Ints  # [n]


def _totals(groups: Iterable[_Group], divergences: Sequence[Divergence], n_queries: int) -> list[tuple[float, Floats]]:
    """Return of each divergence the sum of what groups add, and how much it falls without each query, [n_queries]."""
    terms = [list[float]() for _ in divergences]
    falls = [np.zeros(n_queries) for _ in divergences]
    for group in groups:
        for divergence, of_groups, fall in zip(divergences, terms, falls, strict=True):
            (of_group,), of_others = (divergence(*np.hsplit(sums, 2)) for sums in (group.sums, group.without))
            of_groups.append(of_group)
            fall[group.query] += of_group - of_others
    return [(float(np.sum(of_groups)), fall) for of_groups, fall in zip(terms, falls, strict=True)]


def _groups(probs: Floats, true: Floats, query: Ints, group: Ints) -> Iterator[_Group]:
    """Yield each group of several queries: only one is in memory. A group of one query counts as calibrated."""
    order = np.lexsort((query, group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    for start, end in pairwise([*starts, len(order)]):
        rows = order[start:end]
        of_row = query[rows]
        firsts = np.flatnonzero(np.diff(of_row, prepend=-1))
        if len(firsts) > 1:
            sums = np.add.reduceat(np.hstack([probs[rows], true[rows]]), firsts)
            yield _Group(np.add.reduceat(sums, [0]), _sums_without_one(sums), of_row[firsts])


def _sums_without_one(rows: Floats) -> Floats:
    """Return the sum of all rows but each in turn, without subtracting: a sum of tiny probabilities must stay exact."""
    before, after = np.zeros_like(rows), np.zeros_like(rows)
    before[1:] = np.cumsum(rows[:-1], axis=0)
    after[:-1] = np.cumsum(rows[:0:-1], axis=0)[::-1]
    return before + after


def _uncertainty_pseudo_values(true: Floats, query: Ints, counts: Floats) -> Floats:
    by_query = np.zeros((len(counts), true.shape[1]))
    np.add.at(by_query, query, true)
    whole = 1 - float(((by_query.sum(axis=0) / len(true)) ** 2).sum())
    if len(counts) == 1:
        return np.array([whole])
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
    n_queries, n_requests = len(counts), counts.sum()
    if n_queries == 1:
        return np.array([total / n_requests])
    pseudo: Floats = n_queries * total / n_requests - (n_queries - 1) * (total - drops) / (n_requests - counts)
    return pseudo


def _measured(pseudo_values: Floats, n_queries: int) -> Measured:
    has_spread = len(pseudo_values) > 1
    standard_error = float(pseudo_values.std(ddof=1)) / math.sqrt(n_queries) if has_spread else None
    return Measured(
        float(pseudo_values.mean()), standard_error, n_queries - 1, "symmetric", lowest=-math.inf, highest=math.inf
    )
