import polars as pl
import pytest

from evaluator.store import sorted_runs
from evaluator.tokens.counts import Floors, count_tokens, fed_rows
from evaluator.tokens.table import in_prefix_order
from tests.tokens.token_frames import token_table

A, B, C, *MORE = (f"{number:032x}" for number in range(33))  # ids of prompts


def test_the_floor_counts_each_token_after_its_own_prefix_once():
    tokens = token_table((A, [1, 2, 3], [[9], [8]]), (B, [1, 2, 4], [[9], [8]]), (C, [1, 2, 3, 5], [[9], [8]]))
    requests = pl.LazyFrame({"prompt_id": [A, A, B, C]})
    counts = count_tokens(requests, tokens)
    assert counts.request_tokens == 3 + 3 + 3 + 4
    assert counts.tokens == 3 + 3 + 4
    # The trie: 1, 1 2, 1 2 3, 1 2 4, 1 2 3 5.
    assert counts.floor_tokens == 5
    # No row fills a block of 16, so nothing can be shared.
    assert counts.block_floor_tokens["16"] == 10


def test_a_label_of_several_tokens_adds_all_but_its_last_to_what_is_fed():
    tokens = token_table((A, [1, 2], [[7], [8, 9, 3], [8, 9, 4]]))
    assert sorted(fed_rows(tokens).to_list()) == [[1, 2], [1, 2, 8, 9]]
    assert count_tokens(pl.LazyFrame({"prompt_id": [A]}), tokens).floor_tokens == 4


@pytest.mark.parametrize("n_runs", [1, 3])
def test_floors_do_not_depend_on_the_ranges_in_which_rows_are_added(tmp_path, monkeypatch, n_runs):
    monkeypatch.setattr(sorted_runs, "BATCH_ROWS", 2)
    # Stems that come after the contexts of later ranges: 1 8 9 after 1 2 ... 1 7.
    rows = [(MORE[i], [1, *([i] * (i % 3)), i % 5], [[8, 9, i], [8, 7]]) for i in range(30)]
    tokens = token_table(*rows)
    runs, floors = sorted_runs.SortedRuns(tmp_path, "context", in_prefix_order), Floors()
    for run in range(n_runs):
        runs.add(tokens[run::n_runs])
    for part, before in runs.ranges(4):
        floors.add(part, before)
    fed = [context + stem for _, context, _ in rows for stem in ([], [8, 9], [8])]
    prefixes = {tuple(row[:n]) for row in fed for n in range(1, len(row) + 1)}
    counts = floors.totals(pl.LazyFrame({"prompt_id": [MORE[0], MORE[0], MORE[7]]}), tokens.lazy())
    assert counts.floor_tokens == len(prefixes)
    assert counts.block_floor_tokens["16"] == sum(map(len, {tuple(row) for row in fed}))  # no row fills a block
    assert counts.request_tokens == 2 * len(rows[0][1]) + len(rows[7][1])
