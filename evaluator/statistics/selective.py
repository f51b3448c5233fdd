"""Choose the threshold of a score at which answers are used, with a finite-sample guarantee, and evaluate scores.

An answer is used where its score is at least the threshold. A *look* is a threshold at which the answers of a sample
are counted and may be tested. A *group* has rows that are not independent, such as the rows of one user; without groups
all rows are independent.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike
from scipy.special import bdtr, betainc, betaincinv, ndtri, stdtrit

from evaluator.arrays import Bools, Floats, Ints
from evaluator.statistics.paired import POWER

START_SHARE = 0.3
"""Share of the rows that the first test accepts where the scores predict an error rate above the limit everywhere."""

MAX_LOOKS = 2_000
"""Looks are considered at each of the first MAX_LOOKS rows by score, and at MAX_LOOKS rows spread over the rest."""


class Looks(NamedTuple):
    """Counts of accepted answers at each threshold, from the strictest to the loosest, arrays [looks]."""

    threshold: Floats  # the distinct scores, falling
    n: Ints  # number of accepted rows
    n_wrong: Ints  # number of errors among the accepted rows
    expected_wrong: Floats  # number of errors that the scores predict
    design: Floats  # design effect of the errors; 1 without groups


class Chosen(NamedTuple):
    """The chosen look and the first tested look, as indices into Looks."""

    look: int
    start: int


def looks(scores: Floats, wrong: Bools, groups: Ints | None = None, expected: Floats | None = None) -> Looks:
    """Count the answers that are accepted with each distinct score as the threshold.

    Args:
        scores: [n], such as the largest option probability.
        wrong: [n], whether using the answer is an error.
        groups: [n], group of each row; None: all rows are independent.
        expected: [n], predicted probabilities of an error; None: 1 - score.
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True)) if len(order) else order
    is_wrong = wrong[order].astype(np.int64)
    predicted = np.cumsum((1 - scores if expected is None else expected)[order])
    n_wrong = np.cumsum(is_wrong)[ends]
    design = np.ones(len(ends)) if groups is None else _design_effects(groups[order], is_wrong)[ends]
    return Looks(scores[order][ends], ends + 1, n_wrong, predicted[ends], design)


def _design_effects(groups: Ints, hits: Ints) -> Floats:
    """Return the design effect of the share of hits among the first k rows, for k = 1, ..., n, [n].

    It is the variance of the sum over groups of (hits - share x rows), divided by the binomial variance, and at least 1
    (Kish 1965). One further group of mean size with only hits is added, because few groups tend to underestimate the
    variance: without it a guarantee fails in up to 30% of samples (benchmarks/columnar/thresholds.py). The mean size
    weights each group by its rows. With groups of one row the effect is 1.

    Args:
        groups: [n], group of each row.
        hits: [n], 0 or 1.
    """
    # For each row, the earlier rows of its group and the hits among them.
    before = (pl.int_range(pl.len()).over("group"), (pl.col("hit").cum_sum() - pl.col("hit")).over("group"))
    rows, earlier = (column.to_numpy() for column in pl.DataFrame({"group": groups, "hit": hits}).select(*before))
    # Running sums over groups of rows^2, rows x hits, and hits^2 among the first k rows.
    squares = np.cumsum(2 * rows + 1).astype(np.float64)
    products = np.cumsum(rows * hits + earlier + hits)
    hits_squared = np.cumsum(hits * (2 * earlier + 1))
    n, n_groups, total = np.arange(1, len(groups) + 1), np.cumsum(rows == 0), np.cumsum(hits)
    share, size = total / n, squares / n
    # Correction for few groups, as n / (n - 1) of a sample variance; 1 where every group has one row.
    few = n_groups * (n - 1) / np.maximum((n_groups - 1) * n, 1)
    variance = (hits_squared - 2 * share * products + share**2 * squares) * few
    extra = size * (1 - share)
    expected = np.maximum(n * share * (1 - share) + extra, 1e-300)
    return np.asarray(np.maximum((variance + size * extra) / expected, 1.0))


def _design_effect(hits: Bools, groups: Ints | None) -> float:
    """Return the design effect of the share of hits among all rows; 1 without groups or rows."""
    return 1.0 if groups is None or not len(hits) else float(_design_effects(groups, hits.astype(np.int64))[-1])


