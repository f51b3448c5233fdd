"""A KV connector for vLLM that lets prompts share parts of cache blocks.

vLLM's prefix cache shares whole blocks only. If a shared prefix ends inside a block, the tokens of this block, on
average half a block, are computed again for every prompt. This connector takes them from a block that is already
computed: it copies that block into a block of the new prompt, where the tokens after the shared tokens are then
overwritten. Whole blocks are copied, before a step computes anything. So neither the layout of keys and values within a
block matters, nor the order in which blocks are reallocated in the meantime.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    SupportsHMA,
)
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import generate_block_hash_extra_keys, get_block_hash, hash_block_tokens
from vllm.v1.kv_cache_interface import FullAttentionSpec

from evaluator.arrays import Ints
from evaluator.engine.prefixes import MAX_SHARED_TOKENS, MIN_GAIN_TOKENS, NO_REUSE, BlockIndex, max_kept_blocks

_MAX_WAITS = 4
"""Maximum number of steps that a request waits for tokens it could share.

For a thousand SNLI prompts a limit of one step computed 16% more tokens than a limit of two or more.
"""


@dataclass
class StepMetadata(KVConnectorMetadata):  # type: ignore[misc]  # vLLM is untyped here
    """The data that the scheduler sends to the worker for one step."""

    engine_id: str
    copies: list[tuple[int | None, int]]  # (source, target) blocks to copy before the step computes anything


class _Prefix(NamedTuple):
    """The identity of everything before the tokens of a block."""

    digest: bytes | None  # digest of all tokens before the block; None for the first block
    adapter: Hashable  # LoRA adapter, as vLLM hashes it; None: base model


class _Running(NamedTuple):
    """A request to which cache blocks are allocated."""

    request: Any
    blocks: list[int]  # blocks of its tokens in order, including tokens that the step being scheduled computes


class _Plan(NamedTuple):
    """The cached tokens that a request being scheduled reuses."""

    n_cached: int  # tokens in whole blocks
    source: int | None  # block from which the tokens after the whole blocks are copied; None: no block


class BlockSharing(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """The connector; vLLM creates one in the scheduler and one in the worker that holds the cache."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        groups = kv_cache_config.kv_cache_groups
        # Only full attention keeps a plain list of blocks; a sliding window or a recurrent state does not.
        self._active = len(groups) == 1 and type(groups[0].kv_cache_spec) is FullAttentionSpec
        self._engine_id: str = vllm_config.kv_transfer_config.engine_id
        self._block_tokens: int = groups[0].kv_cache_spec.block_size if self._active else 0
        self._index = BlockIndex()
        self._running: dict[str, _Running] = {}
        self._plans: dict[str, _Plan] = {}
        self._scheduled = BlockIndex()  # blocks that the step being scheduled will compute
        self._waited: Counter[str] = Counter()  # request -> steps it has waited
        self._copies: list[tuple[int | None, int]] = []  # (source, target) blocks of the step being scheduled
        self._kept: dict[int, None] = {}  # partly filled blocks of finished requests, oldest first
        self._caches: list[Ints] = []  # KV cache of each layer, one row for each block

    # Methods that run in the scheduler.

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        self._pool = gpu_block_pool

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        if not self._active:
            return 0, False
        # Release kept blocks if the cache has too few free blocks for the request.
        n_missing = -(-request.num_tokens // self._block_tokens) - self._pool.get_num_free_blocks()
        if n_missing > 0:
            self._release([*self._kept][:n_missing])
        max_shared = _params(request).get(MAX_SHARED_TOKENS, request.num_tokens)
        sharable = min(max_shared, request.num_tokens - 1) - num_computed_tokens  # the last token is always computed
        place = num_computed_tokens // self._block_tokens
        # One token less than a block: the step then computes at least one token of the block it copies to, and so
        # indexes that block anew. A block that is copied to in full would keep the entry of its earlier tokens.
        end = num_computed_tokens + self._block_tokens - 1
        tokens = tuple(request.all_token_ids[num_computed_tokens:end])
        prefix = _prefix(request, place)
        match = self._index.longest(prefix, tokens, self._holds) if sharable > 0 else None
        shared = min(match.n_tokens, sharable) if match else 0
        # Return None, to wait a step, if another request of this step will compute more of the tokens to share.
        if sharable - shared >= MIN_GAIN_TOKENS and self._waited[request.request_id] < _MAX_WAITS:
            scheduled = self._scheduled.longest(prefix, tokens, lambda _block: True)
            if scheduled and min(scheduled.n_tokens, sharable) - shared >= MIN_GAIN_TOKENS:
                self._waited[request.request_id] += 1
                return None, False
        self._plans[request.request_id] = _Plan(num_computed_tokens, match.block if match else None)
        return shared, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        block_ids = blocks.get_block_ids()[0] if self._active else []
        self._running[request.request_id] = running = _Running(request, block_ids)
        if not self._active:
            return
        # There is no plan for a request that must not read the cache: vLLM then does not ask for matching tokens.
        plan = self._plans.pop(request.request_id, _Plan(0, None))
        target = plan.n_cached // self._block_tokens
        if num_external_tokens and block_ids[target] != plan.source:
            self._copies.append((plan.source, block_ids[target]))
        # A long prompt is computed in chunks: only tokens before `end` have blocks so far.
        end = min(request.num_tokens, len(block_ids) * self._block_tokens)
        self._add(self._scheduled, running, plan.n_cached, end)

    def build_connector_meta(self, scheduler_output: Any) -> StepMetadata:
        if self._active:
            new, continued = scheduler_output.scheduled_new_reqs, scheduler_output.scheduled_cached_reqs
            for request_id, blocks in zip(continued.req_ids, continued.new_block_ids, strict=True):
                if blocks and request_id not in continued.resumed_req_ids:  # a resumed request was given all its blocks
                    self._running[request_id].blocks.extend(blocks[0])
            # Request -> index of the first token that the step computes.
            starts = {request.req_id: request.num_computed_tokens for request in new}
            starts |= dict(zip(continued.req_ids, continued.num_computed_tokens, strict=True))
            self._scheduled.clear()
            for request_id, start in starts.items():
                end = start + scheduler_output.num_scheduled_tokens[request_id]
                self._add(self._index, self._running[request_id], start, end)
        copies, self._copies = self._copies, []
        return StepMetadata(self._engine_id, copies)

    def request_finished_all_groups(self, request: Any, block_ids: tuple[list[int], ...]) -> tuple[bool, None]:
        self._running.pop(request.request_id, None)
        self._plans.pop(request.request_id, None)
        del self._waited[request.request_id]
        if self._active and block_ids[0] and not _params(request).get(NO_REUSE):
            self._keep(block_ids[0][-1])
        return False, None

    def check_idle(self) -> None:
        """Check that connector and cache agree while no request runs.

        Every block is either free or kept by the connector, and listed only once; no data of finished requests remain;
        and a block that vLLM could share is indexed here, if at all, under the tokens of vLLM's hash. Raises
        AssertionError otherwise: scores computed from a wrong block would be wrong without notice.
        """
        if not self._active:
            return
        left = [*self._running, *self._plans, *self._waited, *self._copies]
        assert not left, f"finished requests left {left}"
        blocks = {block.block_id: block for block in self._pool.blocks if not block.is_null}
        free = [block.block_id for block in self._pool.free_block_queue.get_all_free_blocks()]
        assert sorted([*free, *self._kept]) == sorted(blocks), "a block is neither free nor kept, or both, or twice"
        references = {number: block.ref_cnt for number, block in blocks.items() if block.ref_cnt}
        assert references == dict.fromkeys(self._kept, 1), f"kept blocks and their references differ: {references}"
        entries = self._index.entries()
        assert self._kept.keys() <= entries.keys(), "a kept block is not in the index"
        cache_config = self._vllm_config.cache_config
        digest = get_hash_fn_by_name(cache_config.prefix_caching_hash_algo)
        for number, (prefix, tokens) in entries.items():
            if (stated := blocks[number].block_hash) is not None:
                assert isinstance(prefix, _Prefix)
                expected = hash_block_tokens(digest, prefix.digest, tokens, prefix.adapter)
                assert get_block_hash(stated) == expected, f"block {number} is indexed under the tokens of another"

    def forget(self) -> None:
        """Release all kept blocks and clear the index, so that the cache can be emptied."""
        self._release([*self._kept])
        self._index.clear()

    def _add(self, index: BlockIndex, running: _Running, start: int, end: int) -> None:
        """Add to an index the blocks that hold the tokens from `start` to `end` of a request."""
        size, (request, blocks) = self._block_tokens, running
        ids = request.all_token_ids
        for place in range(start // size, -(-end // size)):
            tokens = tuple(ids[place * size : min((place + 1) * size, end)])
            index.add(_prefix(request, place), tokens, blocks[place])

    def _holds(self, block: int) -> bool:
        # vLLM itself could still share a block that has a hash. If such a block is reallocated in this step, it is
        # copied before it is overwritten.
        return block in self._kept or self._pool.blocks[block].block_hash is not None

    def _keep(self, block: int) -> None:
        """Keep a partly filled block, which vLLM would otherwise reallocate next."""
        if block in self._index and block not in self._kept and self._pool.blocks[block].block_hash is None:
            self._pool.touch([self._pool.blocks[block]])
            self._kept[block] = None
            self._release([*self._kept][: max(0, len(self._kept) - max_kept_blocks(len(self._pool.blocks)))])

    def _release(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            del self._kept[block]
            self._index.discard(block)
            self._pool.free_blocks([self._pool.blocks[block]])

    # Methods that run in the worker.

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        # View a cache as rows of 8-byte words, which NumPy copies faster than torch copies blocks by index. A block has
        # at least 32 tokens, so its size is a multiple of 8 bytes; view raises if its elements are not contiguous.
        self._caches = [cache.view(len(cache), -1).view(torch.int64).numpy() for cache in kv_caches.values()]

    def start_load_kv(self, _forward_context: Any, **_kwargs: Any) -> None:
        step = self._get_connector_metadata()
        assert isinstance(step, StepMetadata)
        assert step.engine_id == self._engine_id, "vLLM has one cache per process; close one engine before the next"
        if step.copies:
            sources, targets = map(list, zip(*step.copies, strict=True))
            for words in self._caches:
                words[targets] = words[sources]  # all sources are read before any target is written

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Do nothing: all copies are done when start_load_kv returns."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Do nothing: shared blocks stay in the cache."""

    def wait_for_save(self) -> None:
        """Do nothing: nothing is saved."""


def _params(request: Any) -> dict[str, Any]:
    return request.kv_transfer_params or {}


def _prefix(request: Any, place: int) -> _Prefix:
    """Return the tokens before a block, and the adapter: its keys and values depend on both besides its own tokens.

    Args:
        request: request of vLLM.
        place: index of the block in the request.
    """
    adapter = generate_block_hash_extra_keys(request, 0, 0, 0)[0]  # vLLM hashes it with the tokens of a block
    return _Prefix(request.block_hashes[place - 1] if place else None, adapter)
