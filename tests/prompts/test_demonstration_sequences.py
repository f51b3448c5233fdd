import math

import numpy as np
import pytest

from evaluator.prompts.demonstration_sequences import demonstration_sequences


@pytest.mark.parametrize(
    ("n_pool", "n_shots", "n_sequences"), [(5, 2, 20), (5, 2, 7), (6, 3, 500), (300, 4, 50), (3, 0, 4)]
)
def test_sequences_differ_and_show_no_example_twice(n_pool, n_shots, n_sequences):
    sets = demonstration_sequences(n_pool=n_pool, n_shots=n_shots, n_sequences=n_sequences, seed=1)
    assert sets.shape == (min(n_sequences, math.perm(n_pool, n_shots)), n_shots)
    assert len({tuple(row) for row in sets.tolist()}) == len(sets)
    assert all(len(set(row)) == n_shots and set(row) <= set(range(n_pool)) for row in sets.tolist())


@pytest.mark.parametrize("n_pool", [8, 300])  # all sequences listed, and drawn one by one
def test_fewer_sequences_are_the_first_of_more_and_another_seed_gives_others(n_pool):
    many = demonstration_sequences(n_pool=n_pool, n_shots=4, n_sequences=100, seed=1)
    np.testing.assert_array_equal(demonstration_sequences(n_pool=n_pool, n_shots=4, n_sequences=30, seed=1), many[:30])
    assert not np.array_equal(demonstration_sequences(n_pool=n_pool, n_shots=4, n_sequences=100, seed=2), many)


def test_all_sequences_come_up_when_as_many_are_asked_for():
    sets = demonstration_sequences(n_pool=4, n_shots=2, n_sequences=1000, seed=0)
    assert {tuple(row) for row in sets.tolist()} == {(a, b) for a in range(4) for b in range(4) if a != b}


def test_every_example_is_shown_about_equally_often_at_every_place():
    # 3,000 sequences over 10 examples: 300 a place and example, with a binomial deviation of 16.4.
    sets = demonstration_sequences(n_pool=10, n_shots=5, n_sequences=3000, seed=3)
    counts = np.stack([np.bincount(column, minlength=10) for column in sets.T])
    assert np.abs(counts - 300).max() < 5 * 16.4
