"""What vLLM's prefix cache does not share: the part of a block that prompts have in common before they part.

A prefix that ends inside a block is computed anew by every prompt behind it, on average half a block each. As vLLM's
own KV connector, this one takes these tokens from a block that was computed before: it copies that block into the
prompt's own, where the tokens behind the shared ones are then written over. Blocks are copied whole and before a step
computes anything, so how keys and values lie in them is no matter, nor in which order blocks are given away meanwhile.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.v1.kv_cache_interface import FullAttentionSpec

from evaluator.engine.block_index import BlockIndex

SHARED_AT_MOST, FLEETING = "shared_at_most", "fleeting"
"""Of a request's `kv_transfer_params`: how many of its tokens may be taken from another's block; whether what it leaves
in its last block is of no use to others."""

_WORTH_A_STEP, _MOST_STEPS = 4, 4
"""Tokens to be shared for which a request waits until the step that computes them is over; how often it does.

Of a thousand SNLI prompts those that waited once computed 16% more than those that waited twice or more; 1 or 8 tokens
in place of 4 made a difference of 1%.
"""

_KEPT_SHARE = 4
"""One block in so many is kept for what finished prompts left in their last, unfilled blocks."""


@dataclass
class BlockCopies(KVConnectorMetadata):  # type: ignore[misc]  # vLLM is untyped here
    """What one step copies before it computes."""

    engine_id: str
    sources: list[int]
    targets: list[int]


class _Plan(NamedTuple):
    """What a request that is being scheduled takes from the cache."""

    n_cached: int  # tokens in whole blocks
    source: int | None  # block of those that follow


class BlockSharing(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """vLLM makes two: one where requests are scheduled, one where the cache is."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        groups = kv_cache_config.kv_cache_groups
        # A sliding window or a recurrent state is no list of blocks that can be copied one by one.
        self._active = len(groups) == 1 and type(groups[0].kv_cache_spec) is FullAttentionSpec
        self._engine_id: str = vllm_config.kv_transfer_config.engine_id
        self._block_tokens: int = groups[0].kv_cache_spec.block_size if self._active else 0
        self._index = BlockIndex()
        self._requests: dict[str, Any] = {}  # under way
        self._plans: dict[str, _Plan] = {}
        self._coming = BlockIndex()  # what the step that is being scheduled will have computed
        self._waited: Counter[str] = Counter()  # requests that wait for it -> steps
        self._copies: list[tuple[int | None, int]] = []
        self._kept: dict[int, None] = {}  # blocks of finished requests, the oldest first
        self._caches: list[Any] = []

    # Where requests are scheduled.

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        self._manager, self._pool = kv_cache_manager, kv_cache_manager.block_pool

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        if not self._active:
            return 0, False
        self._make_room(-(-request.num_tokens // self._block_tokens))
        most = _params(request).get(SHARED_AT_MOST, request.num_tokens)
        # The last token is computed always: its answer is what was asked for.
        free = min(most, request.num_tokens - 1) - num_computed_tokens
        place = num_computed_tokens // self._block_tokens
        tokens = tuple(request.all_token_ids[num_computed_tokens : num_computed_tokens + self._block_tokens])
        prefix = _prefix(request, place)
        match = self._index.longest(prefix, tokens, self._holds) if free > 0 else None
        shared = min(match.n_tokens, free) if match else 0
        if free - shared >= _WORTH_A_STEP and self._waited[request.request_id] < _MOST_STEPS:
            coming = self._coming.longest(prefix, tokens, lambda _block: True)
            if coming and min(coming.n_tokens, free) - shared >= _WORTH_A_STEP:
                self._waited[request.request_id] += 1
                return None, False
        self._plans[request.request_id] = _Plan(num_computed_tokens, match.block if match else None)
        return shared, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if not self._active:
            return
        self._requests[request.request_id] = request
        plan, (own, *_) = self._plans.pop(request.request_id), blocks.get_block_ids()
        target = plan.n_cached // self._block_tokens
        if num_external_tokens and own[target] != plan.source:
            self._copies.append((plan.source, own[target]))
        end = min(request.num_tokens, len(own) * self._block_tokens)  # of a long prompt only a first part is computed
        self._add(self._coming, request, plan.n_cached, end)

    def build_connector_meta(self, scheduler_output: Any) -> BlockCopies:
        if self._active:
            new, running = scheduler_output.scheduled_new_reqs, scheduler_output.scheduled_cached_reqs
            starts = {each.req_id: each.num_computed_tokens for each in new}
            starts |= dict(zip(running.req_ids, running.num_computed_tokens, strict=True))
            self._coming.clear()
            for request_id, start in starts.items():
                end = start + scheduler_output.num_scheduled_tokens[request_id]
                self._add(self._index, self._requests[request_id], start, end)
        copies, self._copies = self._copies, []
        return BlockCopies(self._engine_id, [source for source, _ in copies], [target for _, target in copies])

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, None]:
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(self, request: Any, block_ids: tuple[list[int], ...]) -> tuple[bool, None]:
        self._requests.pop(request.request_id, None)
        self._plans.pop(request.request_id, None)
        del self._waited[request.request_id]
        if self._active and block_ids[0] and not _params(request).get(FLEETING):
            self._keep(block_ids[0][-1])
        return False, None

    def forget(self) -> None:
        """Let go of all blocks, so that the cache can be emptied."""
        self._release([*self._kept])
        self._index.clear()

    def _add(self, index: BlockIndex, request: Any, start: int, end: int) -> None:
        """Add the blocks in which these tokens of a request are."""
        size = self._block_tokens
        ids, (blocks, *_) = request.all_token_ids, self._manager.get_block_ids(request.request_id)
        for place in range(start // size, -(-end // size)):
            tokens = tuple(ids[place * size : min((place + 1) * size, end)])
            index.add(_prefix(request, place), tokens, blocks[place])

    def _holds(self, block: int) -> bool:
        # A block with a hash is one that vLLM itself would share. It may have been given away in this very step: then
        # it is copied before it is written.
        return block in self._kept or self._pool.blocks[block].block_hash is not None

    def _keep(self, block: int) -> None:
        """Hold on to a block that is not full, which vLLM would give away next."""
        if block in self._index and block not in self._kept and self._pool.blocks[block].block_hash is None:
            self._pool.touch([self._pool.blocks[block]])
            self._kept[block] = None
            self._release([*self._kept][: max(0, len(self._kept) - most_kept(len(self._pool.blocks)))])

    def _make_room(self, n_blocks: int) -> None:
        missing = n_blocks - self._pool.get_num_free_blocks()
        if missing > 0:
            self._release([*self._kept][:missing])

    def _release(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            del self._kept[block]
            self._index.discard(block)
            self._pool.free_blocks([self._pool.blocks[block]])

    # Where the cache is.

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        self._caches = list(kv_caches.values())

    def start_load_kv(self, _forward_context: Any, **_kwargs: Any) -> None:
        copies = self._get_connector_metadata()
        assert isinstance(copies, BlockCopies)
        assert copies.engine_id == self._engine_id, "vLLM has one cache a process; close one engine before the next"
        if copies.sources:
            for cache in self._caches:
                cache[copies.targets] = cache[copies.sources]  # all are read before one is written

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing is under way once start_load_kv has returned."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """What is shared stays where it is."""

    def wait_for_save(self) -> None:
        """Nothing is saved."""


def most_kept(n_blocks: int) -> int:
    """How many unfilled blocks are kept of a cache of so many."""
    return n_blocks // _KEPT_SHARE


def _params(request: Any) -> dict[str, Any]:
    return request.kv_transfer_params or {}


def _prefix(request: Any, place: int) -> bytes:
    """What stands before a request's block."""
    return request.block_hashes[place - 1] if place else b""
