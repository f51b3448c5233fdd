"""Score answers on ordered levels, answers against a distribution of labels, and several yes-or-no questions together.

Each score has a 95% interval and a baseline: the score of answering every row with the mean of all gold answers.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import polars as pl
from scipy.special import rel_entr, xlogy

from evaluator.arrays import Bools, Floats, Ints
from evaluator.errors import MetricError
from evaluator.metrics.classification import IntervalForm, Measured, jackknife
from evaluator.metrics.intervals import with_intervals
from evaluator.statistics.correlation import MIN_POINTS, rank_correlation

Score = Callable[[Any, Any], float]
"""Returns the score of predictions against gold answers, two arrays with one row an answer."""

MAX_BLOCKS = 100
"""Maximum number of blocks of groups; the jackknife leaves out one block at a time."""


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
"""Scores of answers on levels 0, 1, ..., in this order: the mean expected level; the mean absolute difference between
expected and true level; the squared difference between predicted and true cumulative distribution, averaged over all
levels but the last (Epstein 1969), from 0 to 1; Cohen's kappa of the most probable level with quadratic weights (Cohen
1968); Spearman's correlation between expected and true level. Kappa and correlation are 0 where one side is constant;
the correlation is NaN with fewer than three answers."""

SOFT: Mapping[str, Score] = {
    "cross_entropy": lambda probs, gold: float(0.0 - xlogy(gold, probs).sum(axis=1).mean()),
    "kl_divergence": lambda probs, gold: float(rel_entr(gold, probs).sum(axis=1).mean()),
}
"""Scores against a distribution of gold labels, in nats; the lowest cross-entropy is the entropy of the gold labels."""

BRIER: Mapping[str, Score] = {"brier_score": lambda probs, gold: float(((probs - gold) ** 2).sum(axis=1).mean())}
"""The score against a distribution of gold labels that leaves a probability of 0 unchanged, unlike SOFT."""

MULTIPLE: Mapping[str, Score] = {
    "exact_match": lambda yes, gold: float(((yes > 0.5) == gold).all(axis=1).mean()),
    "label_accuracy": lambda yes, gold: float(((yes > 0.5) == gold).mean()),
    "expected_labels": lambda yes, _gold: float(yes.sum(axis=1).mean()),
}
"""Scores of several yes-or-no questions about each row: share of rows whose answers are all right; share of right
answers; expected number of labels (answers yes) a row. With equal probabilities the answer is no, as in accuracies."""

COHERENCE: Mapping[str, Score] = {
    "sum_less_one": lambda yes, _gold: float(np.abs(yes.sum(axis=1) - 1).mean()),
    "single_yes": lambda yes, _gold: float(((yes > 0.5).sum(axis=1) == 1).mean()),
}
"""Scores of questions of which exactly one is true: mean distance of the sum of their probabilities from 1, and share
of rows with exactly one answer yes."""

SHARES = ("exact_match", "label_accuracy", "single_yes")
"""Scores with Wilson's interval; the others have value -+ t x standard error."""


def _limits(score: str, n: int) -> tuple[float, float]:
    """Return the lowest and highest possible value of a score with n levels, labels or questions."""
    highest = dict.fromkeys(("expected_level", "mean_absolute_error", "sum_less_one"), n - 1.0)
    highest |= {"brier_score": 2.0, "expected_labels": float(n)} | dict.fromkeys(SOFT, math.inf)
    return -1.0 if score in ("weighted_kappa", "rank_correlation") else 0.0, highest.get(score, 1.0)


def ordered_scores(probs: Floats, gold: Ints, groups: Ints | None = None) -> pl.DataFrame:
    """Return ORDERED in the columns metric, value, ci_low, ci_high and guess (the score of the mean gold answer).

    Args:
        probs: [n, levels], probabilities.
        gold: [n], the true levels, from 0.
        groups: [n], group of each row; rows of one group are not independent. None: all rows are independent.

    Raises MetricError for levels out of range, no rows, or numbers that are not finite.
    """
    if len(gold) != len(probs) or (len(gold) and not 0 <= gold.min() <= gold.max() < probs.shape[1]):
        raise MetricError(f"gold must be {len(probs)} levels from 0 to {probs.shape[1] - 1}, one for each row.")
    return _table(ORDERED, probs, gold, np.eye(probs.shape[1])[gold], groups)


def soft_scores(probs: Floats, gold_probs: Floats, groups: Ints | None = None) -> pl.DataFrame:
    """Return SOFT and BRIER of two tables [n, labels] of probabilities, in the columns of ordered_scores.

    In SOFT a probability of 0 counts as half of the smallest positive probability, so that scores are finite where a
    service rounds probabilities. Where all probabilities are 0 or 1, the rounding step is unknown: SOFT is then
    infinite if a label with positive gold probability has probability 0.
    """
    least = probs[(probs > 0) & (probs < 1)].min(initial=math.inf) / 2
    positive = np.where((probs == 0) & (least < 1), least, probs)
    tables = ((SOFT, positive), (BRIER, probs))
    return pl.concat(_table(scores, rows, gold_probs, gold_probs, groups) for scores, rows in tables)


def multi_label_scores(yes: Floats, gold: Bools, groups: Ints | None = None, *, one_true: bool = False) -> pl.DataFrame:
    """Return MULTIPLE, and with `one_true` COHERENCE, in the columns of ordered_scores.

    Args:
        yes: [n, questions], probabilities of yes.
        gold: [n, questions], whether yes is true.
        groups: as for ordered_scores.
        one_true: whether exactly one question of a row is true.
    """
    return _table({**MULTIPLE, **(COHERENCE if one_true else {})}, yes, gold, gold, groups)


def _table(scores: Mapping[str, Score], rows: Floats, gold: Any, gold_rows: Any, groups: Ints | None) -> pl.DataFrame:
    """Return each score with its jackknife interval over blocks of groups, and the score of the mean gold row.

    Args:
        rows: predictions, [n, columns].
        gold: gold answers in the form that `scores` take.
        gold_rows: gold answers, [n, columns].
    """
    if not len(rows) or rows.shape != gold_rows.shape or not np.isfinite(rows).all():
        raise MetricError(f"Scores need rows of finite numbers, and as many gold answers; got {rows.shape}.")
    group = np.arange(len(rows)) if groups is None else np.unique(groups, return_inverse=True)[1]
    block, guesses = group % MAX_BLOCKS, np.broadcast_to(gold_rows.mean(axis=0), rows.shape)
    kept = [rest for each in np.unique(block) if (rest := block != each).any()]
    found = []
    for name, score in scores.items():
        value = score(rows, gold)
        error, _ = jackknife(value, np.array([score(rows[rest], gold[rest]) for rest in kept]))
        form: IntervalForm = "score" if name in SHARES else "symmetric"
        measured = Measured(value, error, len(kept) - 1, form, *_limits(name, rows.shape[1]))
        found.append({"metric": name, "guess": score(guesses, gold), "n_queries": len({*group}), **measured._asdict()})
    return with_intervals(pl.DataFrame(found)).select("metric", "value", "ci_low", "ci_high", "guess").fill_nan(None)
