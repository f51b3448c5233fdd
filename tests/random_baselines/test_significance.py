"""The test against guessing: exact tails, its family-wise error by simulation, and the power at n_needed."""

from fractions import Fraction
from math import comb, log10

import numpy as np
import polars as pl
import pytest
from scipy import stats

from evaluator.random_baselines import max_random_tail
from evaluator.random_baselines.max_random import ASSURANCE, queries_needed, with_tests
from evaluator.schemas import TEST_OF_GUESSING


def accuracies(
    n_right: list[int], n: int = 100, chance: float = 0.5, tries: int = 10, **columns: object
) -> pl.DataFrame:
    """Rows as they are before the test; `n_chosen_from` is 1 unless it is given."""
    tails = [float(max_random_tail(right, n, chance, tries, log10=True)) for right in n_right]
    rows = pl.DataFrame({"n_right": n_right, "log10_tail": tails}).with_columns(
        n_queries=n, chance=chance, tries=tries, n_chosen_from=1
    )
    return rows.with_columns(**{name: pl.lit(value) for name, value in columns.items()})


def tail(at_least: int, n: int, p: Fraction) -> Fraction:
    """P(X >= at_least) of a binomial X."""
    return sum((comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(at_least, n + 1)), Fraction(0))


def test_p_values_are_tails_and_are_corrected_over_all_rows() -> None:
    # The best of ten has 58 of 100 coin flips right with probability 1 - P(X <= 57)^10, and likewise 70 and 65.
    found = with_tests(accuracies([58, 70, 65]))
    p_values = [float(1 - (1 - tail(right, 100, Fraction(1, 2))) ** 10) for right in (58, 70, 65)]
    assert found["p_value"].to_list() == pytest.approx(p_values)
    assert found["p_holm"].to_list() == pytest.approx([p_values[0], 3 * p_values[1], 2 * p_values[2]])
    assert found["n_tests"].to_list() == [3, 3, 3]
    assert found["better_than_uniform"].to_list() == [False, True, True]  # p = .50, .00039 and .018
    assert {name: found.schema[name] for name in TEST_OF_GUESSING} == TEST_OF_GUESSING


def test_a_test_that_is_added_changes_its_family_alone_and_no_p_value() -> None:
    one, two = accuracies([60, 70], run="a"), accuracies([60, 70, 90], run="b")
    found = with_tests(pl.concat([one, two]), ["run"])
    assert found.filter(run="a")["p_value"].to_list() == found.filter(run="b")["p_value"].to_list()[:2]
    assert found["n_tests"].to_list() == [2, 2, 3, 3, 3]


def test_without_a_tail_there_is_no_test_and_none_is_counted() -> None:
    rows = accuracies([60, 70]).with_columns(log10_tail=pl.Series([None, -1.0]))
    found = with_tests(rows).select(TEST_OF_GUESSING.keys())
    assert found.row(0) == (None,) * len(TEST_OF_GUESSING)
    assert found.row(1, named=True)["n_tests"] == 1


def test_a_mean_and_the_best_of_many_differ_in_the_bound_that_the_next_run_is_planned_with() -> None:
    plain, best = (with_tests(accuracies([70], n_chosen_from=chosen)).row(0, named=True) for chosen in (1, 10))
    for row, error in ((plain, 0.2), (best, 0.02)):
        exact = stats.binomtest(70, 100, alternative="greater").proportion_ci(1 - error, method="exact").low
        assert row["accuracy_lower_bound"] == pytest.approx(exact)
    assert best["accuracy_lower_bound"] < plain["accuracy_lower_bound"] < 0.7
    assert best["n_needed"] > plain["n_needed"]


def test_a_bound_that_is_not_above_chance_plans_no_run() -> None:
    # 58 of 100 as the best of ten: the bound at error .02 is .47.
    found = with_tests(accuracies([58], n_chosen_from=10)).row(0, named=True)
    assert found["accuracy_lower_bound"] < 0.5
    assert found["n_needed"] is None


@pytest.mark.parametrize(("accuracy", "chance", "tries", "n_tests"), [(0.6, 0.5, 1, 1), (0.4, 0.25, 200, 12)])
def test_on_the_queries_needed_the_corrected_test_has_the_stated_power_exactly(
    accuracy: float, chance: float, tries: int, n_tests: int
) -> None:
    n = queries_needed(accuracy, chance, tries, n_tests)
    assert n is not None

    def power(size: int) -> float:
        # Holm compares the smallest p-value, 1 - F(right - 1)^tries, with .05 / n_tests: the hardest case.
        right = np.arange(size + 1)
        is_told = 1 - stats.binom.cdf(right - 1, size, chance) ** tries <= 0.05 / n_tests
        return float(stats.binom.pmf(right[is_told], size, accuracy).sum())

    assert power(n) >= 0.8 > power(n - 1)


N_RUNS = 500


@pytest.mark.parametrize(("tries", "n_tests"), [(1, 12), (20, 12), (500, 3)])
def test_of_runs_that_guess_at_most_one_in_twenty_has_an_accuracy_better_than_uniform(tries: int, n_tests: int) -> None:
    random = np.random.default_rng(tries)
    best = random.binomial(200, 0.25, size=(N_RUNS * n_tests, tries)).max(axis=1)
    tails = max_random_tail(best, 200, 0.25, tries, log10=True)
    rows = pl.DataFrame({"run": np.arange(len(best)) // n_tests, "n_right": best, "log10_tail": tails})
    found = with_tests(rows.with_columns(n_queries=200, chance=0.25, tries=tries, n_chosen_from=tries), ["run"])
    n_wrong = found.group_by("run").agg(pl.col("better_than_uniform").any())["better_than_uniform"].sum()
    # A procedure with an error of .05 exceeds this count once in a thousand times.
    assert n_wrong <= stats.binom.isf(0.001, N_RUNS, 0.05)
    # The comparison with the expected maximum alone would say so of nearly every run of twelve tests.
    expected = -np.expm1(tries * stats.binom.logcdf(np.arange(200), 200, 0.25)).sum()
    assert (best.reshape(N_RUNS, n_tests) > expected).any(axis=1).mean() > 0.5


def test_the_bound_of_the_best_prompt_is_below_its_true_accuracy_as_often_as_stated() -> None:
    # 100 prompts of one true accuracy: the best count is far above it, which a bound without correction forgets.
    random, truth, tries = np.random.default_rng(1), 0.4, 100
    best = random.binomial(200, truth, size=(N_RUNS, tries)).max(axis=1).tolist()
    held = {
        chosen: (with_tests(accuracies(best, 200, 0.25, tries, n_chosen_from=chosen))["accuracy_lower_bound"] <= truth)
        for chosen in (1, tries)
    }
    assert held[tries].sum() >= stats.binom.ppf(0.001, N_RUNS, ASSURANCE)
    assert held[1].mean() < 0.1


def test_a_tail_too_small_for_a_float_is_a_p_value_of_zero_and_keeps_its_logarithm() -> None:
    found = with_tests(accuracies([2_000], 2_000, 0.5, 1)).row(0, named=True)
    assert (found["p_value"], found["p_holm"], found["better_than_uniform"]) == (0, 0, True)
    assert found["log10_tail"] == pytest.approx(-2_000 * log10(2))
