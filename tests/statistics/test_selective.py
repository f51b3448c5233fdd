"""Thresholds against SciPy, MAPIE and simulation; areas against all orders; calibration against relplot."""

import math
import warnings
from fractions import Fraction
from functools import cache
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, binom, norm
from scipy.stats import t as stats_t

from benchmarks.columnar import thresholds
from benchmarks.columnar.thresholds import Model, _cases, simulate
from evaluator.statistics.selective import (
    Looks,
    accuracy_interval,
    allowed,
    binomial_quantile,
    calibration_test,
    choose,
    clustered_reach,
    conformal_sets,
    largest_target,
    last_passing,
    looks,
    n_needed,
    proportion_interval,
    risk_coverage_area,
    route,
    share_interval,
    share_is_shown,
    tail,
)


@pytest.mark.parametrize("rate", [Fraction(1, 20), Fraction(1, 2), Fraction(9, 10)])
@pytest.mark.parametrize("level", [Fraction(1, 40), Fraction(1, 2), Fraction(39, 40), Fraction(1, 100)])
def test_a_quantile_of_events_is_the_one_of_exact_sums(rate, level):
    for n in (0, 1, 2, 7, 35, 40):
        shares = [math.comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(n + 1)]
        exact = next(k for k in range(n + 1) if sum(shares[: k + 1]) >= level)
        assert binomial_quantile(float(level), n, float(rate)) == exact
    sizes = np.array([500, 4999, 10**6])
    assert binomial_quantile(float(level), sizes, 0.123).tolist() == binom.ppf(float(level), sizes, 0.123).tolist()


CASES = {f"{model.name}, {target:g}": (model, target) for model, target in _cases()}


