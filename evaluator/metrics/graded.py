"""Score answers on ordered levels, answers against a distribution of labels, and several yes-or-no questions together.

Each score has a 95% interval, and beside it what guessing gives: the distribution of all gold answers for every row.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl
from scipy.special import rel_entr, xlogy

from evaluator.arrays import Bools, Floats, Ints
from evaluator.errors import MetricError
from evaluator.metrics.classification import IntervalForm, Measured
from evaluator.metrics.intervals import jackknife, with_intervals
from evaluator.statistics.correlation import MIN_POINTS, rank_correlation

Score = Callable[[Any, Any], float]
"""Returns a score of predictions and gold answers, with a row for each answer."""

MAX_BLOCKS = 100
"""Blocks of groups that the jackknife leaves out in turn."""


def _level(probs: Floats) -> Floats:
    return probs @ np.arange(probs.shape[1])


def _ranked_probability(probs: Floats, gold: Ints) -> float:
    reached = np.arange(probs.shape[1] - 1) >= gold[:, None]
    return float(((probs.cumsum(axis=1)[:, :-1] - reached) ** 2).mean())


def _weighted_kappa(probs: Floats, gold: Ints) -> float:
    pred = probs.argmax(axis=1)
    by_chance = pred.var() + gold.var() + (pred.mean() - gold.mean()) ** 2
    return 1 - float(((pred - gold) ** 2).mean() / by_chance) if by_chance else 0.0


ORDERED: Mapping[str, Score] = {
    "expected_level": lambda probs, _gold: float(_level(probs).mean()),
    "mean_absolute_error": lambda probs, gold: float(np.abs(_level(probs) - gold).mean()),
    "ranked_probability_score": _ranked_probability,
    "weighted_kappa": _weighted_kappa,
    "rank_correlation": lambda probs, gold: (
        math.nan if len(gold) < MIN_POINTS else rank_correlation(_level(probs), gold.astype(np.float64)).rho or 0.0
    ),
}
"""Scores of levels 0, 1, ...: the mean of the expected level; its mean distance from the true one; the squared
differences of both cumulative distributions, averaged over levels but the last (Epstein 1969), 0 to 1; Cohen's kappa of
the most probable level with quadratic weights (Cohen 1968); Spearman's correlation of the expected level with the true
one. Kappa and correlation are 0 where a side is constant; there is no correlation of fewer than three answers."""

SOFT: Mapping[str, Score] = {
    "cross_entropy": lambda probs, gold: float(0.0 - xlogy(gold, probs).sum(axis=1).mean()),
    "kl_divergence": lambda probs, gold: float(rel_entr(gold, probs).sum(axis=1).mean()),
}
"""Scores against a distribution of gold labels, in nats; the gold's entropy is the least cross-entropy."""

BRIER: Mapping[str, Score] = {"brier_score": lambda probs, gold: float(((probs - gold) ** 2).sum(axis=1).mean())}
"""The score against a distribution of gold labels that takes a probability of 0 as it is."""

MULTIPLE: Mapping[str, Score] = {
    "exact_match": lambda yes, gold: float(((yes > 0.5) == gold).all(axis=1).mean()),
    "label_accuracy": lambda yes, gold: float(((yes > 0.5) == gold).mean()),
    "expected_labels": lambda yes, _gold: float(yes.sum(axis=1).mean()),
}
"""Scores of several yes-or-no questions: rows whose answers are all right, answers that are, and labels of a row. As in
accuracies, the answer is no where both are as probable."""

COHERENCE: Mapping[str, Score] = {
    "sum_less_one": lambda yes, _gold: float(np.abs(yes.sum(axis=1) - 1).mean()),
    "single_yes": lambda yes, _gold: float(((yes > 0.5).sum(axis=1) == 1).mean()),
}
"""Scores of questions of which one is true: distance of the sum of probabilities from 1, and rows with one yes."""

SHARES = ("exact_match", "label_accuracy", "single_yes")
"""Scores whose interval is Wilson's; others have value -+ t x standard error."""


def _limits(score: str, n: int) -> tuple[float, float]:
    """Return the lowest and highest value of a score of n levels, labels or questions."""
    highest = dict.fromkeys(("expected_level", "mean_absolute_error", "sum_less_one"), n - 1.0)
    highest |= {"brier_score": 2.0, "expected_labels": float(n)} | dict.fromkeys(SOFT, math.inf)
    return -1.0 if score in ("weighted_kappa", "rank_correlation") else 0.0, highest.get(score, 1.0)


def ordered_scores(probs: Floats, gold: Ints, groups: Ints | None = None) -> pl.DataFrame:
    """Return ORDERED as metric, value, ci_low, ci_high and guess.

    Args:
        probs: [n, levels].
        gold: [n], the true levels.
        groups: [n], rows that are not independent.
    """
    if len(gold) != len(probs) or (len(gold) and not 0 <= gold.min() <= gold.max() < probs.shape[1]):
        raise MetricError(f"gold must be {len(probs)} levels from 0 to {probs.shape[1] - 1}, one for each row.")
    return _table(ORDERED, probs, gold, np.eye(probs.shape[1])[gold], groups)


def soft_scores(probs: Floats, gold_probs: Floats, groups: Ints | None = None) -> pl.DataFrame:
    """Return SOFT, as ordered_scores does, of two tables [n, labels] of probabilities.

    In SOFT a probability of 0 counts as half of the smallest other one, so that scores are finite where a service
    rounds. Where all are 0 or 1, nothing tells how they were rounded, and a wrong one makes SOFT infinite.
    """
    least = probs[(probs > 0) & (probs < 1)].min(initial=math.inf) / 2
    positive = np.where((probs == 0) & (least < 1), least, probs)
    tables = ((SOFT, positive), (BRIER, probs))
    return pl.concat(_table(scores, rows, gold_probs, gold_probs, groups) for scores, rows in tables)


def multi_label_scores(yes: Floats, gold: Bools, groups: Ints | None = None, *, one_true: bool = False) -> pl.DataFrame:
    """Return MULTIPLE, as ordered_scores does, of [n, questions]; with COHERENCE where exactly one of them is true."""
    return _table({**MULTIPLE, **(COHERENCE if one_true else {})}, yes, gold, gold, groups)


def _table(scores: Mapping[str, Score], rows: Floats, gold: Any, gold_rows: Any, groups: Ints | None) -> pl.DataFrame:
    """Return each score with its jackknife interval over blocks of groups, and the score of the mean gold row."""
    if not len(rows) or rows.shape != gold_rows.shape or not np.isfinite(rows).all():
        raise MetricError(f"Scores need rows of finite numbers, and as many gold answers; got {rows.shape}.")
    group = np.arange(len(rows)) if groups is None else np.unique(groups, return_inverse=True)[1]
    block, guesses = group % MAX_BLOCKS, np.broadcast_to(gold_rows.mean(axis=0), rows.shape)
    kept = [rest for each in np.unique(block) if (rest := block != each).any()]
    found = []
    for name, score in scores.items():
        value = score(rows, gold)
        error = jackknife(value, np.array([score(rows[rest], gold[rest]) for rest in kept])).standard_error
        form: IntervalForm = "score" if name in SHARES else "symmetric"
        measured = Measured(value, error, len(kept) - 1, form, *_limits(name, rows.shape[1]))
        found.append({"metric": name, "guess": score(guesses, gold), "n_queries": len({*group}), **measured._asdict()})
    return with_intervals(pl.DataFrame(found)).select("metric", "value", "ci_low", "ci_high", "guess").fill_nan(None)
