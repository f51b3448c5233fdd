"""Which beginnings of prompts are worth a request of their own before them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from evaluator.engine.prefixes import n_shared, shared_prefixes

UNIT = 16


def tokens(start: int, n: int) -> list[int]:
    return list(range(start, start + n))


def test_a_beginning_is_cut_to_the_unit_and_gets_one_token_more():
    shared = tokens(0, 100)
    contexts = [[*shared, 500 + n, 7] for n in range(3)]
    assert shared_prefixes(contexts, UNIT) == [[tokens(0, 97)]]


def test_a_longer_beginning_within_a_shorter_one_comes_in_the_next_level():
    short, long = tokens(0, 32), tokens(0, 96)
    contexts = [*([*long, 500 + n] for n in range(3)), *([*short, 900 + n] for n in range(3))]
    first, second = shared_prefixes(contexts, UNIT)
    assert [len(prefix) for prefix in first] == [33]
    assert [len(prefix) for prefix in second] == [97]


def test_neighbouring_beginnings_are_in_one_level():
    contexts = [[*tokens(start, 96), n] for start in (0, 1000) for n in range(3)]
    assert [len(level) for level in shared_prefixes(contexts, UNIT)] == [2]


def test_what_saves_less_than_a_request_costs_is_left_out():
    assert shared_prefixes([[*tokens(0, 32), n] for n in range(2)], UNIT) == []
    assert shared_prefixes([[*tokens(0, 32), n] for n in range(3)], UNIT) == [[[*tokens(0, 32), 2]]]


def test_prompts_that_share_nothing_and_a_single_one_have_none():
    assert shared_prefixes([tokens(0, 100), tokens(200, 100)], UNIT) == []
    assert shared_prefixes([tokens(0, 100)], UNIT) == []
    assert shared_prefixes([], UNIT) == []


def test_the_property_below_is_about_prefixes_that_are_there():
    contexts = sorted([[0] * 40, [0] * 36 + [1] * 4, [0] * 36 + [2] * 4, [1] * 40])
    assert sum(map(len, shared_prefixes(contexts * 8, 4)))


@given(st.lists(st.lists(st.integers(0, 1), max_size=8).map(lambda units: [u for u in units for _ in range(4)])))
def test_every_prefix_begins_several_contexts_and_one_of_the_level_before(contexts):
    contexts = sorted(contexts)
    levels = shared_prefixes(contexts, 4)
    found = [prefix for level in levels for prefix in level]
    for prefix in found:
        shared = prefix[: (len(prefix) - 1) // 4 * 4]
        assert shared
        assert sum(context[: len(shared)] == shared for context in contexts) > 1
    for before, level in pairwise(levels):
        assert all(any(n_shared(one, prefix) >= (len(one) - 1) // 4 * 4 > 0 for one in before) for prefix in level)
    # What is left to share, beside these, saves less than 64 tokens for all contexts that begin alike.
    for one in {tuple(context[:n]) for context in contexts for n in range(4, len(context) + 1, 4)}:
        members = sum(tuple(context[: len(one)]) == one for context in contexts)
        covered = max((n_shared(prefix[:-1], one) for prefix in found), default=0)
        assert (members - 1) * (len(one) - covered) < 64 + 64
