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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import rel_entr

from evaluator.metrics.calibration_error import N_BINS, confidence_bin
from evaluator.metrics.intervals import Spread
from evaluator.metrics.pieces import Pieces, in_pieces
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


def score_parts(requests: pl.DataFrame | Pieces[pl.DataFrame], n_labels: int) -> dict[str, Measured]:
    """Return SCORE_PARTS with their standard errors, by a jackknife over queries.

    Args:
        requests: per_request.per_request_columns of one dataset and method.

    Where the log loss is infinite, so is its calibration, and its refinement is undefined (NaN).
    """
    pieces = in_pieces(requests).map(lambda rows: _Requests.of(rows, n_labels))
    totals = _Totals.of([_Sums.of(piece) for piece in pieces])
    spreads = {name: Spread() for name in SCORE_PARTS}
    for number, piece in enumerate(pieces):
        for name, values in _pseudo_values(piece, totals, number).items():
            spreads[name].add(values)
    without_loss = {"log_loss_calibration": math.inf, "log_loss_refinement": math.nan}
    undefined = {} if math.isfinite(totals.sums.loss) else without_loss
    return {
        name: _measured_alone(undefined[name], totals.sums.n_queries) if name in undefined else _measured(spread)
        for name, spread in spreads.items()
    }


class _Requests(NamedTuple):
    """Requests of some queries."""

    probs: Floats  # [n, n_labels]
    true: Floats  # [n, n_labels], 1 for the true label
    loss: Floats  # [n], log loss in nats
    query: Ints  # [n], number of the query among these
    counts: Floats  # [n_queries], requests of each query
    group: Ints  # [n], in which it is compared with others
    order: Ints  # [n], requests by group and query

    @classmethod
    def of(cls, rows: pl.DataFrame, n_labels: int) -> "_Requests":
        query = np.unique(rows["query_id"].to_numpy(), return_inverse=True)[1]
        confidence = confidence_bin(pl.col("confidence"), last_bin_closed=True)
        group = rows.select(pl.col("pred") * N_BINS + confidence).to_series().to_numpy()
        return cls(
            probs=rows.select(f"p{label}" for label in range(n_labels)).to_numpy(),
            true=np.eye(n_labels)[rows["gold"].to_numpy()],
            loss=rows.select(0.0 - pl.col("true_label_prob").log()).to_series().to_numpy(),
            query=query,
            counts=np.bincount(query).astype(np.float64),
            group=group,
            order=np.lexsort((query, group)),
        )

    @property
    def brier(self) -> Floats:
        """Return the Brier score of each request."""
        score: Floats = ((self.probs - self.true) ** 2).sum(axis=1)
        return score

    def of_query(self, of_requests: Floats) -> Floats:
        """Return the sum over the requests of each query, [n_queries] or [n_queries, n_labels]."""
        if of_requests.ndim == 1:
            return np.bincount(self.query, weights=of_requests, minlength=len(self.counts)).astype(np.float64)
        sums = np.zeros((len(self.counts), of_requests.shape[1]))
        np.add.at(sums, self.query, of_requests)
        return sums

    def groups(self) -> "Iterator[_Group]":
        """Yield each group, with the sums of its queries: only one is in memory."""
        starts = np.flatnonzero(np.diff(self.group[self.order], prepend=-1))
        for start, end in pairwise([*starts, len(self.order)]):
            rows = self.order[start:end]
            of_row = self.query[rows]
            firsts = np.flatnonzero(np.diff(of_row, prepend=-1))
            sums = np.add.reduceat(np.hstack([self.probs[rows], self.true[rows]]), firsts)
            yield _Group(int(self.group[rows[0]]), of_row[firsts], sums)


class _Group(NamedTuple):
    """The queries of a group."""

    number: int
    query: Ints  # [n]
    sums: Floats  # [n, 2 * n_labels]: of label probabilities, then numbers of true labels


class _Sums(NamedTuple):
    """Sums over some queries."""

    n_queries: int
    n_requests: float
    true: Floats  # [n_labels]
    brier: float
    loss: float
    in_group: Floats  # [groups, 2 * n_labels]
    n_in_group: Ints  # [groups], queries

    @classmethod
    def of(cls, requests: _Requests) -> "_Sums":
        n_groups = requests.probs.shape[1] * N_BINS
        columns = [*requests.probs.T, *requests.true.T]
        group, query = requests.group[requests.order], requests.query[requests.order]
        is_first = (np.diff(group, prepend=-1) != 0) | (np.diff(query, prepend=-1) != 0)  # of its query in the group
        return cls(
            n_queries=len(requests.counts),
            n_requests=float(requests.counts.sum()),
            true=requests.true.sum(axis=0),
            brier=float(requests.of_query(requests.brier).sum()),
            loss=float(requests.of_query(requests.loss).sum()),
            in_group=np.stack([np.bincount(requests.group, column, n_groups) for column in columns], axis=1),
            n_in_group=np.bincount(group[is_first], minlength=n_groups),
        )


