"""Shared prefix lengths against a comparison token by token."""

import operator
from itertools import takewhile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator_kernels.shared_prefix import ROWS, WINDOW, shared_prefix_lengths

INT32 = np.iinfo(np.int32)

# Few different tokens, or random rows would share nothing; the extremes, where a subtraction would overflow.
tokens_ = st.sampled_from([0, 1, -1, INT32.min, INT32.max])
token_rows = st.lists(st.lists(tokens_, max_size=9), max_size=25)


def flat(rows):
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return np.array([token for row in rows for token in row], dtype=np.int32), offsets


def token_by_token(rows):
    pairs = zip([[], *rows], rows, strict=False)
    return np.array([len([*takewhile(bool, map(operator.eq, above, row))]) for above, row in pairs], dtype=np.int32)


@given(token_rows)
def test_random_rows_share_the_common_prefix_of_neighbours(rows):
    np.testing.assert_array_equal(shared_prefix_lengths(*flat(rows)), token_by_token(rows), strict=True)


def test_hand_worked_rows():
    rows = [[7, 8, 9], [7, 8], [7, 8], [], [7], [INT32.min, INT32.max], [INT32.min, INT32.max, 1], [INT32.max]]
    # No row above; 7 8; 7 8; nothing with an empty row, twice; 7 against min; the whole row above; min against max.
    assert shared_prefix_lengths(*flat(rows)).tolist() == [0, 2, 2, 0, 0, 0, 2, 0]


@pytest.mark.parametrize("rows", [[], [[]], [[], [], []], [[5]], [[5, 6, 7]]])
def test_rows_without_a_neighbour_or_without_tokens_share_nothing(rows):
    assert shared_prefix_lengths(*flat(rows)).tolist() == [0] * len(rows)


def test_long_ragged_rows_share_the_common_prefix_of_neighbours():
    """More rows than are compared at a time, longer than a window."""
    random = np.random.default_rng(0)
    stems = random.integers(0, 2, size=(7, 3 * WINDOW))
    rows = [
        [*stems[random.integers(7), : random.integers(3 * WINDOW + 1)], *random.integers(0, 2, 13)]
        for _ in range(2 * ROWS)
    ]
    expected = token_by_token(rows)
    assert expected.max() > 2 * WINDOW
    np.testing.assert_array_equal(shared_prefix_lengths(*flat(rows)), expected, strict=True)


@pytest.mark.parametrize("shared", [WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW])
def test_rows_that_differ_or_end_at_the_edge_of_a_window(shared):
    rows = [[1] * shared, [1] * shared, [*[1] * shared, 2], [*[1] * shared, 3], [1] * shared]
    assert shared_prefix_lengths(*flat(rows)).tolist() == [0, *[shared] * 4]


def test_rows_on_both_sides_of_what_is_compared_at_a_time():
    rows = [[7, row // 2] for row in range(2 * ROWS + 3)]
    assert shared_prefix_lengths(*flat(rows)).tolist() == [0, *[2, 1] * (ROWS + 1)]


def test_rows_may_begin_and_end_inside_the_tokens_as_in_a_sliced_column():
    tokens, offsets = flat([[9, 9], [1, 2, 3], [1, 2], [9, 9]])
    assert shared_prefix_lengths(tokens, offsets[1:4]).tolist() == [0, 2]


def test_read_only_strided_and_unaligned_arrays_are_accepted():
    tokens, offsets = flat([[1, 2, 3], [1, 2, 4]])
    read_only = tokens.copy()
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"\0" + tokens.tobytes(), dtype=np.int32, offset=1)
    assert not unaligned.flags.aligned
    for same_tokens in (read_only, np.repeat(tokens, 2)[::2], unaligned):
        assert shared_prefix_lengths(same_tokens, offsets).tolist() == [0, 2]


@pytest.mark.parametrize(
    ("tokens", "offsets", "error", "message"),
    [
        (np.zeros(2, np.int64), np.array([0, 2]), TypeError, "tokens must be int32, got int64"),
        (np.zeros(2, np.int32), np.array([0, 2], np.int32), TypeError, "offsets must be int64, got int32"),
        (np.zeros((2, 1), np.int32), np.array([0, 2]), ValueError, r"tokens must have one axis, got shape \(2, 1\)"),
        (np.zeros(2, np.int32), np.array([[0, 2]]), ValueError, r"offsets must have one axis, got shape \(1, 2\)"),
        (np.zeros(2, np.int32), np.zeros(0, np.int64), ValueError, "offsets must hold n_rows"),
        (np.zeros(2, np.int32), np.array([-1, 2]), ValueError, "within the 2 tokens, got -1 to 2"),
        (np.zeros(2, np.int32), np.array([0, 3]), ValueError, "within the 2 tokens, got 0 to 3"),
        (np.zeros(2, np.int32), np.array([0, 1, 0, 2]), ValueError, "row 1 ends before it begins"),
        (np.zeros(2, np.int32), np.array([0, 9, 2]), ValueError, "row 1 ends before it begins"),
    ],
)
def test_what_is_not_a_flat_column_of_rows_is_refused(tokens, offsets, error, message):
    with pytest.raises(error, match=message):
        shared_prefix_lengths(tokens, offsets)
