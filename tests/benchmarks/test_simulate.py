"""The cost model: hits of a cache worked by hand, replicas that take the largest shard, costs that are found again."""

import numpy as np
import polars as pl
import pytest

from benchmarks.simulate.cost_model import Cache, Costs, ShardCost, estimate, fed, fitted, limits, shard_costs
from evaluator.schemas import TOKENS

LONG = list(range(100, 110))
ROWS = [  # context, continuations; blocks have four tokens
    (LONG[:8], [[1], [2]]),  # 8 tokens computed
    ([*LONG[:8], 5, 6], [[1], [2]]),  # two blocks are cached: 2 computed
    ([*LONG[:8], 5, 7], [[1], [3, 4]]),  # 2 computed; then with the 3 after it: 3, as no block was filled
]


def tokens(rows: list[tuple[list[int], list[list[int]]]]) -> pl.DataFrame:
    columns = {
        "prompt_id": [str(number) for number in range(len(rows))],
        "token_id": [str(number) for number in range(len(rows))],
        "ask": ["labels"] * len(rows),
        "context": [context for context, _ in rows],
        "continuations": [continuations for _, continuations in rows],
    }
    return pl.DataFrame(columns, schema=TOKENS)


def cost(cache: Cache, *, rows: list[tuple[list[int], list[list[int]]]] = ROWS) -> ShardCost:
    (one,) = shard_costs(tokens(rows), cache, step_tokens=1000)
    return one


def test_each_context_and_each_beginning_of_a_long_label_is_sent() -> None:
    assert list(fed(tokens(ROWS))) == [ROWS[0][0], ROWS[1][0], ROWS[2][0], [*ROWS[2][0], 3]]


def test_whole_blocks_are_shared() -> None:
    assert cost(Cache(4, 100, shares_parts=False)) == ShardCost(4, 8 + 10 + 10 + 11, 8 + 2 + 2 + 3)


def test_a_repeated_prompt_computes_its_last_block() -> None:
    # Its last block holds the last token, which is always computed. The label's first token makes a prompt of nine.
    whole_blocks = Cache(4, 100, shares_parts=False)
    assert cost(whole_blocks, rows=[(LONG[:8], [[1]]), (LONG[:8], [[2, 3]])]) == ShardCost(2, 8 + 9, 8 + 1)


def test_a_cache_that_is_too_small_gives_up_what_was_used_first() -> None:
    assert cost(Cache(4, 1, shares_parts=False)).computed_tokens == 8 + 6 + 6 + 7  # the first block of two stays
    assert cost(Cache(4, 0, shares_parts=False)).computed_tokens == 8 + 10 + 10 + 11


def test_parts_of_blocks_are_shared_where_enough_tokens_are() -> None:
    rows = [(LONG, [[1]]), ([*LONG[:7], 50, 51], [[1]])]
    assert cost(Cache(32, 100, shares_parts=True), rows=rows).computed_tokens == 10 + 2
    few = [(LONG, [[1]]), ([*LONG[:3], 50, 51], [[1]])]
    assert cost(Cache(32, 100, shares_parts=True), rows=few).computed_tokens == 10 + 5


def test_replicas_take_the_largest_shard_that_is_left() -> None:
    # 5, 4, 3 and 3 seconds on two replicas: 5 + 3 and 4 + 3, or 8 seconds; 15 / 2 would be 7.5.
    shards = [ShardCost(0, n, n) for n in (3, 5, 3, 4)]
    costs = Costs(token_s=1, request_s=0, load_s=10, command_s=2, prompt_s=0.5, replicas_s=7)
    found = estimate(shards, costs, n_replicas=2, n_prompts=4)
    assert found.score_s == 8
    assert found.tail_s == 0.5
    assert found.whole_s == 2 + (10 + 7) + 8, "prompts are built while replicas load"
    assert estimate(shards, costs, n_replicas=1, n_prompts=4).whole_s == 2 + 4 * 0.5 + 10 + 15
    parts = limits(found, costs, 2)
    assert sum(parts.values()) == pytest.approx(found.whole_s)
    assert next(iter(parts)) == "loading"


def test_costs_are_found_again() -> None:
    work = np.array([[1000, 10, 1], [5000, 20, 2], [2000, 400, 3]], float)
    assert fitted(work, work @ [0.002, 0.01, 0]) == pytest.approx([0.002, 0.01, 0])