class _Totals(NamedTuple):
    """Sums over all queries, and over all but those of each piece."""

    sums: _Sums
    true_elsewhere: Floats  # [pieces, n_labels]
    in_group_elsewhere: Floats  # [pieces, groups, 2 * n_labels]

    @classmethod
    def of(cls, pieces: Sequence[_Sums]) -> "_Totals":
        columns = _Sums(*map(np.stack, zip(*pieces, strict=True)))  # type: ignore[arg-type]
        n_queries, n_requests, true, brier, loss, in_group, n_in_group = (np.sum(each, axis=0) for each in columns)
        sums = _Sums(int(n_queries), float(n_requests), true, float(brier), float(loss), in_group, n_in_group)
        return cls(sums, _sums_without_one(columns.true), _sums_without_one(columns.in_group))

    def divergence(self, divergence: Divergence) -> float:
        """Return the sum of what groups add. A group of one query counts as calibrated."""
        several = self.sums.in_group[self.sums.n_in_group > 1]
        return float(np.sum(divergence(*np.hsplit(several, 2))))


def _pseudo_values(requests: _Requests, totals: _Totals, piece: int) -> dict[str, Floats]:
    """Return the jackknife's pseudo-values of SCORE_PARTS for the queries of a piece."""
    jackknife = partial(
        _jackknife, n_queries=totals.sums.n_queries, n_requests=totals.sums.n_requests, counts=requests.counts
    )
    divergences = {"reliability": _squared_distance}
    if math.isfinite(totals.sums.loss):
        divergences["calibration"] = _divergence_nats
    falls = _falls(requests, totals, piece, divergences)
    lost = {name: jackknife(totals.divergence(divergence), falls[name]) for name, divergence in divergences.items()}
    brier = jackknife(totals.sums.brier, requests.of_query(requests.brier))
    uncertainty = _uncertainty(requests, totals, piece)
    parts = {
        "brier_reliability": lost["reliability"],
        "brier_resolution": lost["reliability"] + uncertainty - brier,
        "brier_uncertainty": uncertainty,
    }
    if "calibration" in lost:
        loss = jackknife(totals.sums.loss, requests.of_query(requests.loss))
        parts |= {"log_loss_calibration": lost["calibration"], "log_loss_refinement": loss - lost["calibration"]}
    return parts


def _squared_distance(probs: Floats, true: Floats) -> Floats:
    n: Floats = true.sum(axis=-1)
    distance: Floats = ((probs - true) ** 2).sum(axis=-1)
    return distance / n


def _divergence_nats(probs: Floats, true: Floats) -> Floats:
    divergence: Floats = rel_entr(true, probs).sum(axis=-1)
    return divergence


def _falls(
    requests: _Requests, totals: _Totals, piece: int, divergences: Mapping[str, Divergence]
) -> dict[str, Floats]:
    """Return how much the sum of each divergence over groups falls without each query of a piece, [n_queries]."""
    falls = {name: np.zeros(len(requests.counts)) for name in divergences}
    for group in requests.groups():
        if totals.sums.n_in_group[group.number] < 2:
            continue
        of_all = totals.sums.in_group[group.number][None]
        without = _sums_without_one(group.sums) + totals.in_group_elsewhere[piece, group.number]
        for name, divergence in divergences.items():
            (of_group,), of_others = (divergence(*np.hsplit(sums, 2)) for sums in (of_all, without))
            falls[name][group.query] += of_group - of_others
    return falls


def _sums_without_one(rows: Floats) -> Floats:
    """Return the sum of all rows but each in turn, without subtracting: a sum of tiny probabilities must stay exact."""
    before, after = np.zeros_like(rows), np.zeros_like(rows)
    before[1:] = np.cumsum(rows[:-1], axis=0)
    after[:-1] = np.cumsum(rows[:0:-1], axis=0)[::-1]
    return before + after


def _uncertainty(requests: _Requests, totals: _Totals, piece: int) -> Floats:
    """Return the pseudo-values of the uncertainty."""
    whole = 1 - float(((totals.sums.true / totals.sums.n_requests) ** 2).sum())
    if totals.sums.n_queries == 1:
        return np.array([whole])
    others = _sums_without_one(requests.of_query(requests.true)) + totals.true_elsewhere[piece]
    without = 1 - ((others / (totals.sums.n_requests - requests.counts)[:, None]) ** 2).sum(axis=1)
    pseudo: Floats = totals.sums.n_queries * whole - (totals.sums.n_queries - 1) * without
    return pseudo


def _jackknife(total: float, drops: Floats, *, n_queries: int, n_requests: float, counts: Floats) -> Floats:
    """Return the jackknife's pseudo-values of total / number of requests, whose mean is the estimate without bias.

    Args:
        total: sum over all requests.
        drops: how much it falls without each query of a piece.
        n_queries, n_requests: in all.
        counts: requests of each query of the piece.
    """
    if n_queries == 1:
        return np.array([total / n_requests])
    pseudo: Floats = n_queries * total / n_requests - (n_queries - 1) * (total - drops) / (n_requests - counts)
    return pseudo


def _measured(pseudo_values: Spread) -> Measured:
    n = pseudo_values.n
    standard_error = pseudo_values.standard_deviation(ddof=1) / math.sqrt(n) if n > 1 else None
    return _measured_alone(pseudo_values.mean, n)._replace(standard_error=standard_error)


def _measured_alone(value: float, n_queries: int) -> Measured:
    return Measured(value, None, n_queries - 1, "symmetric", lowest=-math.inf, highest=math.inf)
