"""The check that cache and connector agree: it runs before every call of the engine, and notices what it should."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from evaluator.engine.base import ContinuationRequest, Engine
from evaluator.engine.vllm_loading import empty_cache
from tests.engine.cpu_only import cpu_only

pytestmark = cpu_only


@pytest.fixture
def llm(loaded_engine: Callable[[str], Engine]) -> Any:
    """vLLM after a call whose prompts share blocks in part, and push each other out of the cache."""
    engine: Any = loaded_engine("vllm")
    rng = random.Random(0)
    contexts = [rng.choices(range(2, 258), k=100)]
    for _ in range(80):
        earlier = rng.choice(contexts)
        contexts.append(earlier[: rng.randrange(1, 100)] + rng.choices(range(2, 258), k=rng.randrange(1, 90)))
    assert len(list(engine.log_likelihoods([ContinuationRequest(context, [[5], [6]]) for context in sorted(contexts)])))
    yield engine._llm
    empty_cache(engine._llm)


def connector_of(llm: Any) -> Any:
    return llm.llm_engine.engine_core.engine_core.scheduler.connector


def test_cache_and_index_agree_after_a_call_that_filled_the_cache(llm):
    connector = connector_of(llm)
    assert connector._kept
    assert any(connector._pool.blocks[block].block_hash for block in connector._index.entries())
    connector.check_idle()


def test_a_block_indexed_under_other_tokens_than_it_holds_is_noticed(llm):
    connector = connector_of(llm)
    entries = connector._index.entries()
    block = next(block for block in entries if connector._pool.blocks[block].block_hash)
    prefix, tokens = entries[block]
    connector._index.add(prefix, tokens[::-1], block)
    with pytest.raises(AssertionError, match=f"block {block} is indexed under the tokens of another"):
        empty_cache(llm)
    connector._index.add(prefix, tokens, block)
    connector.check_idle()


def test_a_block_that_nobody_holds_or_gives_back_is_noticed(llm):
    connector = connector_of(llm)
    leaked = connector._pool.get_new_blocks(1)
    with pytest.raises(AssertionError, match="neither free nor kept"):
        empty_cache(llm)
    connector._pool.free_blocks(leaked)
    connector.check_idle()


def test_what_a_finished_request_left_behind_is_noticed(llm):
    connector = connector_of(llm)
    connector._plans["7"] = None
    with pytest.raises(AssertionError, match="finished requests left"):
        empty_cache(llm)
    del connector._plans["7"]
    connector.check_idle()
