"""Simulate the coverage of intervals of other metrics than accuracy: means, macro-F1, consistency, slopes, thresholds.

A public function with a return type Simulate returns the simulation of one metric under one model of answers.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.special import softmax

from benchmarks.columnar.coverage_samples import Coverage, Simulate, held, limits
from evaluator.arrays import Floats, Ints
from evaluator.metrics.table import quantile_interval
from evaluator.statistics import selective
from evaluator.statistics.correlation import least_squares
from evaluator.suites.staicc.robustness import NOISE_RATES, slope_weights

MODELS = {"good": (2.0, 1.5), "confident and poor": (0.5, 4.0)}
"""Model -> number that is added to the score of the true label, and factor by which all scores are multiplied."""

GOLD_SHARES = [0.6, 0.3, 0.1]
RATES = np.array(NOISE_RATES)


def answered(rng: np.random.Generator, shape: tuple[int, ...], model: str) -> tuple[Floats, Ints]:
    """Draw label probabilities, [*shape, label], and gold labels, shape `shape`, of a model in MODELS."""
    gold = rng.choice(3, shape, p=GOLD_SHARES)
    skill, sharpness = MODELS[model]
    scores = rng.normal(size=(*shape, 3)) + skill * np.eye(3)[gold]
    return softmax(sharpness * scores, axis=-1), gold


def of_means(values: Floats, truth: float, form: str = "score", highest: float = 1.0) -> Coverage:
    """Compute intervals of means over queries and their coverage.

    Args:
        values: [run, query].
        truth: expected value.
        form, highest: form of the interval and largest possible value; the smallest is 0.
    """
    n = values.shape[1]
    mean, error = values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(n)
    return held(*limits(mean, error, n - 1, n, form, (0.0, highest)), truth)


def mean_metric(name: str, model: str) -> Simulate:
    """Simulate the mean over queries of the probability of the true label, the Brier score, or the log loss."""
    form, highest = {"Brier": ("score", 2.0), "log": ("log", np.inf)}.get(name.split()[0], ("score", 1.0))

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        probs, gold = answered(rng, shape, model)
        true = np.take_along_axis(probs, gold[..., None], axis=-1)[..., 0]
        brier = ((probs - np.eye(3)[gold]) ** 2).sum(axis=-1)
        return np.asarray({"Brier score": brier, "log loss": -np.log(true)}.get(name, true))

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        truth = float(draw(rng, (1_000_000,)).mean())
        return of_means(draw(rng, (n_runs, n)), truth, form, highest)

    return simulate


def macro_f1(model: str) -> Simulate:
    """Simulate macro-F1, with the standard error of the jackknife over queries."""

    def f1(hits: Floats, both: Floats) -> Floats:
        return np.asarray(np.where(both > 0, 2 * hits / np.maximum(both, 1), 0.0).mean(axis=-1))

    def counted(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
        probs, gold = answered(rng, shape, model)
        pred = np.eye(3)[probs.argmax(axis=-1)]
        return pred * np.eye(3)[gold], pred + np.eye(3)[gold]

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        truth = float(f1(*(each.sum(axis=0) for each in counted(rng, (1_000_000,)))))
        hits, both = counted(rng, (n_runs, n))
        totals = [each.sum(axis=1, keepdims=True) for each in (hits, both)]
        without_one = f1(totals[0] - hits, totals[1] - both)
        error = without_one.std(axis=1) * np.sqrt(n - 1)
        return held(*limits(f1(*totals)[:, 0], error, n - 1, n), truth)

    return simulate


def consistency(n_prompts: int, pull: float) -> Simulate:
    """Simulate consistency: the share of a query's n_prompts prompts that give its most frequent label of three.

    Args:
        pull: mean amount by which a query favours the first label.
    """

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        of_query = pull * rng.exponential(size=(*shape, 1, 1)) * np.array([1.0, 0.0, 0.0])
        pred = (of_query + rng.gumbel(size=(*shape, n_prompts, 3))).argmax(axis=-1)
        return np.asarray(np.stack([(pred == label).mean(axis=-1) for label in range(3)]).max(axis=0))

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        truth = float(draw(rng, (200_000,)).mean())
        return of_means(np.concatenate([draw(rng, (n_runs // 10, n)) for _ in range(10)]), truth)

    return simulate


def label_mass(share: float) -> Simulate:
    """Simulate a quantile of label masses, most of which are near 1; `share` is the probability of the quantile."""

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        ends = [quantile_interval(masses, share) for masses in rng.beta(2, 0.3, (n_runs, n))]
        low, high = zip(*ends, strict=True)
        return held(low, high, float(stats.beta(2, 0.3).ppf(share)))

    return simulate


def accuracy_slope(lost: float) -> Simulate:
    """Simulate the slope of accuracy over noise rates; accuracy falls from 0.8 by `lost` if all labels are wrong."""
    weights = np.array(slope_weights((1 - RATES).tolist()))

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        ease = rng.uniform(-0.2, 0.2, (n_runs, n, 1)) + 0.8 - lost * RATES
        slopes = (rng.random(ease.shape) < ease) @ weights
        value, error = slopes.mean(axis=1), slopes.std(axis=1, ddof=1) / np.sqrt(n)
        return held(*limits(value, error, n - 1, n, "symmetric"), lost)

    return simulate


def calibration_slope(shift: float) -> Simulate:
    """Simulate the slope of the calibration error over noise rates; confidence exceeds accuracy by `shift` * rate."""
    weights = np.array(slope_weights((1 - RATES).tolist()))

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        found = [_calibration_slopes(rng, n, n_runs // 10, shift, weights) for _ in range(10)]
        value, error = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return held(*limits(value, error, n - 1, n, "symmetric"), -shift)

    return simulate


def _calibration_slopes(
    rng: np.random.Generator, n: int, n_runs: int, shift: float, weights: Floats
) -> tuple[Floats, Floats]:
    """Return slopes and their standard errors by the jackknife, both [run]."""
    # The calibration error at a rate is the sum over bins of |sum of (right - confidence)|, divided by n.
    confidence = rng.uniform(0.5, 1, (n_runs, n, len(RATES)))
    gap = (rng.random(confidence.shape) < confidence - shift * RATES) - confidence
    in_bin = np.minimum((confidence * 10).astype(int), 9)[..., None] == np.arange(5, 10)
    sums = (gap[..., None] * in_bin).sum(axis=1, keepdims=True)
    # Without a query, only the sum of the query's bin changes.
    own = (np.abs(sums) * in_bin).sum(axis=-1)
    without = np.abs(sums).sum(axis=-1) - own + np.abs((sums * in_bin).sum(axis=-1) - gap)
    value = np.abs(sums).sum(axis=-1)[:, 0] @ weights / n
    return value, (without @ weights / (n - 1)).std(axis=1) * np.sqrt(n - 1)


def scored(rng: np.random.Generator, n: int, shift: float) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Draw scores of n rows and whether their answers are wrong; a score exceeds the accuracy by `shift`."""
    scores = rng.beta(3, 1, n)
    return scores, rng.random(n) > scores - shift


