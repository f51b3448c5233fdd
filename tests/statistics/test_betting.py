"""Bets on a mean: exact levels at any stopping time, by all sequences, and power after a change."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.statistics.betting import FIRST_START, FRACTIONS, e_process, two_sided_e_process


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
