"""Estimate the cost of a run: plan its shards with the project's planner, simulate a cache, and assign replicas."""

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import scipy.optimize

from evaluator.engine.prefixes import MIN_GAIN_TOKENS
from evaluator.scores.plan import MIN_STEPS_PER_SHARD, STEPS_PER_SHARD, cut_shards, find_requests, request_starts
from evaluator.scores.table import PlanRecord
from evaluator.tokens.boundary import n_shared
from evaluator.tokens.rows import TokenRows


class Cache(NamedTuple):
    """The prefix cache of one replica."""

    block_tokens: int
    n_blocks: int
    shares_parts: bool  # whether parts of blocks are shared, as block_sharing.py does on a CPU


class ShardCost(NamedTuple):
    """The work of an engine for one shard."""

    requests: int  # number of requests: one per context, and one per prefix of continuations of several tokens
    tokens: int  # number of tokens in the requests
    computed_tokens: int  # number of these tokens that are not in the cache


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds of one replica and of the command."""

    token_s: float  # per computed token
    request_s: float  # per request to the engine
    shard_s: float = 0.0  # per shard, because it begins with an empty cache and ends with an incomplete step
    load_s: float = 0.0  # for loading the model
    prompt_s: float = 0.0  # per prompt, for building and tokenising on the driver
    command_s: float = 0.0  # for everything else: imports, metrics, the page
    replicas_s: float = 0.0  # for starting more than one replica


class Estimate(NamedTuple):
    """The estimated seconds of a run and its parts."""

    whole_s: float
    before_s: float  # building and tokenising
    load_s: float  # loading that the command waits for
    score_s: float  # from the start of the first shard to the end of the last shard
    tail_s: float  # score_s minus its value if all replicas were busy to the end
    computed_tokens: int
    requests: int
    n_shards: int


def shard_costs(tokens: pl.DataFrame, cache: Cache, step_tokens: int, *, n_replicas: int = 1) -> list[ShardCost]:
    """Plan shards as a run does, and simulate every shard with an empty cache.

    Args:
        tokens: schemas.TOKENS of a store, in prefix order.
        cache: cache of a replica.
        step_tokens: capacity of a forward pass, in tokens.
        n_replicas: number of replicas that share the shards.
    """
    rows = tokens.unique("token_id", keep="first", maintain_order=True)
    is_state = pl.col("ask") == "state"
    found = []
    for part in (rows.filter(~is_state), rows.filter(is_state)):
        plan = PlanRecord(
            reused={},
            prompts=part.height,
            reused_prompts=0,
            shard_tokens=STEPS_PER_SHARD * step_tokens,
            min_shard_tokens=MIN_STEPS_PER_SHARD * step_tokens,
            n_replicas=n_replicas,
            shares_prefixes=True,
        )
        cut = cut_shards(find_requests(TokenRows(part.lazy())), plan)
        found += [_through_cache(fed(part.slice(shard.first, shard.n_rows)), cache) for shard in cut]
    return found


def fed(rows: pl.DataFrame) -> Iterator[list[int]]:
    """Yield the token sequences that an engine receives for rows of schemas.TOKENS.

    These are every context, and every context with all but the last token of its continuations of several tokens.
    (vLLM's model runner V2 would not need a separate request for the context of such continuations.)
    """
    starts = [*request_starts(rows).tolist(), rows.height]
    contexts, continuations = rows["context"].to_list(), rows["continuations"].to_list()
    for start, end in pairwise(starts):
        stems = {tuple(choice[:-1]) for row in range(start, end) for choice in continuations[row] if len(choice) > 1}
        yield contexts[start]
        yield from ([*contexts[start], *stem] for stem in sorted(stems))


def _through_cache(sequences: Iterable[list[int]], cache: Cache) -> ShardCost:
    """Simulate a cache of whole blocks that evicts the least recently used; count requests, tokens, computed tokens."""
    size = cache.block_tokens
    held: OrderedDict[int, None] = OrderedDict()
    requests = tokens = computed = 0
    before: Sequence[int] = ()
    for sequence in sequences:
        keys = _block_keys(sequence, size)
        n_hits = next((place for place, key in enumerate(keys) if key not in held), len(keys))
        cached = min(n_hits * size, (len(sequence) - 1) // size * size)  # the last token is always computed
        # A part of the next block may be shared with the previous sequence.
        if cache.shares_parts:
            common = min(n_shared(before, sequence), len(sequence) - 1)
            if common - cached >= MIN_GAIN_TOKENS and common // size == cached // size:
                cached = common
        for key in reversed(keys):  # mark the last blocks first, so that ends of prompts are evicted first
            held[key] = None
            held.move_to_end(key)
        while len(held) > cache.n_blocks:
            held.popitem(last=False)
        requests, tokens, computed = requests + 1, tokens + len(sequence), computed + len(sequence) - cached
        before = sequence
    return ShardCost(requests, tokens, computed)


def _block_keys(sequence: Sequence[int], size: int) -> list[int]:
    """Return one hash per whole block, over all tokens up to the end of the block."""
    key, keys = 0, []
    for end in range(size, len(sequence) + 1, size):
        key = hash((key, *sequence[end - size : end]))
        keys.append(key)
    return keys


def estimate(shards: Sequence[ShardCost], costs: Costs, n_replicas: int, n_prompts: int) -> Estimate:
    """Estimate the time of a run in which a free replica always takes the largest remaining shard.

    Args:
        shards: work of all shards.
        costs: seconds per unit of work.
        n_replicas: number of replicas.
        n_prompts: number of prompts that the driver builds.
    """
    seconds = sorted(
        (one.computed_tokens * costs.token_s + one.requests * costs.request_s + costs.shard_s for one in shards),
        reverse=True,
    )
    free = [0.0] * n_replicas
    for of_shard in seconds:
        heapq.heapreplace(free, free[0] + of_shard)
    score_s = max(free)
    before_s = n_prompts * costs.prompt_s
    # Several replicas load the model while the driver builds prompts.
    load_s = max(0.0, costs.load_s + costs.replicas_s - before_s) if n_replicas > 1 else costs.load_s
    return Estimate(
        whole_s=costs.command_s + before_s + load_s + score_s,
        before_s=before_s,
        load_s=load_s,
        score_s=score_s,
        tail_s=score_s - sum(seconds) / n_replicas,
        computed_tokens=sum(one.computed_tokens for one in shards),
        requests=sum(one.requests for one in shards),
        n_shards=len(shards),
    )


def limits(found: Estimate, costs: Costs, n_replicas: int) -> Mapping[str, float]:
    """Return name of a part of the run -> seconds, longest part first; the sum is the time of the whole run."""
    parts = {
        "arithmetic": found.computed_tokens * costs.token_s / n_replicas,
        "the engine's requests": found.requests * costs.request_s / n_replicas,
        "too few shards": found.tail_s,
        "loading": found.load_s,
        "prompts and tokens on the driver": found.before_s,
        "the rest of the command": costs.command_s,
    }
    return dict(sorted(parts.items(), key=lambda part: -part[1]))


def fitted(work: npt.NDArray[np.float64], seconds: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Fit costs that are not negative to measured seconds, by least squares of relative errors.

    Args:
        work: [runs, kinds of work], amounts of work.
        seconds: [runs].

    Returns:
        [kinds of work], seconds per unit of work.
    """
    costs, _ = scipy.optimize.nnls(work / seconds[:, None], np.ones(len(seconds)))
    return np.asarray(costs)
