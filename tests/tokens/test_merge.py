from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from evaluator.tokens import merge
from tests.tokens.token_frames import token_table


@pytest.mark.parametrize("n_runs", [1, 2, 7])
def test_runs_come_back_in_prefix_order_with_equal_contexts_as_added_and_last_tokens_behind(
    tmp_path, monkeypatch, n_runs
):
    monkeypatch.setattr(merge, "BATCH_ROWS", 3)
    rng = np.random.default_rng(0)
    contexts = [rng.integers(0, 3, rng.integers(1, 5)).tolist() for _ in range(100)]
    is_last = rng.random(100) < 0.3
    rows = token_table(*((f"p{i:02d}", context, [[9]]) for i, context in enumerate(contexts)))
    rows = rows.with_columns(ask=pl.when(pl.Series(is_last)).then(pl.lit("last_tokens")).otherwise("ask"))
    runs = merge.SortedRuns(tmp_path)
    for part in np.array_split(np.arange(100), n_runs):
        runs.add(rows[part])
    ranges = list(runs.ranges(6))
    order = sorted(range(100), key=lambda i: (contexts[i], bool(is_last[i]), i))
    assert pl.concat(part for part, _ in ranges).equals(rows[order])
    assert (len(ranges) > 5) == (n_runs > 1)
    for (part, before), (following, _) in pairwise(ranges):
        assert part["context"].to_list()[-1] < before <= following["context"].to_list()[0]
    assert not list(tmp_path.iterdir())
