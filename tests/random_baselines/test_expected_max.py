"""The expected best of several prompts, against hand-worked numbers, every subset and every draw there is."""

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.random_baselines.max_random import expected_maximum, expected_maximum_of_draws


def test_subsets_of_three_prompts() -> None:
    # Of 1, 2, 4 the pairs have maxima 2, 4, 4: 10/3. One try finds the mean, 7/3; three find 4.
    assert expected_maximum([4, 1, 2], [1, 2, 3]) == pytest.approx([7 / 3, 10 / 3, 4])


def test_two_draws_from_two_prompts() -> None:
    # Of four equally likely pairs of .2 and .6 only one has .2 as its best: (.2 + 3 x .6) / 4 = .5
    assert expected_maximum_of_draws([0.6, 0.2], 2) == pytest.approx(0.5)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=9))
def test_it_is_the_mean_over_all_subsets(counts: list[int]) -> None:
    tries = np.arange(1, len(counts) + 1)
    subsets = [[max(subset) for subset in combinations(counts, size)] for size in tries]
    exact = [Fraction(sum(maxima), len(maxima)) for maxima in subsets]
    assert expected_maximum(counts, tries) == pytest.approx([float(value) for value in exact], rel=1e-12)


@pytest.mark.parametrize("tries", [1, 2, 3, 4])
def test_it_is_the_mean_over_every_draw_with_replacement(tries: int) -> None:
    accuracies = [0.1, 0.4, 0.4, 0.9, 0.3]
    every_best = [max(draw) for draw in product(accuracies, repeat=tries)]
    assert expected_maximum_of_draws(accuracies, tries) == pytest.approx(np.mean(every_best))


def test_many_prompts_and_some_numbers_of_tries() -> None:
    # The highest of m different numbers from 0 to T - 1 is expected to be m (T + 1) / (m + 1) - 1.
    tries = np.array([1, 10, 999, 1000])
    expected = [float(Fraction(int(m) * 1001, int(m) + 1) - 1) for m in tries]
    assert expected_maximum(np.arange(1000), tries) == pytest.approx(expected, rel=1e-12)


def test_all_prompts_find_the_best_and_as_many_draws_do_not() -> None:
    # Three draws of three prompts miss the best with probability 8/27 and the two best with 1/27.
    assert expected_maximum([0.25, 0.5, 0.75], 3) == 0.75
    assert expected_maximum_of_draws([0.25, 0.5, 0.75], 3) == pytest.approx(0.75 - 0.25 * 8 / 27 - 0.25 / 27)
    assert expected_maximum_of_draws([0.25, 0.5, 0.75], 1000) == pytest.approx(0.75)


@pytest.mark.parametrize("of", [expected_maximum, expected_maximum_of_draws])
def test_prompts_that_are_all_as_good_find_what_one_finds(of: Callable[..., object]) -> None:
    assert of([0.5] * 4, [1, 2, 4]) == pytest.approx([0.5] * 3)
