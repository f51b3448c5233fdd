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
    groups = _groups(probs, true, query, group)
    reliability = _pseudo_values(*groups.totals(_squared_distance, len(counts)), counts)
    uncertainty = _uncertainty_pseudo_values(true, query, counts)
    parts = {
        "brier_reliability": reliability,
        "brier_resolution": reliability + uncertainty - brier,
        "brier_uncertainty": uncertainty,
    }
    losses = requests.select(0.0 - pl.col("true_label_prob").log()).to_series().to_numpy()
    if np.isfinite(losses).all():
        calibration = _pseudo_values(*groups.totals(_divergence_nats, len(counts)), counts)
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


class _Groups(NamedTuple):
    """Sums over the groups of several queries, and over these groups without each of their queries in turn."""

    probs: Floats  # [n_groups, n_labels], sums of label probabilities
    true: Floats  # [n_groups, n_labels], numbers of true labels
    probs_without: Floats  # [n_pairs, n_labels], one row for each group and query in it
    true_without: Floats
    group: Ints  # [n_pairs]
    query: Ints  # [n_pairs]

    def totals(self, divergence: Divergence, n_queries: int) -> tuple[float, Floats]:
        """Return the sum over groups of what each adds, and how much it falls without each query, [n_queries]."""
        of_groups = divergence(self.probs, self.true)
        drops = of_groups[self.group] - divergence(self.probs_without, self.true_without)
        by_query = np.bincount(self.query, weights=drops, minlength=n_queries).astype(np.float64)
        return float(of_groups.sum()), by_query


def _groups(probs: Floats, true: Floats, query: Ints, group: Ints) -> _Groups:
    order = np.lexsort((query, group))
    query, group = query[order], group[order]
    pair_starts = np.flatnonzero(np.diff(group, prepend=-1) | np.diff(query, prepend=-1))
    sums = np.add.reduceat(np.hstack([probs, true])[order], pair_starts)
    query, group = query[pair_starts], group[pair_starts]
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    sizes = np.diff(starts, append=len(group))
    without = np.empty_like(sums)
    for start, size in zip(starts, sizes, strict=True):
        without[start : start + size] = _sums_without_one(sums[start : start + size])
    several = sizes > 1  # a group of one query counts as calibrated
    pairs = np.repeat(several, sizes)
    whole, left = np.add.reduceat(sums, starts)[several], without[pairs]
    n_labels = probs.shape[1]
    return _Groups(
        probs=whole[:, :n_labels],
        true=whole[:, n_labels:],
        probs_without=left[:, :n_labels],
        true_without=left[:, n_labels:],
        group=np.repeat(np.arange(several.sum()), sizes[several]),
        query=query[pairs],
    )


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
