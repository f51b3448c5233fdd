"""How often intervals hold the truth: many runs of one imagined model, whose true values a huge sample gives."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from scipy import stats

from evaluator.metrics.groups import measured_groups
from evaluator.metrics.table import metrics_table
from evaluator.suites.staicc.diagnostics import DIAGNOSTICS
from tests.suites.staicc.diagnostics.part_predictions import Probs, part_predictions

N_RUNS, N_QUERIES, N_LABELS, MANY = 200, 64, 3, 40_000
TWO_STANDARD_ERRORS = 2 * math.sqrt(0.95 * 0.05 / N_RUNS)  # of a share of 95% in so many runs: 0.031
RATES = np.linspace(0, 1, 5)[:, None, None]
TEMPLATES = np.random.default_rng(7).normal(0, 0.4, (9, 1, 1, N_LABELS))  # their pull towards each label

Labels = npt.NDArray[np.int64]
Draw = tuple[Probs, Labels]
"""Label probabilities [noise rate or template, demonstration set, query, label] and gold labels [query]."""


def to_probs(scores: Probs) -> Probs:
    """Softmax, in steps of 2^-20: every sum is exact then, so that no rounding sends `released` through its softmax."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probs = np.round(weights / weights.sum(axis=-1, keepdims=True) * 2**20)
    probs[..., 0] += 2**20 - probs.sum(axis=-1)
    return probs / 2**20


def asked(rng: np.random.Generator, n: int, n_settings: int, n_sets: int) -> Draw:
    """Answers that favour label 2 and read the query a little; those to one query go together."""
    gold = rng.choice(N_LABELS, n, p=[0.5, 0.3, 0.2])
    of_query = rng.normal(size=(1, 1, n, N_LABELS))
    of_request = rng.normal(size=(n_settings, n_sets, n, N_LABELS))
    return of_query + of_request + [0.0, 0.2, 1.0] + np.eye(N_LABELS)[gold], gold


def prior(rng: np.random.Generator, n: int) -> Draw:
    scores, gold = asked(rng, n, 1, 2)
    return to_probs(scores), gold


def templates(rng: np.random.Generator, n: int) -> Draw:
    scores, gold = asked(rng, n, 9, 1)
    return to_probs(scores + TEMPLATES), gold


def demonstration_sets(rng: np.random.Generator, n: int) -> Draw:
    scores, gold = asked(rng, n, 1, 8)
    return to_probs(scores), gold


def noise(rng: np.random.Generator, n: int) -> Draw:
    scores, gold = asked(rng, n, 5, 2)
    return to_probs(scores + (1 - 2 * RATES[..., None]) * np.eye(N_LABELS)[gold]), gold


def mean_entropy(probs: Probs, _gold: Labels) -> float:
    return -float(stats.entropy(probs, axis=-1).mean())


def entropy_of_mean(probs: Probs, _gold: Labels) -> float:
    return float(stats.entropy(probs.mean(axis=(0, 1, 2))))


def divergence(probs: Probs, gold: Labels) -> float:
    return float(stats.entropy(probs.mean(axis=(0, 1, 2)), np.bincount(gold)))


def agreement(probs: Probs, _gold: Labels) -> float:
    pred = probs.argmax(axis=-1).reshape(-1, probs.shape[2])
    return float(max_share(pred).mean())


def max_share(pred: Labels) -> Probs:
    shares: Probs = np.stack([(pred == label).mean(axis=0) for label in range(N_LABELS)]).max(axis=0)
    return shares


def accuracy(probs: Probs, gold: Labels) -> float:
    return float((probs.argmax(axis=-1) == gold).mean())


def accuracy_slope(probs: Probs, gold: Labels) -> float:
    return -float(stats.linregress(RATES.ravel(), (probs.argmax(axis=-1) == gold).mean(axis=(1, 2))).slope)


def true_label_slope(probs: Probs, gold: Labels) -> float:
    of_gold = probs[:, :, np.arange(len(gold)), gold]
    return -float(stats.linregress(RATES.ravel(), of_gold.mean(axis=(1, 2))).slope)


Model = Callable[[np.random.Generator, int], Draw]

CASES: dict[tuple[str, str, Model], dict[str, Callable[[Probs, Labels], float]]] = {
    ("contextual", "paper", prior): {"contextual_bias": mean_entropy},
    ("domain", "released", prior): {"domain_bias": entropy_of_mean},
    ("normal", "paper", prior): {"empirical_bias": divergence},
    ("template", "paper", templates): {"template_consistency": agreement},
    ("sampling", "paper", demonstration_sets): {
        "sampling_consistency": agreement,
        "accuracy_mean_over_demonstration_sets": accuracy,
    },
    ("gler", "paper", noise): {"gler": accuracy_slope, "gler_true_label_probability": true_label_slope},
}


DISTANCES = ("domain_bias", "empirical_bias")
HEADLINES = [replace(each, varies=None) for each in DIAGNOSTICS if each.metric]  # without tables of what varies


def runs(part: str, definition: str, model: Model) -> pl.DataFrame:
    """Metrics of all runs, each a suite of its own."""
    rng = np.random.default_rng(11)
    frames = [part_predictions(part, *model(rng, N_QUERIES), definition, suite=str(run)) for run in range(N_RUNS)]
    groups = measured_groups(pl.concat(frames), (), HEADLINES)
    return metrics_table(groups).filter(dataset="a", definition=definition)


def coverage(table: pl.DataFrame, metric: str, truth: float) -> float:
    held: float = table.filter(metric=metric).select(pl.lit(truth).is_between("ci_low", "ci_high").mean()).item()
    return held


@pytest.mark.parametrize(
    ("case", "measures"),
    [
        # tests/metrics/test_interval_coverage.py simulates slopes, shares that agree, and divergences as well.
        pytest.param(*each, id=each[0][0], marks=[] if each[0][2] is prior else pytest.mark.exhaustive)
        for each in CASES.items()
    ],
)
def test_intervals_hold_the_truth_about_as_often_as_they_say(
    case: tuple[str, str, Model], measures: dict[str, Callable[[Probs, Labels], float]]
) -> None:
    probs, gold = case[2](np.random.default_rng(5), MANY)
    table = runs(*case)
    held = {metric: coverage(table, metric, measure(probs, gold)) for metric, measure in measures.items()}
    for metric, share in held.items():
        assert share >= 0.95 - TWO_STANDARD_ERRORS
        # Distances from no bias are given at least 95%, because no interval is exact at that limit and far from it.
        assert metric in DISTANCES or share <= 0.95 + TWO_STANDARD_ERRORS