@cache
def simulated(name: str, n: int, n_runs: int) -> dict[str, Any]:
    """A case in so many samples, without the plain fixed sequence that the benchmark compares it with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "fixed_start", lambda *_given: None)
        return simulate(*CASES[name], n, n_runs)


def sample(n: int, *, seed: int = 0, decimals: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Calibrated probabilities and errors."""
    rng = np.random.default_rng(seed)
    scores = np.round(0.5 + 0.5 * rng.beta(4, 1.2, n), decimals)
    return scores, rng.random(n) > scores


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.3])
@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_allowed_errors_are_those_of_scipys_binomial_tail(rate: float, alpha: float) -> None:
    n = np.arange(1, 500)
    is_allowed = binom.cdf(np.arange(500)[:, None], n, rate) <= alpha
    np.testing.assert_array_equal(allowed(n, rate, alpha), is_allowed.sum(axis=0) - 1)
    np.testing.assert_allclose(tail(n // 3, n, rate), binom.cdf(n // 3, n, rate), rtol=1e-9)


def test_looks_count_what_each_score_accepts() -> None:
    at = looks(np.array([0.5, 0.9, 0.9, 0.7]), np.array([True, False, True, False]))
    assert at.threshold.tolist() == [0.9, 0.7, 0.5]
    assert at.n.tolist() == [2, 3, 4]
    assert at.n_wrong.tolist() == [1, 1, 2]
    assert at.expected_wrong == pytest.approx([0.2, 0.5, 1.0])
    assert looks(np.array([]), np.array([], bool)).n.tolist() == []


@pytest.mark.parametrize("seed", range(8))
def test_the_sequence_is_mapies_on_the_same_tests(seed: int) -> None:
    from mapie.risk_control.fwer_control import FWERFixedSequenceTesting

    scores, wrong = sample(400, seed=seed)
    at = looks(scores, wrong)
    chosen = choose(at, 0.1, 0.05)
    budget = allowed(at.n, 0.1, 0.05)
    last = len(at.n) - 1
    tested = [place for place in range(last) if budget[place] > (budget[place - 1] if place else -1)] + [last]
    passing = [binom.cdf(budget[place], at.n[place], at.expected_wrong[place] / at.n[place]) for place in tested]
    sequence = tested[int(np.argmax(passing)) :]
    p_values = binom.cdf(at.n_wrong[sequence], at.n[sequence], 0.1)
    rejected = FWERFixedSequenceTesting(n_starts=1).run(p_values, 0.05)
    assert (chosen.look if chosen else None) == (sequence[rejected[-1]] if len(rejected) else None)


def test_all_answers_are_used_where_all_are_right() -> None:
    scores, wrong = sample(400)
    at = looks(scores, np.zeros_like(wrong))
    chosen = choose(at, 0.01, 0.05)  # .99^400 = .018
    assert chosen is not None
    assert at.n[chosen.look] == 400


@pytest.mark.parametrize("limit", [0.1, 0.05])
def test_rows_that_are_needed_where_no_test_can_pass(limit: float) -> None:
    # Too few answers for any test, all right: an error rate of limit / 2, with the quantiles of level and power.
    of_level, of_power = norm.ppf([0.95, 0.8])
    rate = limit / 2
    rows = ((of_level * math.sqrt(limit * (1 - limit)) + of_power * math.sqrt(rate * (1 - rate))) / rate) ** 2
    assert n_needed(looks(np.array([0.8]), np.array([False])), limit, 0.05) == math.ceil(rows)
    # The answer of 0.9 is right and that of 0.8 wrong: as many right ones are the better half of the rows.
    scores, wrong = np.array([0.8, 0.9]), np.array([True, False])
    assert n_needed(looks(scores, wrong), limit, 0.05) == math.ceil(2 * rows)
    assert n_needed(looks(scores, ~wrong), limit, 0.05) is None


def test_a_higher_target_takes_more_rows() -> None:
    wrong = np.arange(48) >= 5  # the five most certain answers are right
    needed = [n_needed(looks(np.linspace(1, 0.5, 48), wrong), limit, 0.05) for limit in (0.2, 0.1, 0.05, 0.02)]
    assert needed == sorted(needed, key=lambda rows: rows or math.inf)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n", [50, 300])
def test_a_promise_fails_in_five_percent_of_samples_at_most(name: str, n: int) -> None:
    row = simulated(name, n, 200)
    assert binom.sf(row["broken"] * 200 - 1, 200, 0.05) > 1e-4  # not shown to be above 5%


@pytest.mark.parametrize(
    ("target", "n", "published"),
    [(0.9, 100, 0.17), (0.9, 200, 0.35), (0.9, 400, 0.62), (0.9, 1000, 0.78), (0.95, 400, 0.07), (0.95, 1000, 0.17)],
)
def test_as_many_answers_are_used_as_by_the_plain_fixed_sequence(target: float, n: int, published: float) -> None:
    row = simulated(f"calibrated, two decimals, {target:g}", n, 400)
    assert row["used"] >= published - 0.02


def test_a_threshold_is_named_that_the_probabilities_deny() -> None:
    scores, wrong = sample(1_000)
    at = looks(0.4 * scores, wrong, expected=1 - 0.4 * scores)
    assert choose(at, 0.1, 0.05) is not None


def test_few_rows_name_no_threshold_and_the_number_that_would_do() -> None:
    right = np.zeros(28, bool)
    assert choose(looks(np.linspace(0.5, 1, 28), right), 0.1, 0.05) is None  # 0.9^28 > 0.05 > 0.9^29
    assert choose(looks(np.linspace(0.5, 1, 29), np.zeros(29, bool)), 0.1, 0.05) is not None
    assert n_needed(looks(np.linspace(0.5, 1, 28), right), 0.1, 0.05) in range(29, 60)
    assert n_needed(looks(np.ones(100), np.arange(100) < 20), 0.1, 0.05) is None
    # Half an error in one more row lowers a rate of 1: no number of answers that are all wrong is enough.
    assert n_needed(looks(np.linspace(0.5, 1, 61), np.ones(61, bool)), 0.8, 0.05) is None


def test_the_number_that_would_do_does_in_about_the_stated_share_of_samples() -> None:
    scores, wrong = sample(150, seed=4)
    needed = n_needed(looks(scores, wrong), 0.1, 0.05)
    assert needed is not None
    found = [choose(looks(*sample(needed, seed=seed)), 0.1, 0.05) is not None for seed in range(100)]
    assert 0.5 <= np.mean(found) <= 1


def test_the_largest_target_is_the_last_that_names_a_threshold() -> None:
    at = looks(*sample(300))
    largest = largest_target(at, 0.05)
    assert choose(at, 1 - largest, 0.05) is not None
    assert choose(at, 1 - (largest + 0.001), 0.05) is None


def test_groups_of_one_row_change_nothing_and_copies_of_rows_count_once() -> None:
    scores, wrong = sample(300)
    alone = looks(scores, wrong)
    np.testing.assert_allclose(looks(scores, wrong, np.arange(300)).design, 1, atol=1e-9)
    copies = looks(np.repeat(scores, 4), np.repeat(wrong, 4), np.repeat(np.arange(300), 4))
    np.testing.assert_array_equal(copies.n, 4 * alone.n)
    many = alone.n_wrong >= 10
    np.testing.assert_allclose(copies.design[many], 4, rtol=0.02)
    low, high = share_interval(np.repeat(wrong, 4), np.repeat(np.arange(300), 4))
    once = share_interval(wrong)
    assert (low, high) == pytest.approx(once, abs=0.01)
    # Of a frequent event it is the mirror image: the rarer side determines the design effect.
    assert share_interval(~np.repeat(wrong, 4), np.repeat(np.arange(300), 4)) == pytest.approx((1 - high, 1 - low))


def test_rows_that_come_in_fours_are_tested_and_needed_as_a_quarter_of_them() -> None:
    at = looks(np.ones(400), np.arange(400) < 8)  # 8 of 400 in fours are 2 of 100: P(X <= 2) = .0019, P(X <= 8) = .32
    assert choose(at._replace(design=np.array([4.0])), 0.1, 0.05) is not None
    at = looks(np.ones(20), np.arange(20) < 0)
    # No error of 20, so a rate of .5 / 21, with quantiles 1.645 of the level and .842 of the power.
    (of_level, of_power), rate = norm.ppf([0.95, 0.8]), 0.5 / 21
    rows = ((of_level * math.sqrt(0.09) + of_power * math.sqrt(rate * (1 - rate))) / (0.1 - rate)) ** 2
    assert n_needed(at, 0.1, 0.05) == math.ceil(rows)
    assert n_needed(at._replace(design=np.array([4.0])), 0.1, 0.05) == math.ceil(4 * rows)


def test_the_design_effect_is_the_variance_between_groups_written_out() -> None:
    rng = np.random.default_rng(5)
    groups, wrong = rng.integers(0, 12, 80), rng.random(80) < 0.2
    at = looks(np.linspace(1, 0, 80), wrong, groups)
    for last in (40, 79):
        rows = slice(0, last + 1)
        n, share = last + 1, wrong[rows].mean()
        sizes = np.bincount(groups[rows], minlength=12)
        hits = np.bincount(groups[rows], wrong[rows], minlength=12)
        present = (sizes > 0).sum()
        variance = ((hits - share * sizes) ** 2).sum() * present / (present - 1) * (n - 1) / n
        size = (sizes**2).sum() / n
        extra = size * (1 - share)
        assert at.design[last] == pytest.approx(max(1, (variance + size * extra) / (n * share * (1 - share) + extra)))


def test_a_cut_is_the_loosest_whose_share_is_shown_to_be_small() -> None:
    scores = np.linspace(0, 1, 201)[:-1]
    candidates = np.linspace(1, 0, 101)
    n_passed = last_passing(101, lambda n: share_is_shown(scores >= candidates[n - 1], 0.1, 0.05))
    shares = {value: binom.cdf((scores >= value).sum(), 200, 0.1) for value in candidates}
    assert candidates[n_passed - 1] == min(value for value in candidates if shares[value] <= 0.05)
    few = scores[:5]
    assert last_passing(101, lambda n: share_is_shown(few >= candidates[n - 1], 0.1, 0.05)) == 0


@pytest.mark.parametrize(("hits", "n"), [(0, 7), (3, 20), (20, 20)])
def test_the_interval_is_that_of_the_beta_distribution(hits: int, n: int) -> None:
    low, high = proportion_interval(hits, n)
    assert low == pytest.approx(beta.ppf(0.025, hits, n - hits + 1) if hits else 0)
    assert high == pytest.approx(beta.ppf(0.975, hits + 1, n - hits) if hits < n else 1)


def test_the_interval_of_the_accuracy_holds_the_truth_also_where_the_threshold_was_chosen() -> None:
    row = simulated("calibrated, two decimals, 0.9", 400, 400)
    assert row["below_interval"] <= 0.05
    assert row["outside_interval"] <= 0.08
    at = looks(*sample(400))
    chosen = choose(at, 0.1, 0.05)
    assert chosen is not None
    low, high = accuracy_interval(at, chosen)
    assert 0.85 < low < 1 - at.n_wrong[chosen.look] / at.n[chosen.look] < high < 1


@pytest.mark.parametrize("scores", [[0.9, 0.8, 0.7, 0.6, 0.5], [0.9, 0.9, 0.7, 0.7, 0.7], [0.5] * 5])
@pytest.mark.parametrize("wrong", [[0, 1, 0, 1, 0], [1, 0, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
def test_the_area_is_the_mean_over_all_orders_of_ties_in_rational_numbers(
    scores: list[float], wrong: list[int]
) -> None:
    def area(errors: tuple[int, ...]) -> Fraction:
        return sum((Fraction(sum(errors[:k]), k) for k in range(1, 6)), Fraction(0)) / 5

    orders = [order for order in permutations(range(5)) if all(scores[a] >= scores[b] for a, b in pairwise(order))]
    mean = sum(area(tuple(wrong[place] for place in order)) for order in orders) / len(orders)
    best = area(tuple(sorted(wrong)))
    found = risk_coverage_area(np.array(scores), np.array(wrong, bool))
    assert found.value == pytest.approx(float(mean))
    assert found.excess == pytest.approx(float(mean - best))
    assert 0 <= found.ci_low <= found.value <= found.ci_high <= 1
    assert 0 <= found.excess_low <= found.excess + 1e-12 <= found.excess_high + 1e-12 <= 1 + 1e-12


def test_two_rows_leave_the_area_and_its_excess_anywhere_from_0_to_1() -> None:
    # Error rates 1 and 1/2; in the best order 0 and 1/2.
    found = risk_coverage_area(np.array([0.9, 0.8]), np.array([True, False]))
    assert found == pytest.approx((0.75, 0, 1, 0.5, 0, 1))


def test_the_interval_of_the_area_is_that_of_the_jackknife() -> None:
    scores, wrong = sample(300)
    found = risk_coverage_area(scores, wrong)
    without = [risk_coverage_area(np.delete(scores, row), np.delete(wrong, row)) for row in range(300)]
    of_excess = (found.excess_low, found.excess, found.excess_high, "excess")
    for low, value, high, name in ((found.ci_low, found.value, found.ci_high, "value"), of_excess):
        values = np.array([getattr(each, name) for each in without])
        error = math.sqrt(299 / 300 * ((values - values.mean()) ** 2).sum())
        assert (value - low, high - value) == pytest.approx((1.968 * error, 1.968 * error), rel=0.05)


def test_the_area_of_few_errors_is_no_certainty_and_its_interval_holds_the_true_one() -> None:
    for wrong in (np.zeros(100, bool), np.ones(100, bool)):
        found = risk_coverage_area(np.linspace(0.5, 1, 100), wrong)
        assert 0.02 < found.ci_high - found.ci_low < 0.05
        assert 0.02 < found.excess_high < 0.05
    rng = np.random.default_rng(0)

    def answers(n: int) -> tuple[np.ndarray, np.ndarray]:  # 4% of errors, as the scores say
        scores = np.maximum(certain := rng.beta(8, 0.4, n), 1 - certain)
        return scores, rng.random(n) > scores

    truth, found = risk_coverage_area(*answers(400_000)), [risk_coverage_area(*answers(64)) for _ in range(300)]
    assert np.mean([each.ci_low <= truth.value <= each.ci_high for each in found]) >= 0.95
    assert np.mean([each.excess_low <= truth.excess <= each.excess_high for each in found]) >= 0.95


def test_rows_on_which_models_agree_do_not_show_which_one_is_cheaper() -> None:
    def verdict(n: int) -> str:
        right = np.ones(n, bool)
        return route(np.linspace(0.5, 1, n), right, right, (1, 10, 100)).verdict

    assert verdict(2) == "not shown"
    assert verdict(10) == "not shown"  # one error in ten would cost as much as the large model
    assert verdict(200) == "always small"


def test_routing_is_judged_on_other_groups_with_one_more_error_on_each_side_and_never_splits_equal_scores() -> None:
    # Small is wrong in one of five groups alone, whose score is low: the other four show no use of the large model.
    groups = np.repeat(np.arange(5), 10)
    found = route(np.where(groups == 0, 0.1, 0.9), groups > 0, np.ones(50, bool), (1, 1, 10), groups)
    assert (found.threshold, found.share_large, found.accuracy) == (0.9, 0.0, 0.8)
    # Both are always right: no difference from small, with variance 2 x 20^2 / 50^2 and t at 49 degrees of freedom.
    found = route(np.linspace(0.5, 1, 50), np.ones(50, bool), np.ones(50, bool), (1, 5, 20))
    reach = stats_t.ppf(0.975, 49) * 20 * math.sqrt(2) / 50
    assert found.versus_small == pytest.approx((-reach, reach))
    # Of ten equal scores all or none are below a threshold, also where asking about the first three saves most.
    assert route(np.full(10, 0.5), np.arange(10) >= 3, np.ones(10, bool), (1, 1, 10)).threshold == 2.0


def test_copies_of_rows_do_not_narrow_the_reach_of_a_mean() -> None:
    values = np.random.default_rng(0).normal(size=50)
    assert clustered_reach(np.repeat(values, 3), np.repeat(np.arange(50), 3)) == pytest.approx(clustered_reach(values))
    assert clustered_reach(values, np.zeros(50, int)) == math.inf


def bins_of(confidence: np.ndarray) -> np.ndarray:
    return np.minimum((confidence * 10 + 1e-9).astype(int), 9)


def test_the_calibration_error_is_relplots_and_the_floor_what_it_has_for_a_calibrated_model() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from relplot.metrics import binnedECE
    rng = np.random.default_rng(1)
    confidence = rng.uniform(0.3, 0.999, 300)
    right = rng.random(300) < confidence
    found = calibration_test(confidence, right, bins_of(confidence))
    assert found.error == pytest.approx(binnedECE(confidence, right, nbins=10))
    calibrated = [binnedECE(confidence, rng.random(300) < confidence, nbins=10) for _ in range(400)]
    assert found.floor == pytest.approx(np.mean(calibrated), rel=0.05)
    assert found.p_value == pytest.approx(np.mean(np.array(calibrated) >= found.error), abs=0.08)


@pytest.mark.parametrize("copies", [1, 3])
def test_a_calibrated_model_is_refuted_in_five_percent_of_samples_and_an_overconfident_one_is(copies: int) -> None:
    p_values = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        confidence = np.round(rng.uniform(0.5, 1, 150), 2)
        right = np.repeat(rng.random(150) < confidence, copies)
        groups = np.repeat(np.arange(150), copies) if copies > 1 else None
        many = np.repeat(confidence, copies)
        p_values.append(calibration_test(many, right, bins_of(many), groups, n_draws=200).p_value)
    assert np.mean(np.array(p_values) <= 0.05) <= 0.12
    wrong = np.repeat(np.random.default_rng(0).random(300) < 0.6, copies)
    confidence = np.full(len(wrong), 0.9)
    groups = np.repeat(np.arange(300), copies)
    assert calibration_test(confidence, wrong, bins_of(confidence), groups).p_value < 0.01


def test_few_groups_that_agree_do_not_refute_a_calibrated_model() -> None:
    # Of five groups with ten equal answers each, all are right in 0.9^5 = 59% of samples.
    confidence, groups = np.full(50, 0.9), np.repeat(np.arange(5), 10)
    assert calibration_test(confidence, np.full(50, True), bins_of(confidence), groups).p_value > 0.1


@pytest.mark.parametrize("decimals", [2, 9])
def test_conformal_sets_are_mapies(decimals: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mapie.classification import SplitConformalClassifier
    from sklearn.base import BaseEstimator, ClassifierMixin

    class Given(ClassifierMixin, BaseEstimator):
        """A classifier whose probabilities are its input."""

        classes_ = np.arange(4)

        def fit(self, _x: np.ndarray, _y: np.ndarray) -> "Given":
            return self

        def __sklearn_is_fitted__(self) -> bool:
            return True

        def predict_proba(self, x: np.ndarray) -> np.ndarray:
            return x

        def predict(self, x: np.ndarray) -> np.ndarray:
            return x.argmax(axis=1)

    rng = np.random.default_rng(2)
    probs = np.round(rng.dirichlet([0.5] * 4, 500), decimals)
    probs /= probs.sum(axis=1, keepdims=True)
    gold = (rng.random((500, 1)) > probs.cumsum(axis=1)).sum(axis=1).clip(0, 3)
    oracle = SplitConformalClassifier(Given(), confidence_level=0.9, conformity_score="lac", prefit=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        oracle.conformalize(probs[:300], gold[:300])
        _, expected = oracle.predict_set(probs[300:])
    rule = conformal_sets(probs[np.arange(300), gold[:300]], 0.1)
    np.testing.assert_array_equal(probs[300:] >= rule.min_probability - 1e-12, expected[:, :, 0])


def test_the_range_of_coverages_is_their_distribution_and_a_group_counts_once() -> None:
    rng = np.random.default_rng(0)
    covered = [1 - conformal_sets(rng.random(60), 0.1).min_probability for _ in range(2_000)]
    rule = conformal_sets(rng.random(60), 0.1)
    assert (rule.coverage_low, rule.coverage_high) == pytest.approx(np.quantile(covered, [0.025, 0.975]), abs=0.01)
    alone, copies = conformal_sets(np.arange(20) / 20, 0.1), np.repeat(np.arange(20), 3)
    assert conformal_sets(copies / 20, 0.1, copies) == alone
    assert conformal_sets(rng.random(8), 0.1).min_probability == 0  # 9 x 0.1 < 1: every option
    # All options from 0.8 on miss only the 5% with 0.2, so that the coverage is about 0.95.
    tied = conformal_sets(np.repeat([0.2, 0.8, 1.0], [25, 225, 250]), 0.1)
    assert (tied.min_probability, tied.coverage_high) == (0.8, pytest.approx(beta(476, 25).ppf(0.975)))
    # 100 x 0.29 = 29 options are missed, though the product of floats is below 29: the 29th smallest of 0, 1, ..., 98.
    assert conformal_sets(np.arange(99.0), 0.29).min_probability == 28


def test_routing_is_shown_where_the_small_model_knows_when_it_is_wrong() -> None:
    rng = np.random.default_rng(0)
    scores = rng.uniform(0.5, 1, 4_000)
    small, large = rng.random(4_000) < np.where(scores > 0.75, 0.99, 0.6), rng.random(4_000) < 0.95
    found = route(scores, small, large, (1, 10, 100))
    assert found.verdict == "route"
    assert found.threshold == pytest.approx(0.75, abs=0.03)
    assert found.cost < found.cost_small
    assert found.cost_oracle < found.cost < found.cost_large
    assert (found.accuracy_small, found.accuracy_large) == (small.sum() / 4_000, large.sum() / 4_000)
    hand = np.where(scores < found.threshold, 11 + 100 * ~large, 1 + 100 * ~small).mean()
    assert found.cost == pytest.approx(hand, rel=0.1)
    assert route(scores, large, small, (1, 10, 100)).verdict == "always small"
    assert route(scores, rng.random(4_000) < 0.3, large, (1, 1, 100)).verdict == "always large"


def test_routing_of_models_that_know_nothing_is_rarely_called_better() -> None:
    verdicts = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        scores, small, large = rng.random(200), rng.random(200) < 0.8, rng.random(200) < 0.9
        verdicts.append(route(scores, small, large, (1, 11, 100)).verdict)
    assert verdicts.count("route") <= 10
    assert verdicts.count("not shown") >= 180  # both models cost 21


def test_scores_in_any_order_give_the_same_looks() -> None:
    scores, wrong = sample(100)
    order = np.random.default_rng(0).permutation(100)
    for one, other in zip(looks(scores, wrong), looks(scores[order], wrong[order]), strict=True):
        np.testing.assert_allclose(one, other)
    assert isinstance(looks(scores, wrong), Looks)
    assert isinstance(CASES["calibrated, two decimals, 0.9"][0], Model)
