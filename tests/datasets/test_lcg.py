import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from StaICC.util.stable_random import stable_random

from evaluator.datasets import lcg
from evaluator.datasets.lcg import Lcg, places_before_removals


def test_the_first_draw_from_seed_42_is_the_hand_worked_one():
    # 42 * 1664525 + 1013904223 = 69910050 + 1013904223 = 1083814273, which is below 2**32.
    assert Lcg(42).floats(1).tolist() == [1083814273 / 2**32]


def test_draws_follow_the_recurrence_in_exact_integers():
    states = [42]
    for _ in range(2000):
        states.append((states[-1] * 1664525 + 1013904223) % 2**32)
    assert Lcg(42).floats(2000).tolist() == [state / 2**32 for state in states[1:]]


@given(st.lists(st.integers(0, 9), max_size=6))
def test_draws_do_not_depend_on_how_many_are_taken_at_once(sizes: list[int]):
    random, at_once = Lcg(), Lcg()
    in_parts = [draw for size in sizes for draw in random.floats(size).tolist()]
    assert in_parts == at_once.floats(sum(sizes)).tolist()


def test_samples_do_not_depend_on_how_many_are_drawn_at_once(monkeypatch: pytest.MonkeyPatch):
    at_once = Lcg().samples(10, 3, 20)
    monkeypatch.setattr(lcg, "SAMPLES_TOGETHER", 4)
    assert Lcg().samples(10, 3, 20).tolist() == at_once.tolist()
    assert Lcg().samples(0, 3, 20).shape == (0, 3)


def test_popped_items_get_their_original_places():
    # Popping place 1, 1, 0, 0 from [0, 1, 2, 3] takes 1 (left 0 2 3), then 2 (left 0 3), then 0, then 3.
    # Popping place 3, 0, 1, 0 from the same takes 3 (left 0 1 2), then 0 (left 1 2), then 2, then 1.
    places = places_before_removals(np.array([[1, 1, 0, 0], [3, 0, 1, 0]]))
    assert places.tolist() == [[1, 2, 0, 3], [3, 0, 2, 1]]


@given(st.data(), st.integers(0, 40), st.integers(1, 4))
def test_any_popped_items_get_their_original_places(data: st.DataObject, size: int, n_lists: int):
    n_draws = data.draw(st.integers(0, size))
    ranks = [[data.draw(st.integers(0, size - 1 - draw)) for draw in range(n_draws)] for _ in range(n_lists)]
    popped = []
    for row in ranks:
        left = list(range(size))
        popped.append([left.pop(rank) for rank in row])
    places = places_before_removals(np.array(ranks, dtype=np.int64).reshape(n_lists, n_draws))
    assert places.tolist() == popped


@given(st.integers(1, 5), st.integers(0, 300), st.data())
def test_samples_are_those_of_the_toolkit(n_samples: int, size: int, data: st.DataObject):
    n_draws = data.draw(st.integers(0, size))
    toolkit = stable_random()
    expected = [toolkit.sample_index_set(n_draws, size) for _ in range(n_samples)]
    random = Lcg()
    assert random.samples(n_samples, n_draws, size).tolist() == expected
    assert random.floats(1)[0] == toolkit.get_float()  # and both stand at the same state afterwards


def test_a_large_shuffle_is_that_of_the_toolkit():
    assert Lcg().samples(1, 20_000, 20_000)[0].tolist() == stable_random().sample_index_set(20_000, 20_000)


def test_more_draws_than_items_are_refused():
    with pytest.raises(ValueError, match="Cannot draw 4 of 3"):
        Lcg().samples(1, 4, 3)
