"""Bets on a mean: exact levels at any stopping time, by all sequences, and power after a change."""

from fractions import Fraction
from itertools import combinations, permutations, product

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.run.until import block_size
from evaluator.statistics.betting import (
    ALTERNATIVES,
    FIRST_START,
    FRACTIONS,
    Planned,
    e_process,
    log_capital,
    log_capitals,
    mean_interval,
    two_sided_e_process,
)
from evaluator.statistics.paired import paired_test
from tests.shared_data import shared_data


@pytest.mark.parametrize("mean", [Fraction(1, 20), Fraction(1, 10), Fraction(1, 2), Fraction(9, 10)])
def test_the_mean_capital_is_1_over_all_sequences_and_no_stopping_rule_raises_it(mean: Fraction) -> None:
    n = 8
    sequences = np.array(list(product([0.0, 1.0], repeat=n)))
    chances = np.prod(np.where(sequences == 1, float(mean), 1 - float(mean)), axis=1)
    capital = np.array([e_process(values, float(mean)) for values in sequences])
    assert chances @ capital == pytest.approx(np.ones(n))
    # Stopping at the first capital of c: the mean at that time is 1 as well, so at most 1 / c of sequences reach it.
    for c in (1.2, 2.0, 5.0, 20.0):
        reached = capital >= c
        stop = np.where(reached.any(axis=1), reached.argmax(axis=1), n - 1)
        assert chances @ capital[np.arange(len(stop)), stop] == pytest.approx(1)
        assert chances @ reached.any(axis=1) <= 1 / c


@given(st.lists(st.floats(0, 1), max_size=300), st.floats(0.01, 0.99))
def test_capital_is_positive_and_past_capital_does_not_depend_on_later_values(values: list[float], mean: float) -> None:
    capital = e_process(values, mean)
    assert len(capital) == len(values)
    assert (capital > 0).all()
    half = len(values) // 2
    assert capital[:half] == pytest.approx(e_process(values[:half], mean))


def test_capital_of_the_first_start_is_the_mean_over_products_and_half_of_it_waits() -> None:
    values = [1, 0, 0, 1]
    bets = [np.prod([1 + fraction / 0.25 * (value - 0.25) for value in values]) for fraction in FRACTIONS]
    assert e_process(values, 0.25)[-1] == pytest.approx(0.5 * np.mean(bets) + 0.5)


def test_at_most_5_percent_of_streams_without_drift_ever_raise_an_alarm_and_most_with_drift_do() -> None:
    rng = np.random.default_rng(5)
    draws = rng.random((300, 1_500))
    ever = {rate: np.mean([e_process(row < rate, 0.1).max() >= 20 for row in draws]) for rate in (0.1, 0.05, 0.17)}
    assert ever[0.1] <= 0.05
    assert ever[0.05] <= 0.01
    assert ever[0.17] > 0.95
    # An error rate that doubles after a long time at half of what is promised.
    late = np.where(np.arange(1_500) < 10 * FIRST_START, 0.05, 0.2)
    assert np.mean([e_process(row < late, 0.1).max() >= 20 for row in draws[:100]]) > 0.95


def test_both_directions_of_change_are_bet_on_and_fair_signs_have_a_mean_capital_of_1() -> None:
    assert two_sided_e_process(np.ones(30))[-1] == two_sided_e_process(-np.ones(30))[-1] > 1_000
    capital = [two_sided_e_process(signs) for signs in product([-1, 1], repeat=8)]
    assert np.mean(capital, axis=0) == pytest.approx(np.ones(8))
    assert two_sided_e_process([]).tolist() == []


@pytest.mark.parametrize("values", [(1, 0, 0, 1, 0, 0), (0.5, 1, 0, 0, 0.5, 1), (1, 1, 1, 1, 0, 1)])
def test_the_mean_capital_over_all_orders_of_all_values_is_1_whatever_goes_with_them(values: tuple[float, ...]) -> None:
    known = np.array([1, 0.5, 0, 1, 0, 0])
    orders = np.array(list(permutations(range(6))))
    x, y = np.array(values)[orders], known[orders]
    for planned in (Planned(6, known=y), Planned(6)):
        capital = np.exp(log_capital(x, np.mean(values), planned))
        assert capital.mean(axis=0) == pytest.approx(np.ones(6))
        # Of a mean that is lower than the one that is bet against, the capital falls.
        assert (np.exp(log_capital(x, np.mean(values) + 0.1, planned)).mean(axis=0) < 1).all()