def _rarer(hits: Bools) -> Bools:
    """Return the hits, or the misses if these are fewer: the design effect of rare rows is estimated with caution."""
    return hits if 2 * hits.sum() <= len(hits) else ~hits


def tail(n_wrong: Floats | Ints | float, n: Floats | Ints | float, rate: Floats | float) -> Floats:
    """Return the binomial probability of `n_wrong` or fewer errors among n rows with error probability `rate`.

    Exact for whole numbers; effective sizes between whole numbers are interpolated by the incomplete beta function.
    Broadcasts.
    """
    k, n = np.asarray(n_wrong, np.float64), np.asarray(n, np.float64)
    inside = betainc(np.maximum(n - k, 1e-12), np.maximum(k, 0) + 1, 1 - rate)
    return np.where(k < 0, 0.0, np.where(k >= n, 1.0, inside))


def binomial_quantile(level: Floats | float, n: Ints | int, rate: float) -> Ints:
    """Return the smallest k with P(X <= k) >= level for a binomial X of n trials with probability `rate`.

    The results are those of scipy.stats.binom.ppf. scipy.stats is slow to import, and scipy.special.bdtrik takes four
    times as long.
    """
    z, spread = ndtri(level), np.sqrt(np.multiply(n, rate * (1 - rate)))
    near = np.multiply(n, rate) + z * spread + (z**2 - 1) * (1 - 2 * rate) / 6  # Cornish & Fisher 1938
    k: Ints = np.clip(np.nan_to_num(near), 0, n).astype(np.int64)
    least = np.multiply(level, 1 - 1e-13)
    while True:
        step = (bdtr(k, n, rate) < least) * 1 - ((k > 0) & (bdtr(np.maximum(k - 1, 0), n, rate) >= least))
        if not step.any():
            return k
        k = k + step


def allowed(n: Ints, rate: float, alpha: float) -> Ints:
    """Return the largest number of errors among n that rejects an error rate of `rate` or more at level alpha.

    -1 where even 0 errors do not reject it.
    """
    quantile = binomial_quantile(alpha, n, rate)
    return np.where(tail(quantile, n, rate) <= alpha, quantile, quantile - 1)


def choose(at: Looks, limit: float, alpha: float) -> Chosen | None:
    """Choose the loosest threshold whose error rate is shown to be at most `limit`; None where no test succeeds.

    With probability 1 - alpha or more, the true error rate among accepted rows is at most `limit`. Looks are tested
    one after the other towards looser thresholds, each at level alpha by the binomial tail of its errors, until a test
    fails; alpha need not be divided among the tests (fixed-sequence testing). Two choices make the procedure accept
    more rows, and neither depends on the labels:

    - Only looks at which the allowed number of errors is larger than at the look before are tested, and the last look.
      Looks in between have the same allowance for more rows, so their tests would only fail more easily.
    - The first tested look is the one most likely to pass if the scores predict errors correctly. Where the scores
      predict an error rate above the limit everywhere, it is the first look that accepts START_SHARE of the rows.

    With groups, rows and errors are divided by the design effect; the level is then approximate.

    Args:
        at: counts at each look.
        limit: largest error rate, between 0 and 1.
        alpha: probability that the guarantee fails.

    Source: Angelopoulos, Bates, Candes, Jordan & Lei 2021, "Learn then Test", section on fixed-sequence testing.
    """
    total = at.n[-1] if len(at.n) else 0
    # Candidate looks: every rank up to MAX_LOOKS, then MAX_LOOKS ranks spread over the remaining rows.
    ranks = np.append(np.arange(1, MAX_LOOKS), np.linspace(MAX_LOOKS, max(total, MAX_LOOKS), MAX_LOOKS))
    found = np.unique(np.searchsorted(at.n, ranks[ranks <= total]))
    budget = allowed(at.n[found], limit, alpha)
    is_tested = np.diff(budget, prepend=-1) > 0
    if not is_tested.any():
        return None
    is_tested[-1] = True
    tested, budget = found[is_tested], budget[is_tested]
    n = at.n[tested]
    # Probability of each look to pass if the scores predict errors correctly; start at the largest.
    passing = tail(budget, n, np.clip(at.expected_wrong[tested] / n, 0.0, 1.0))
    start = int(passing.argmax())
    if passing[start] <= alpha:
        start = min(int(np.searchsorted(n, START_SHARE * total)), len(tested) - 1)
    design = at.design[tested]
    fails = tail(at.n_wrong[tested] / design, n / design, limit) > alpha
    end = start + int(np.append(fails[start:], True).argmax())
    return Chosen(int(tested[end - 1]), int(tested[start])) if end > start else None


