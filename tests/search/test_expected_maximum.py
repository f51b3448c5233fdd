from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.search.expected_maximum import expected_maximum


def test_a_worked_example():
    # Of 1, 2, 4 the pairs have maxima 2, 4, 4: 10/3. One try finds the mean, 7/3; three find 4.
    assert expected_maximum(np.array([4, 1, 2]), np.array([1, 2, 3])).tolist() == pytest.approx([7 / 3, 10 / 3, 4])


@given(st.lists(st.integers(0, 12), min_size=1, max_size=9))
def test_it_is_the_mean_maximum_over_all_subsets(correct):
    tries = np.arange(1, len(correct) + 1)
    subsets = [[max(subset) for subset in combinations(correct, size)] for size in tries]
    exact = [Fraction(sum(maxima), len(maxima)) for maxima in subsets]
    assert expected_maximum(np.array(correct), tries) == pytest.approx([float(value) for value in exact], rel=1e-12)


def test_many_prompts_and_some_numbers_of_tries():
    correct = np.arange(1000)  # E max of m from 0..T-1 without replacement is m (T + 1) / (m + 1) - 1
    tries = np.array([1, 10, 999, 1000])
    expected = [float(Fraction(int(m) * 1001, int(m) + 1) - 1) for m in tries]
    assert expected_maximum(correct, tries) == pytest.approx(expected, rel=1e-12)
