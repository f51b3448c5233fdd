from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from evaluator.store import sorted_runs
from evaluator.tokens.table import in_prefix_order
from tests.tokens.token_frames import token_table


@pytest.mark.parametrize("n_runs", [1, 2, 7])
def test_token_rows_come_back_in_prefix_order_with_equal_contexts_as_added_and_last_tokens_behind(
    tmp_path, monkeypatch, n_runs
):
    monkeypatch.setattr(sorted_runs, "BATCH_ROWS", 3)
    rng = np.random.default_rng(0)
    contexts = [rng.integers(0, 3, rng.integers(1, 5)).tolist() for _ in range(100)]
    is_last = rng.random(100) < 0.3
    rows = token_table(*((f"p{i:02d}", context, [[9]]) for i, context in enumerate(contexts)))
    rows = rows.with_columns(ask=pl.when(pl.Series(is_last)).then(pl.lit("last_tokens")).otherwise("ask"))
    runs = sorted_runs.SortedRuns(tmp_path, "context", in_prefix_order)
    for part in np.array_split(np.arange(100), n_runs):
        runs.add(rows[part])
    ranges = list(runs.ranges(6))
    order = sorted(range(100), key=lambda i: (contexts[i], bool(is_last[i]), i))
    assert pl.concat(part for part, _ in ranges).equals(rows[order])
    assert len(ranges) > 5
    for (part, before), (following, _) in pairwise(ranges):
        assert part["context"].to_list()[-1] < before <= following["context"].to_list()[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("n_runs", [1, 2, 5])
def test_texts_come_back_in_the_order_of_their_bytes_and_equal_ones_in_one_range(tmp_path, monkeypatch, n_runs):
    monkeypatch.setattr(sorted_runs, "BATCH_ROWS", 2)
    letters = ["", "a", "b", "ab", "z", "\u00e9", "\u4f60", "\U0001f600", "\ud7ff", "\uffff"]
    rng = np.random.default_rng(1)
    rows = pl.DataFrame({"text": rng.choice(letters, 60).tolist(), "number": range(60)})
    runs = sorted_runs.SortedRuns(tmp_path, "text", lambda rows: rows.sort("text", maintain_order=True))
    for part in np.array_split(np.arange(60), n_runs):
        runs.add(rows[part])
    ranges = [part for part, _ in runs.ranges(4)]
    assert pl.concat(ranges).rows() == sorted(rows.rows(), key=lambda row: (row[0].encode(), row[1]))
    assert len(ranges) > 3
    for part, following in pairwise(ranges):
        assert not {*part["text"]} & {*following["text"]}