def test_the_mean_capital_of_a_sample_is_1_and_its_first_bet_is_that_of_the_alternatives() -> None:
    sequences = np.array(list(product([0.0, 1.0], repeat=8)))
    chances = np.prod(np.where(sequences == 1, 0.8, 0.2), axis=1)
    capital = np.exp(log_capital(sequences, 0.8, Planned(100, is_sample=True)))
    assert chances @ capital == pytest.approx(np.ones(8))
    # Before the first value its variance counts as 0.5 - 0.25; no bet loses more than 0.9 on a value of 0.
    first = sum(share * (1 + min(z / (100 * 0.25) ** 0.5, 0.9) * 0.2) for z, share in ALTERNATIVES)
    assert capital[-1, 0] == pytest.approx(first)


@pytest.mark.parametrize("n", [40, 400])
@pytest.mark.parametrize("n_changed", [2, 6, 30])
@pytest.mark.parametrize("levels", [[0, 1], [0, 0.5, 1]])
def test_equal_accuracies_are_told_apart_in_at_most_5_percent_of_orders_at_any_time(n, n_changed, levels) -> None:
    rng = np.random.default_rng([n, n_changed])
    known = rng.choice(levels, (1_500, n), p=[0.2, *[0.8 / (len(levels) - 1)] * (len(levels) - 1)])
    values = known.copy()
    # As many queries are answered better as worse, at random places.
    for x, y in zip(values, known, strict=True):
        wrong, right = np.flatnonzero(y == 0), np.flatnonzero(y == 1)
        k = min(n_changed // 2, len(wrong), len(right))
        x[rng.permutation(wrong)[:k]], x[rng.permutation(right)[:k]] = 1, 0
    assert values.sum(axis=1) == pytest.approx(known.sum(axis=1))
    capitals = log_capitals(values, known.mean(axis=1), Planned(n, known=known))
    assert (np.maximum(*capitals).max(axis=1) >= np.log(40)).mean() <= 0.05
    new = log_capitals((1 + values - known) / 2, 0.5, Planned(n, is_sample=True))
    assert (np.maximum(*new).max(axis=1) >= np.log(40)).mean() <= 0.05


@pytest.mark.parametrize("accuracy", [0.5, 0.9, 0.98])
def test_an_interval_holds_the_mean_in_95_percent_of_draws_however_long_one_waits(accuracy: float) -> None:
    draws = np.random.default_rng(3).random((1_500, 300)) < accuracy
    for planned, means in ((Planned(300, is_sample=True), accuracy), (Planned(300), draws.mean(axis=1))):
        assert (np.maximum(*log_capitals(draws, means, planned)).max(axis=1) >= np.log(40)).mean() <= 0.05
    # The interval is the means that are not refuted; of all values, it is their mean.
    planned = Planned(300)
    low, high = mean_interval(draws[0, :100], planned, 0.05)
    assert low < draws[0].mean() < high
    for outside, inside, side in ((low - 1e-6, low + 1e-6, 0), (high + 1e-6, high - 1e-6, 1)):
        assert log_capitals(draws[0, :100], outside, planned)[side].max() >= np.log(40)
        assert log_capitals(draws[0, :100], inside, planned)[side].max() < np.log(40)
    assert mean_interval(draws[0], planned, 0.05) == pytest.approx((draws[0].mean(),) * 2, abs=1e-6)


def test_half_of_the_queries_decide_what_the_exact_test_decides_on_all_published_ones() -> None:
    """Pairs of models after the same demonstrations, of Yauney & Mimno 2024: a sample of all settings."""
    answers = pl.read_parquet(shared_data("random_baselines") / "few_shot_predictions.parquet", columns=COLUMNS)
    rng, shares = np.random.default_rng(7), []
    chosen = answers.filter(pl.col("prompt_id") < 3).with_columns(pl.col("model", "dataset").cast(pl.String))
    for rows in chosen.partition_by("dataset", "shots", "prompt_id"):
        by_model = [one.select("example_id", "correct") for one in rows.partition_by("model")]
        for one, other in combinations(by_model, 2):
            pairs = one.join(other, on="example_id").select("correct", "correct_right").to_numpy().astype(float)
            if paired_test(pairs[:, 0] - pairs[:, 1]).p_value <= 0.05:
                shares.append(_share_needed(rng.permutation(pairs)))
    assert len(shares) > 400
    assert np.median(shares) <= 0.5


COLUMNS = ["model", "dataset", "shots", "prompt_id", "example_id", "correct"]


def _share_needed(pairs: np.ndarray) -> float:
    """Return the share of the queries after which a block ends with a decision, blocks as in evaluator.run.until."""
    n = len(pairs)
    capital = np.maximum(*log_capitals(pairs[:, 0], pairs[:, 1].mean(), Planned(n, known=pairs[:, 1])))
    ends = np.arange(block_size(n), n, block_size(n))
    decided = ends[capital[ends - 1] >= np.log(40)]
    return decided[0] / n if len(decided) else 1.0
