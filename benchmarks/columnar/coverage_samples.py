"""Simulate the coverage of intervals under models of answers with a known true value.

A public function with a return type Simulate returns the simulation of one quantity under one model of answers.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import stats
from scipy.special import expit

from evaluator.arrays import Floats
from evaluator.metrics.intervals import (
    EXTRA_VARIANCE,
    Bins,
    calibration_errors,
    distances,
    freedom,
    total_standard_error,
    two_way_standard_error,
    with_intervals,
)
from evaluator.statistics.paired import adjusted_estimate, interval, mean_estimate, paired_test
from evaluator.statistics.variance_components import variance_components
from evaluator.suites.in_context_pvi.demonstration_choice import difference_from_draws
from evaluator.suites.prompt_search.tables import simultaneous_limits
from evaluator.templates.template import ORTHOGONAL_ARRAY


class Coverage(NamedTuple):
    """The share of intervals that contain the true value."""

    share: float
    n_runs: int  # number of samples; 0 if the share was computed exactly


Simulate = Callable[[np.random.Generator, int, int], Coverage]
"""Function of random generator, number of queries and number of runs that returns the coverage."""


def held(low: npt.ArrayLike, high: npt.ArrayLike, truth: float) -> Coverage:
    """Return the share of intervals that contain the true value, with a tolerance for rounding errors."""
    inside = (np.asarray(low) <= truth + 1e-12) & (truth - 1e-12 <= np.asarray(high))
    return Coverage(float(inside.mean()), inside.size)


def limits(
    value: Floats,
    error: Floats,
    degrees: npt.ArrayLike,
    n_queries: int,
    form: str = "score",
    ends: tuple[float, float] | None = None,
) -> tuple[Floats, Floats]:
    """Return the lower and upper limits that metrics.intervals computes, both [n_runs].

    Args:
        value, error: [n_runs], estimates and their standard errors.
        degrees: degrees of freedom, one number or [n_runs].
        n_queries: number of queries.
        form: form of the interval: "score" for shares, "symmetric" for any numbers, "log" for positive numbers.
        ends: smallest and largest possible value; None: 0 and 1 for "score", no limits for other forms.
    """
    lowest, highest = ends or ((0.0, 1.0) if form == "score" else (-np.inf, np.inf))
    rows = pl.DataFrame({"value": value, "standard_error": error}).with_columns(
        degrees_of_freedom=pl.Series(np.broadcast_to(np.asarray(degrees, dtype=np.float64), value.shape)),
        n_queries=pl.lit(float(n_queries)),
        interval=pl.lit(form),
        lowest=pl.lit(lowest),
        highest=pl.lit(highest),
    )
    low, high = with_intervals(rows).select("ci_low", "ci_high")
    return low.to_numpy(), high.to_numpy()


# Accuracies


def accuracy(share: float) -> Simulate:
    """Return the exact coverage for an accuracy with one demonstration set, whose count is binomial."""

    def simulate(_rng: np.random.Generator, n: int, _n_runs: int) -> Coverage:
        correct = np.arange(n + 1)
        value = correct / n
        low, high = limits(value, np.sqrt(value * (1 - value) / (n - 1)), n - 1, n)
        inside = (low <= share) & (share <= high)
        return Coverage(float(stats.binom.pmf(correct, n, share)[inside].sum()), 0)

    return simulate


def accuracy_of_two_sets(share: float, spread: float) -> Simulate:
    """Simulate an accuracy with two demonstration sets per query; with probability `spread` the second answer equals
    the first."""

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        first = rng.random((n_runs, n)) < share
        second = np.where(rng.random((n_runs, n)) < spread, first, rng.random((n_runs, n)) < share)
        means = (first + second.astype(np.float64)) / 2
        value = means.mean(axis=1)
        return held(*limits(value, means.std(axis=1, ddof=1) / np.sqrt(n), n - 1, n), share)

    return simulate


def batch_calibrated(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
    """Simulate the accuracy of batch calibration with two labels, on batches of 128 prompts, or of all if fewer.

    The mean probability of the batch is the decision threshold.
    """

    def answers(n_queries: int, runs: int) -> npt.NDArray[np.bool_]:
        gold = rng.random((runs, n_queries)) < 0.5
        probability = 1 / (1 + np.exp(-(2.0 * (gold - 0.5) + 0.8 + rng.normal(0, 1.2, gold.shape))))
        batch = min(n_queries, 128)
        batches = probability.reshape(runs, -1, batch)
        mean = batches.mean(axis=2, keepdims=True)
        predicted = batches / mean > (1 - batches) / (1 - mean)
        return np.asarray(predicted.reshape(gold.shape) == gold)

    # The true value is the expected accuracy on batches of this size.
    batch = min(n, 128)
    truth = float(np.mean([answers(batch, 20_000).mean() for _ in range(5)]))
    right = answers(n, n_runs)
    value = right.mean(axis=1)
    return held(*limits(value, np.sqrt(value * (1 - value) / (n - 1)), n - 1, n), truth)


def trained(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
    """Simulate the accuracy of the nearest of two label means, from 16 labelled points in five dimensions per run."""

    def accuracies(n_queries: int, runs: int) -> Floats:
        gold = rng.integers(0, 2, (runs, n_queries))
        centres = np.stack([rng.normal(0, 1, (runs, 8, 5)).mean(axis=1) + 0.5 * label for label in (0, 1)], axis=1)
        points = rng.normal(0, 1, (runs, n_queries, 5)) + 0.5 * gold[..., None]
        nearest = ((points[:, :, None] - centres[:, None]) ** 2).sum(axis=3).argmin(axis=2)
        return np.asarray((nearest == gold).mean(axis=1))

    truth, value = float(accuracies(50, 20_000).mean()), accuracies(n, n_runs)
    return held(*limits(value, np.sqrt(value * (1 - value) / (n - 1)), n - 1, n), truth)


# Calibration error and label biases


def confident(kind: str, shift: float) -> Callable[[np.random.Generator, tuple[int, ...]], tuple[Floats, Floats]]:
    """Return a function that draws confidences, and probabilities of being right that are lower by `shift`.

    Args:
        kind: distribution of confidences: "even", "high" or "one value".
    """

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
        if kind == "even":
            confidence = rng.uniform(0.5, 1, shape)
        else:
            confidence = rng.beta(20, 1.5, shape).clip(0.5) if kind == "high" else np.full(shape, 0.997)
        return confidence, np.clip(confidence - shift, 0.02, 1)

    return draw


def binned(confidence: Floats, right: npt.NDArray[np.bool_]) -> Bins:
    """Return the calibration bins, [run, bin], of answers with one request per query, [run, query]."""
    n_runs, n = confidence.shape
    place = np.minimum((confidence * 10).astype(int), 9) + 10 * np.arange(n_runs)[:, None]

    def sums(weights: npt.ArrayLike) -> Floats:
        flat = np.asarray(weights, dtype=np.float64).ravel()
        return np.asarray(np.bincount(place.ravel(), flat, minlength=10 * n_runs).reshape(n_runs, 10), dtype=np.float64)

    counts = sums(np.ones_like(confidence))
    some = np.maximum(counts, 1)
    share = counts / n
    extra = EXTRA_VARIANCE * share / n**2
    return Bins(share, sums(right) / some, sums(confidence) / some, counts, extra)


def calibration(kind: str, shift: float, n_datasets: int = 1) -> Simulate:
    """Simulate the calibration error of one dataset, or its mean over several datasets of equal size."""
    draw = confident(kind, shift)

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        confidence, chance = draw(rng, (1, 1_000_000))
        places = np.minimum((confidence[0] * 10).astype(int), 9)
        truth = float(np.abs(np.bincount(places, (chance - confidence)[0])).sum() / confidence.size)
        parts = []
        for _ in range(n_datasets):
            confidence, chance = draw(rng, (n_runs, n))
            parts.append(binned(confidence, rng.random((n_runs, n)) < chance))
        fields = [np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True)]
        bins = Bins(*fields)
        found = calibration_errors(bins._replace(share=bins.share / n_datasets, extra=bins.extra / n_datasets**2))
        return held(found.ci_low, found.ci_high, truth)

    return simulate


def divergence(n_labels: int, tilt: float) -> Simulate:
    """Simulate the empirical bias: the divergence of mean label probabilities from the shares of gold labels.

    With tilt 0 both have the same expectation; a larger tilt raises the probabilities of later labels.
    """

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
        probs = rng.dirichlet(np.full(n_labels, 2.0), shape)
        gold = (probs.cumsum(axis=-1) > rng.random((*shape, 1))).argmax(axis=-1)
        tilted = probs * np.exp(tilt * np.arange(n_labels))
        return tilted / tilted.sum(axis=-1, keepdims=True), np.eye(n_labels)[gold]

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        probs, gold = draw(rng, (400_000,))
        truth = float(stats.entropy(probs.mean(axis=0), gold.mean(axis=0))) if tilt else 0.0
        probs, gold = draw(rng, (n_runs, n))
        # Divergence of every run, and its jackknife values without one query; runs with an absent label are left out.
        with np.errstate(divide="ignore"):
            value = stats.entropy(probs.mean(axis=1), gold.mean(axis=1), axis=1)
            others = [(each.sum(axis=1, keepdims=True) - each) / (n - 1) for each in (probs, gold)]
            without_one = stats.entropy(*others, axis=2)
        defined = np.isfinite(without_one).all(axis=1)
        value, without_one = value[defined], without_one[defined]
        bias, error = (n - 1) * (without_one.mean(axis=1) - value), without_one.std(axis=1) * np.sqrt(n - 1)
        scale = (probs.mean(axis=1) + gold.mean(axis=1)) / 2
        free = np.array([freedom(p - g, s) for p, g, s in zip(probs, gold, scale, strict=True)])[defined]
        found = distances(value, bias, error, np.full(len(value), n - 1.0), free)
        return held(found.ci_low, found.ci_high, truth)

    return simulate


# Templates, demonstration sets and prompts as samples


def crossed_answers(
    rng: np.random.Generator, n: int, of_level: Floats, of_query: float, mean: float = 0.6
) -> npt.NDArray[np.bool_]:
    """Draw whether answers are right, [query, level].

    Args:
        n: number of queries.
        of_level: [level], effects of levels on the probability of a right answer.
        of_query: size of the effect of a query, which is positive or negative at random.
        mean: mean probability of a right answer.
    """
    ease = mean + of_query * rng.choice([-1.0, 1.0], (n, 1)) + of_level
    return np.asarray(rng.random((n, len(of_level))) < ease)


def attribute_effects(rng: np.random.Generator, spread: float, attributes: int = 4) -> Floats:
    """Draw the effects of nine templates, [9], which are sums of the effects of four attributes with three values.

    Args:
        spread: standard deviation of the effect of a template.
        attributes: number of attributes that have an effect. The effects of a single attribute are normal, because
            three draws from two values are often equal, and then do not show how effects vary.
    """
    drawn = rng.normal(0, 1, (4, 3)) if attributes == 1 else rng.choice([-1.0, 1.0], (4, 3))
    values = drawn * spread / attributes**0.5
    values[attributes:] = 0.0
    return np.asarray(
        sum(values[column][list(levels)] for column, levels in enumerate(zip(*ORTHOGONAL_ARRAY, strict=True)))
    )


def over_templates(spread: float, *, one_template: bool, attributes: int = 4) -> Simulate:
    """Simulate the mean accuracy over nine templates, or the accuracy with one template as that of any template.

    The templates form an orthogonal array.
    """

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        values, errors, degrees = [], [], []
        for _ in range(n_runs):
            cells = crossed_answers(rng, n, attribute_effects(rng, spread, attributes), 0.15).astype(np.float64)
            first = cells[:, 0]
            error, free = (
                total_standard_error(float(first.std(ddof=1)) / n**0.5, n - 1, cells, ORTHOGONAL_ARRAY)
                if one_template
                else two_way_standard_error(cells, ORTHOGONAL_ARRAY)
            )
            values.append((first if one_template else cells).mean())
            errors.append(error or 0.0)
            degrees.append(free)
        return held(*limits(np.array(values), np.array(errors), degrees, n), 0.6)

    return simulate


def over_sets(n_sets: int, spread: float) -> Simulate:
    """Simulate V-information, with queries and demonstration sets, which all queries share, as random samples."""

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        found = []
        for _ in range(n_runs):
            cells = rng.normal(0, 1, (n, 1)) + rng.normal(0, spread, n_sets) + rng.normal(0, 1, (n, n_sets))
            found.append((cells.mean(), *two_way_standard_error(cells)))
        value, error, degrees = (np.array(column, dtype=np.float64) for column in zip(*found, strict=True))
        return held(*limits(value, error, degrees, n, "symmetric"), 0.0)

    return simulate


def right_over_sets(n_sets: int, spread: float) -> Simulate:
    """Simulate accuracy, with queries and shared demonstration sets as random samples.

    Both have normal effects on the log odds of a right answer, with standard deviations 1 and `spread`.
    """

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        truth = float(expit(0.8 + rng.normal(0, math.hypot(1, spread), 4_000_000)).mean())
        found = []
        for _ in range(n_runs):
            chance = expit(0.8 + rng.normal(0, 1, (n, 1)) + rng.normal(0, spread, n_sets))
            cells = (rng.random((n, n_sets)) < chance).astype(np.float64)
            found.append((cells.mean(), *two_way_standard_error(cells)))
        value, error, degrees = (np.array(column, dtype=np.float64) for column in zip(*found, strict=True))
        return held(*limits(value, error, degrees, n), truth)

    return simulate


# Paired differences


def _paired(samples: Sequence[Sequence[Floats]], truth: float) -> Coverage:
    """Return the coverage of intervals of the mean difference over datasets.

    Args:
        samples: per run, the paired differences of every dataset, [query].
        truth: true mean difference.
    """
    ends = []
    for datasets in samples:
        estimates = [adjusted_estimate(d, 2 / len(datasets)) for d in datasets]
        p_value = paired_test(np.concatenate(datasets)).p_value
        difference = float(np.mean([d.mean() for d in datasets]))
        ends.append(interval(difference, mean_estimate(estimates), p_value))
    low, high = zip(*ends, strict=True)
    return held(low, high, truth)


def paired_mean(better: float, worse: float, n_datasets: int = 10) -> Simulate:
    """Simulate the difference of two accuracies, mean over datasets, with one prompt per query.

    Args:
        better, worse: shares of queries that only the first, or only the second, model answers right.
        n_datasets: number of datasets.
    """

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        drawn = rng.choice([1.0, -1.0, 0.0], (n_runs, n_datasets, n), p=[better, worse, 1 - better - worse])
        return _paired([list(run) for run in drawn], better - worse)

    return simulate


def paired_accuracies(better: float, worse: float) -> Simulate:
    """Simulate the difference of two accuracies on the same queries of one dataset."""
    return paired_mean(better, worse, n_datasets=1)


def paired_probabilities(kind: str) -> Simulate:
    """Simulate the mean difference of true-label probabilities: normal, skewed, or 0 for most queries."""

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        if kind == "normal":
            return rng.normal(0.02, 0.1, shape)
        if kind == "skewed":
            return rng.beta(0.2, 2, shape)
        return rng.exponential(0.3, shape).clip(0, 1) * (rng.random(shape) < 0.05)

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        truth = float(draw(rng, (4_000_000,)).mean())
        return _paired([[run] for run in draw(rng, (n_runs, n))], truth)

    return simulate


def chosen_sets(n_sets: int, of_choice: float) -> Simulate:
    """Simulate the difference between chosen and drawn demonstrations.

    The effects of drawn sets have standard deviation 0.6, the effect of the chosen set `of_choice`.
    """

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        found = []
        for _ in range(n_runs):
            easy = rng.normal(0, 1, (n, 1))
            drawn = easy + rng.normal(0, 0.6, n_sets) + rng.normal(0, 1, (n, n_sets))
            chosen = easy + rng.normal(0, of_choice) + rng.normal(0, 1, (n, 1))
            found.append(difference_from_draws(chosen, drawn)[1][:3])
        value, error, degrees = (np.array(column, dtype=np.float64) for column in zip(*found, strict=True))
        return held(*limits(value, error, degrees, n, "symmetric"), 0.0)

    return simulate


def over_prompts(spread: float, *, best: bool) -> Simulate:
    """Simulate a search over 50 prompts: the mean accuracy, or the true accuracy of the prompt that is best."""

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        inside, means = [], []
        for _ in range(n_runs):
            of_prompt = spread * rng.choice([-1.0, 1.0], 50)
            cells = crossed_answers(rng, n, of_prompt, 0.2).astype(np.float64)
            if best:
                winner = int(cells.mean(axis=0).argmax())
                low, high = simultaneous_limits(int(cells[:, winner].sum()), n, 50)
                inside.append(low <= 0.6 + of_prompt[winner] <= high)
            else:
                means.append((cells.mean(), *two_way_standard_error(cells)))
        if best:
            return Coverage(float(np.mean(inside)), n_runs)
        value, error, degrees = (np.array(column, dtype=np.float64) for column in zip(*means, strict=True))
        return held(*limits(value, error, degrees, n), 0.6)

    return simulate


def component(name: str, truth: float) -> Simulate:
    """Simulate a variance component of answers with nine templates and two demonstration sets per query.

    Args:
        name: component, as variance_components calls it.
        truth: true value; not used for the residual, which depends on the drawn templates.
    """

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        inside = []
        for _ in range(n_runs):
            query, draw = rng.choice([-0.2, 0.2], (n, 1, 1)), rng.choice([-0.1, 0.1], (n, 1, 2))
            of_level = attribute_effects(rng, 0.1)
            ease = 0.5 + query + draw + of_level[None, :, None]
            found = variance_components((rng.random((n, 9, 2)) < ease) * 1.0, ORTHOGONAL_ARRAY)[name]
            # The residual variance of right and wrong answers is the mean of p (1 - p), here for the drawn templates.
            true = 0.2 - float((of_level**2).mean()) if name == "residual" else truth
            inside.append(found.ci_low <= true <= found.ci_high)
        return Coverage(float(np.mean(inside)), n_runs)

    return simulate
