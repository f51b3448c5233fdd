"""Prefix order and the floors, against Python's own sort and against sets of prefixes counted one by one."""

import operator
from itertools import takewhile

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.schemas import TOKENS
from evaluator.tokens.rows import count_tokens, fed_rows, floors
from evaluator.tokens.table import in_prefix_order
from tests.tokens.token_frames import token_table

A, B, C, *MORE = (f"{number:032x}" for number in range(33))  # ids of prompts

INT32, CONTEXT = np.iinfo(np.int32), TOKENS["context"]

tokens_ = st.sampled_from([0, 1, 255, 256, -1, INT32.min, INT32.max])  # bytes, signs and extremes that sort apart
token_rows = st.lists(st.lists(tokens_, max_size=9), max_size=25)


def flat(rows):
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return np.array([token for row in rows for token in row], dtype=np.int32), offsets


@given(token_rows)
def test_order_is_that_of_python_lists_and_equal_rows_keep_theirs(rows):
    numbered = pl.LazyFrame({"number": range(len(rows)), "ask": "labels", "context": pl.Series(rows, dtype=CONTEXT)})
    order = in_prefix_order(numbered).collect(engine="streaming")["number"].to_list()
    assert order == sorted(range(len(rows)), key=rows.__getitem__)


@given(token_rows)
def test_in_prefix_order_the_row_above_shares_as_much_as_any_earlier_row(rows):
    rows = sorted(rows)
    for i in range(1, len(rows)):
        shared = [len([*takewhile(bool, map(operator.eq, earlier, rows[i]))]) for earlier in rows[:i]]
        assert shared[-1] == max(shared)


@given(token_rows)
def test_token_floor_counts_the_nodes_of_the_trie(rows):
    nodes = {tuple(row[: i + 1]) for row in rows for i in range(len(row))}
    assert floors(*flat(sorted(rows)))[0] == len(nodes)


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
    assert floors(*flat(sorted(rows)), [block_tokens])[1] == computed


def test_hand_worked_floors():
    rows = [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 9]]
    # Trie: 1, 12, 123, 1234, 12345, 129 are six nodes. Blocks of two: 4 tokens for the first row; its repetition shares
    # both blocks but must compute its last token, so it reuses one and computes 2; the third reuses two and computes 1;
    # the fourth shares 1 2 and computes 1. In all 4 + 2 + 1 + 1.
    assert floors(*flat(rows))[0] == 6
    assert floors(*flat(rows), [2])[1] == 8
    assert floors(*flat(rows), [8])[1] == 16  # no whole block to share: every token is computed


def test_floors_count_only_the_rows_of_a_sliced_column():
    tokens, offsets = flat([[9], [1, 2], [1, 3], [0]])
    assert floors(tokens, offsets[1:4])[0] == 3
    assert floors(tokens, offsets[1:4], [1])[1] == 3


@pytest.mark.parametrize("rows", [[], [[]], [[], []]])
def test_nothing_to_compute_is_zero(rows):
    assert floors(*flat(rows))[0] == floors(*flat(rows), [16])[1] == 0


@given(token_rows)
def test_floors_refuse_rows_that_are_out_of_order(rows):
    if rows == sorted(rows):
        floors(*flat(rows))
    else:
        with pytest.raises(ValueError, match="in prefix order; sort the rows first"):
            floors(*flat(rows))


def test_the_floor_counts_each_token_after_its_own_prefix_once(tmp_path):
    tokens = in_prefix_order(
        token_table((A, [1, 2, 3], [[9], [8]]), (B, [1, 2, 4], [[9], [8]]), (C, [1, 2, 3, 5], [[9], [8]])).lazy()
    )
    requests = pl.LazyFrame({"prompt_id": [A, A, B, C]})
    counts = count_tokens(requests, tokens, tmp_path)
    assert counts.request_tokens == 3 + 3 + 3 + 4
    assert counts.tokens == 3 + 3 + 4
    # The trie: 1, 1 2, 1 2 3, 1 2 4, 1 2 3 5.
    assert counts.floor_tokens == 5
    # No row fills a block of 16, so nothing can be shared.
    assert counts.block_floor_tokens == {"16": 10, "32": 10, "128": 10}


def test_a_label_of_several_tokens_adds_all_but_its_last_to_what_is_fed(tmp_path):
    tokens = in_prefix_order(token_table((A, [1, 2], [[7], [8, 9, 3], [8, 9, 4]])).lazy())
    with fed_rows(tokens, tmp_path) as fed:
        assert fed.unique().sort("context").collect()["context"].to_list() == [[1, 2], [1, 2, 8, 9]]
    assert count_tokens(pl.LazyFrame({"prompt_id": [A]}), tokens, tmp_path).floor_tokens == 4


def test_floors_do_not_depend_on_how_many_rows_are_counted_together(tmp_path, monkeypatch):
    # Stems that come after the contexts of many other rows: 1 8 9 after 1 2 ... 1 7.
    rows = [(MORE[i], [1, *([i] * (i % 3)), i % 5], [[8, 9, i], [8, 7]]) for i in range(30)]
    tokens = in_prefix_order(token_table(*rows).lazy())
    fed = [context + stem for _, context, _ in rows for stem in ([], [8, 9], [8])]
    prefixes = {tuple(row[:n]) for row in fed for n in range(1, len(row) + 1)}
    requests = pl.LazyFrame({"prompt_id": [MORE[0], MORE[0], MORE[7]]})
    for n_rows in (3, 1000):
        monkeypatch.setattr("evaluator.tokens.rows.ROWS_COUNTED", n_rows)
        counts = count_tokens(requests, tokens, tmp_path)
        assert counts.floor_tokens == len(prefixes)
        assert counts.block_floor_tokens["16"] == sum(map(len, {tuple(row) for row in fed}))  # no row fills a block
        assert counts.request_tokens == 2 * len(rows[0][1]) + len(rows[7][1])


def test_last_tokens_come_after_the_labels_of_the_same_context():
    rows = token_table((A, [2, 1], [[9]]), (B, [1], [[9]]), (C, [1], [[8]])).with_columns(
        ask=pl.Series(["labels", "last_tokens", "labels"])
    )
    assert in_prefix_order(rows.lazy()).collect()["prompt_id"].to_list() == [C, B, A]