def largest_target(at: Looks, alpha: float) -> float:
    """Return the highest accuracy, in steps of 0.001, for which `choose` finds a threshold; 0 if there is none."""
    return last_passing(1_000, lambda thousandths: choose(at, 1 - thousandths / 1_000, alpha) is not None) / 1_000


def share_is_shown(wrong: Bools, limit: float, alpha: float, groups: Ints | None = None) -> bool:
    """Return whether the true share of wrong rows is shown to be at most `limit`, at level alpha; no without rows.

    Args:
        wrong: [n].
        limit: largest share, between 0 and 1.
        alpha: level of the test.
        groups: [n], group of each row; None: all rows are independent.
    """
    design = _design_effect(wrong, groups)
    return bool(tail(wrong.sum() / design, len(wrong) / design, limit) <= alpha)


def last_passing(n: int, passes: Callable[[int], bool]) -> int:
    """Return the largest number from 1 to n that passes, by bisection, given that all smaller ones pass; 0 for none."""
    return n - bisect_left(range(n), True, key=lambda dropped: passes(n - dropped))


def first_passing(passes: Callable[[int], bool], least: int = 1) -> int:
    """Return the smallest number from `least` on that passes: double until one does, then bisect the last doubling.

    Where numbers above it do not all pass, it passes and the number before it does not, but a smaller one may.
    """
    enough = least
    while not passes(enough):
        enough *= 2
    return bisect_left(range(enough), True, max(least, enough // 2 + 1), key=passes)


def n_needed(at: Looks, limit: float, alpha: float) -> int | None:
    """Estimate the number of rows with which `choose` would find a threshold with probability POWER.

    It assumes that errors stay as frequent as observed, with half an error in one more row where this raises the rate:
    at most to limit / 2 where a threshold has too few rows for any test. Else a lower limit might take fewer rows.
    The result is the sample size of a one-sided test of a proportion at the threshold where it is smallest; it exceeds
    the present number of rows, with which no threshold was found. None where no threshold has an error rate below the
    limit.

    Args:
        at: counts at each look, one or more looks.
        limit: largest error rate.
        alpha: level of the test.
    """
    total, observed = int(at.n[-1]), at.n_wrong / at.n
    least = rows_without_errors(limit, alpha)
    assumed = (at.n_wrong + 0.5) / (at.n + 1)
    assumed = np.where(at.n < least, np.minimum(assumed, limit / 2), assumed)
    rate = np.maximum(assumed, observed)
    is_below = rate < limit
    if not is_below.any():
        return None
    rate, n, design = rate[is_below], at.n[is_below], at.design[is_below]
    z = ndtri(1 - alpha) * math.sqrt(limit * (1 - limit)) + ndtri(POWER) * np.sqrt(rate * (1 - rate))
    accepted = np.maximum((z / (limit - rate)) ** 2, least)  # independent rows that the test accepts
    needed = accepted * design / n * total  # rows of which as many are accepted
    return min((math.ceil(rows) for rows in needed[needed > total]), default=total + 1)


def rows_without_errors(limit: float, alpha: float) -> float:
    """Return the number of rows from which a test without errors rejects an error rate of `limit` at level alpha."""
    return math.log(alpha) / math.log1p(-limit)


def proportion_interval(hits: ArrayLike, n: ArrayLike, error: ArrayLike = 0.025) -> tuple[Floats, Floats]:
    """Return the lower and upper ends of the exact interval of a proportion; 0 and 1 without rows; broadcasts.

    Args:
        hits: from 0 to n.
        n: numbers of independent rows.
        error: largest probability that the true proportion lies beyond one end; the same for each end.

    Source: Clopper & Pearson 1934, "The use of confidence or fiducial limits illustrated in the case of the binomial".
    """
    x, size, tail = (np.asarray(values, np.float64) for values in (hits, n, error))
    low = np.where(x > 0, betaincinv(np.maximum(x, 1e-12), size - x + 1, tail), 0.0)
    high = np.where(x < size, betaincinv(x + 1, np.maximum(size - x, 1e-12), 1 - tail), 1.0)
    return low, high


def share_interval(hits: Bools, groups: Ints | None = None) -> tuple[float, float]:
    """Return the ends of the 95% interval of a share of rows; with groups, for the effective number of rows."""
    design = _design_effect(_rarer(hits), groups)
    low, high = proportion_interval(float(hits.sum()) / design, len(hits) / design)
    return float(low), float(high)


def accuracy_interval(at: Looks, chosen: Chosen) -> tuple[float, float]:
    """Return a 95% interval of the accuracy at the chosen threshold, corrected for the choice.

    The lower end is the lowest of all looks from the first tested one to the chosen one, because a threshold is chosen
    for having few errors.
    """
    tested = slice(chosen.start, chosen.look + 1)
    n, right = at.n[tested] / at.design[tested], (at.n - at.n_wrong)[tested] / at.design[tested]
    low, high = proportion_interval(right, n)
    return float(low.min()), float(high[-1])


class Area(NamedTuple):
    """The area under the risk-coverage curve, and its excess over the area of the best order, with 95% intervals."""

    value: float
    ci_low: float
    ci_high: float
    excess: float
    excess_low: float
    excess_high: float


def risk_coverage_area(scores: Floats, wrong: Bools, groups: Ints | None = None) -> Area:
    """Return AURC, the mean over k of the error rate among the k most certain rows, and its excess E-AURC.

    For rows with equal scores it is the mean over all of their orders. The best order has every right answer before
    every wrong one. Intervals are from influence functions, summed within groups; their ends are between 0 and 1. One
    further error, anywhere in the order, is added to the variance, because few errors tend to underestimate it, and
    without errors it would be 0.

    Args:
        scores: [n], one row or more.
        wrong: [n], whether the answer is an error.
        groups: [n], group of each row; None: all rows are independent.

    Source: Geifman, Uziel & El-Yaniv 2019, "Bias-reduced uncertainty estimation for deep neural classifiers",
    equations 2 and 3.
    """
    n, order = len(scores), np.argsort(-scores, kind="stable")
    errors = wrong[order].astype(np.float64)
    rank = np.arange(1, n + 1)
    starts = np.flatnonzero(np.append(True, np.diff(scores[order]) != 0))
    sizes = np.diff(np.append(starts, n))

    def tied_mean(values: Floats) -> Floats:
        """Return for each row the mean over the rows with the same score."""
        return np.repeat(np.add.reduceat(values, starts) / sizes, sizes)

    risk = np.cumsum(tied_mean(errors)) / rank
    n_right = n - int(errors.sum())
    best = float(((rank[n_right:] - n_right) / rank[n_right:]).sum()) / n
    # Influence of a row: an error raises the rate of every larger k by 1/k; any row lowers these rates by rate/k.
    counted = np.cumsum((1 / rank)[::-1])[::-1]
    lowered = np.cumsum((risk / rank)[::-1])[::-1]
    influence = tied_mean(counted) * errors - tied_mean(lowered)
    of_excess = influence + math.log(max(1 - errors.mean(), 1 / n)) * (errors - errors.mean())
    by_row = None if groups is None else groups[order]
    value, reach = float(risk.mean()), clustered_reach(influence, by_row, OF_ERROR)
    excess, excess_reach = value - best, clustered_reach(of_excess, by_row, OF_ERROR)
    low, high = max(value - reach, 0.0), min(value + reach, 1.0)
    return Area(value, low, high, excess, max(excess - excess_reach, 0.0), min(excess + excess_reach, 1.0))


OF_ERROR = 2.0
"""Mean square of the contribution of an error to n x area: at rank k it contributes 1/k + ... + 1/n."""


def clustered_reach(values: Floats, groups: Ints | None = None, added: float = 0.0) -> float:
    """Return half the width of the 95% interval of a mean, clustered by group; infinite with one group.

    Args:
        values: [n].
        groups: [n], group of each row; None: all rows are independent.
        added: sum of squares of additional values, so that groups that agree do not count as certainty.
    """
    deviations = values - values.mean()
    sums = deviations if groups is None else np.bincount(np.unique(groups, return_inverse=True)[1], deviations)
    if len(sums) < 2:
        return math.inf
    error = math.sqrt(float(sums @ sums) / (1 - 1 / len(sums)) / len(values) ** 2 + added / len(sums) ** 2)
    return error * float(stdtrit(len(sums) - 1, 0.975))


class CalibrationTest(NamedTuple):
    """The calibration error of a sample, and the error expected of a calibrated model on as many rows."""

    error: float  # sum over bins of |number of right answers - sum of confidences|, divided by the number of rows
    floor: float  # mean error of simulated samples from a calibrated model
    p_value: float


def calibration_test(
    confidence: Floats, correct: Bools, bins: Ints, groups: Ints | None = None, n_draws: int = 1_000
) -> CalibrationTest:
    """Test that answers are right as often as their confidence says, by simulation of the calibration error.

    Right answers are drawn with the confidence as their probability. With groups, simulated errors are multiplied by
    the root of the design effect of the rarer of right and wrong answers. The seed is fixed.

    Args:
        confidence: [n], the probability of the predicted option.
        correct: [n].
        bins: [n], the bin of each confidence, from 0.
        groups: [n], group of each row; None: all rows are independent.
        n_draws: number of simulated samples.
    """
    rng, n = np.random.default_rng(0), len(confidence)
    error = float(np.abs(np.bincount(bins, correct - confidence)).sum()) / n
    # Rows of a bin whose confidences are equal, or differ by less than 0.001, are drawn together.
    rounded = np.rint(confidence * 1_000).astype(np.int64)
    (bin_of_cell, _), cell = np.unique(np.stack([bins, rounded]), axis=1, return_inverse=True)
    counts = np.bincount(cell)
    means = np.bincount(cell, confidence) / counts
    of_bin = np.eye(int(bins.max()) + 1)[bin_of_cell]
    sums = (rng.binomial(counts, np.clip(means, 0, 1), (n_draws, len(counts))) - counts * means) @ of_bin
    simulated = np.abs(sums).sum(axis=1) / n * math.sqrt(_design_effect(_rarer(correct), groups))
    p_value = (1 + int((simulated >= error - 1e-12).sum())) / (1 + n_draws)
    return CalibrationTest(error, float(simulated.mean()), p_value)


class Sets(NamedTuple):
    """A rule for sets of options: the set has all options with at least min_probability."""

    min_probability: float  # 0, so that all options are in the set, where there are too few rows
    coverage_low: float  # 95% range of the true coverage over samples of this size
    coverage_high: float


def conformal_sets(gold_probs: Floats, alpha: float, groups: Ints | None = None) -> Sets:
    """Return the rule whose sets contain the true option of a new row with probability 1 - alpha or more.

    This is split conformal prediction with all rows for calibration. One row of each group is used, drawn with a fixed
    seed: the new row is then one of a new group, and large groups count no more than small ones.

    Args:
        gold_probs: [n], the probability of the true option.
        alpha: allowed share of sets without the true option.
        groups: [n], group of each row; None: all rows are independent.

    Sources: Sadinle, Lei & Wasserman 2019, "Least ambiguous set-valued classifiers with bounded error levels"; Vovk
    2012, "Conditional validity of inductive conformal predictors", for the range of coverages, a beta distribution.
    """
    if groups is not None:
        shuffled = np.random.default_rng(0).permutation(len(groups))
        gold_probs = gold_probs[shuffled[np.unique(groups[shuffled], return_index=True)[1]]]
    n = len(gold_probs)
    n_missed = math.floor((n + 1) * alpha + 1e-9)
    if not n_missed:
        return Sets(0.0, 1.0, 1.0)
    least = np.sort(gold_probs)[n_missed - 1]
    # Rows that tie with the least probability are not missed: the coverage may be that of missing only those below it.
    n_fewest = n_missed if (gold_probs == least).sum() == 1 else int((gold_probs < least).sum())
    low = betaincinv(n + 1 - n_missed, n_missed, 0.025)
    high = betaincinv(n + 1 - n_fewest, n_fewest, 0.975) if n_fewest else 1.0
    return Sets(float(least), float(low), float(high))


class Routing(NamedTuple):
    """The cost of routing, compared with the cost of using one of two models for all rows.

    Routing runs the small model first, and the large model too where the score is below a threshold. All values but the
    threshold are for routing each row by a threshold that was chosen on other rows.
    """

    threshold: float  # scores below it go to the large model; chosen on all rows; 0: none, 2: all
    share_large: float  # share of rows that go to the large model
    accuracy: float  # accuracy of routing
    accuracy_small: float  # accuracy of the small model on all rows
    accuracy_large: float
    cost: float  # mean cost of a row with routing
    cost_small: float  # mean cost of a row with the small model only
    cost_large: float
    cost_oracle: float  # mean cost of a router that knows the cheaper choice in each row
    versus_small: tuple[float, float]  # 95% interval of cost - cost_small
    versus_large: tuple[float, float]  # 95% interval of cost - cost_large
    verdict: str  # "route", "always small", "always large" or "not shown"


def route(
    scores: Floats, small_right: Bools, large_right: Bools, costs: Sequence[float], groups: Ints | None = None
) -> Routing:
    """Find the threshold of routing with the lowest cost, and judge routing by cross-validation.

    Rows are split into five folds of whole groups, and each fold is routed by the threshold with the lowest cost on the
    other folds. The verdict is "route" where the 95% intervals show that routing costs less than either single model;
    else a single model, where the interval shows that it costs less than the other. Intervals include one additional
    error on each side (Bonett & Price 2012, as in paired.adjusted_estimate): rows that all agree do not count as
    certainty.

    Args:
        scores: [n], largest option probability of the small model.
        small_right, large_right: [n], whether the answer of each model is right.
        costs: cost of a call of the small model, of a call of the large model, and of a wrong answer.
        groups: [n], group of each row; None: all rows are independent.
    """
    small_cost, large_cost, error_cost = costs
    group = np.arange(len(scores)) if groups is None else np.unique(groups, return_inverse=True)[1]
    always_small = small_cost + error_cost * ~small_right
    always_large = large_cost + error_cost * ~large_right
    asked_large = small_cost + always_large
    folds = np.random.default_rng(0).permutation(int(group.max()) + 1)[group] % 5
    is_large = np.zeros(len(scores), bool)
    for fold in range(5):
        inside = folds == fold
        is_large[inside] = scores[inside] < _cheapest(scores[~inside], (always_small - asked_large)[~inside])
    routed = np.where(is_large, asked_large, always_small)

    def interval(difference: Floats) -> tuple[float, float]:
        mean, reach = float(difference.mean()), clustered_reach(difference, groups, 2 * error_cost**2)
        return mean - reach, mean + reach

    versus_small, versus_large = interval(routed - always_small), interval(routed - always_large)
    small_less_large = interval(always_small - always_large)
    verdicts = {
        "route": versus_small[1] < 0 and versus_large[1] < 0,
        "always small": small_less_large[1] < 0,
        "always large": small_less_large[0] > 0,
    }
    return Routing(
        threshold=_cheapest(scores, always_small - asked_large),
        share_large=float(is_large.mean()),
        accuracy=float(np.where(is_large, large_right, small_right).mean()),
        accuracy_small=float(small_right.mean()),
        accuracy_large=float(large_right.mean()),
        cost=float(routed.mean()),
        cost_small=float(always_small.mean()),
        cost_large=float(always_large.mean()),
        cost_oracle=float(np.minimum(always_small, asked_large).mean()),
        versus_small=versus_small,
        versus_large=versus_large,
        verdict=next((name for name, is_shown in verdicts.items() if is_shown), "not shown"),
    )


def _cheapest(scores: Floats, saved: Floats) -> float:
    """Return the threshold below which running the large model saves most; 0 for no rows, 2 for all rows.

    Args:
        scores: [n].
        saved: [n], cost saved by running the large model too.
    """
    order = np.argsort(scores, kind="stable")
    totals = np.append(0.0, np.cumsum(saved[order]))
    ends = np.append(True, np.append(np.diff(scores[order]) != 0, True))  # thresholds between different scores
    best = int(np.where(ends, totals, -np.inf).argmax())
    return 0.0 if best == 0 else 2.0 if best == len(order) else float(scores[order][best])
