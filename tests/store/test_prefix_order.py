"""Prefix order and the floors, against Python's own sort and against sets of prefixes counted one by one."""

import operator
from itertools import takewhile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.store.prefix_order import block_floor, prefix_order, token_floor

INT32 = np.iinfo(np.int32)

tokens_ = st.sampled_from([0, 1, 255, 256, -1, INT32.min, INT32.max])  # bytes, signs and extremes that sort apart
token_rows = st.lists(st.lists(tokens_, max_size=9), max_size=25)


def flat(rows):
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return np.array([token for row in rows for token in row], dtype=np.int32), offsets


@given(token_rows)
def test_order_is_that_of_python_lists_and_equal_rows_keep_theirs(rows):
    assert prefix_order(*flat(rows)).tolist() == sorted(range(len(rows)), key=rows.__getitem__)


@given(token_rows)
def test_in_prefix_order_the_row_above_shares_as_much_as_any_earlier_row(rows):
    rows = sorted(rows)
    for i in range(1, len(rows)):
        shared = [len([*takewhile(bool, map(operator.eq, earlier, rows[i]))]) for earlier in rows[:i]]
        assert shared[-1] == max(shared)


@given(token_rows)
def test_token_floor_counts_the_nodes_of_the_trie(rows):
    nodes = {tuple(row[: i + 1]) for row in rows for i in range(len(row))}
    assert token_floor(*flat(sorted(rows))) == len(nodes)


@given(token_rows, st.integers(1, 5))
def test_block_floor_is_what_an_endless_cache_of_whole_blocks_leaves_to_compute(rows, block_tokens):
    cache: set[tuple[int, ...]] = set()
    computed = 0
    for row in map(tuple, sorted(rows)):
        blocks = [row[:end] for end in range(block_tokens, len(row) + 1, block_tokens)]
        hit = 0
        for block in blocks:  # the engine reads block by block, until one is missing or holds the last token
            if block not in cache or len(block) == len(row):
                break
            hit = len(block)
        computed += len(row) - hit
        cache.update(blocks)
    assert block_floor(*flat(sorted(rows)), block_tokens) == computed


def test_hand_worked_floors():
    rows = [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 9]]
    # Trie: 1, 12, 123, 1234, 12345, 129 are six nodes. Blocks of two: 4 tokens for the first row; its repetition shares
    # both blocks but must compute its last token, so it reuses one and computes 2; the third reuses two and computes 1;
    # the fourth shares 1 2 and computes 1. In all 4 + 2 + 1 + 1.
    assert token_floor(*flat(rows)) == 6
    assert block_floor(*flat(rows), 2) == 8
    assert block_floor(*flat(rows), 8) == 16  # no whole block to share: every token is computed


def test_floors_count_only_the_rows_of_a_sliced_column():
    tokens, offsets = flat([[9], [1, 2], [1, 3], [0]])
    assert token_floor(tokens, offsets[1:4]) == 3
    assert block_floor(tokens, offsets[1:4], 1) == 3
    assert prefix_order(tokens, offsets[1:]).tolist() == [2, 0, 1]


@pytest.mark.parametrize("rows", [[], [[]], [[], []]])
def test_nothing_to_compute_is_zero(rows):
    assert prefix_order(*flat(rows)).tolist() == list(range(len(rows)))
    assert token_floor(*flat(rows)) == block_floor(*flat(rows), 16) == 0


@given(token_rows)
def test_floors_refuse_rows_that_are_out_of_order(rows):
    if rows == sorted(rows):
        token_floor(*flat(rows))
    else:
        for floor in (token_floor, lambda *args: block_floor(*args, 16)):
            with pytest.raises(ValueError, match="in prefix order; sort by prefix_order first"):
                floor(*flat(rows))


def test_a_block_of_no_tokens_is_refused():
    with pytest.raises(ValueError, match="block_tokens must be 1 or more, got 0"):
        block_floor(*flat([[1]]), 0)