def above_threshold(shift: float) -> Simulate:
    """Simulate the accuracy above a threshold that is chosen, for 80% right answers, on the same rows.

    Samples without such a threshold do not count.
    """

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        inside: list[bool] = []
        while len(inside) < n_runs:
            at = selective.looks(*scored(rng, n, shift))
            if chosen := selective.choose(at, 0.2, 0.05):
                low, high = selective.accuracy_interval(at, chosen)
                cut = stats.beta(3, 1).cdf(at.threshold[chosen.look])
                mean = (0.75 - 0.75 * at.threshold[chosen.look] ** 4) / (1 - cut)  # mean of scores above the threshold
                inside.append(low <= mean - shift <= high)
        return Coverage(float(np.mean(inside)), len(inside))

    return simulate


def area(shift: float) -> Simulate:
    """Simulate the area under the risk-coverage curve."""

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        truth = selective.risk_coverage_area(*scored(rng, 1_000_000, shift)).value
        found = [selective.risk_coverage_area(*scored(rng, n, shift)) for _ in range(n_runs)]
        return held([each.ci_low for each in found], [each.ci_high for each in found], truth)

    return simulate


def further_model(errors: Callable[[np.random.Generator, int], Floats]) -> Simulate:
    """Simulate the prediction interval of a further model of another size, from a line through n models.

    Args:
        errors: draws the given number of errors around the line.
    """

    def simulate(rng: np.random.Generator, n: int, n_runs: int) -> Coverage:
        inside = []
        for _ in range(n_runs):
            sizes, noise = rng.uniform(8, 11, n + 1), errors(rng, n + 1)
            value = 0.1 * sizes + noise
            _, low, high = least_squares([sizes[1:]], value[1:]).predict(np.array([1.0, sizes[0]]))
            inside.append(low <= value[0] <= high)
        return Coverage(float(np.mean(inside)), n_runs)

    return simulate
