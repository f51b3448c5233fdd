"""What a run costs: the shards that the project's own planner cuts, through a cache, on a number of replicas."""

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
from evaluator.tokens.boundary import n_shared
from evaluator.tokens.rows import TokenRows


class Cache(NamedTuple):
    """The prefix cache of one replica."""

    block_tokens: int
    n_blocks: int
    shares_parts: bool  # of blocks, as block_sharing.py does on a CPU


class ShardCost(NamedTuple):
    """What one shard asks of an engine."""

    requests: int  # to the engine: a context, and each beginning of its continuations of several tokens
    tokens: int  # sent
    computed_tokens: int  # of these, not in the cache


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds of one replica, and of the command around it."""

    token_s: float  # for each computed token
    request_s: float  # for each request to the engine
    shard_s: float = 0.0  # for each shard: an empty cache, the last step
    load_s: float = 0.0  # of the model
    prompt_s: float = 0.0  # for each prompt, on the driver: built and tokenised
    command_s: float = 0.0  # everything else: imports, metrics, the page
    replicas_s: float = 0.0  # for starting more than one replica


class Estimate(NamedTuple):
    """A run in seconds, and what it is made of."""

    whole_s: float
    before_s: float  # building and tokenising
    load_s: float  # that the command waits for
    score_s: float  # from the first shard's start to the last one's end
    tail_s: float  # part of it in which some replicas had nothing left to do, times their share
    computed_tokens: int
    requests: int
    n_shards: int


def shard_costs(tokens: pl.DataFrame, cache: Cache, step_tokens: int, *, n_replicas: int = 1) -> list[ShardCost]:
    """Plan rows as a run does, and send every shard through an empty cache.

    Args:
        tokens: schemas.TOKENS of a store, in prefix order.
        cache: of a replica.
        step_tokens: capacity of a forward pass.
        n_replicas: which share the shards.
    """
    rows = tokens.unique("token_id", keep="first", maintain_order=True)
    is_state = pl.col("ask") == "state"
    found = []
    for part in (rows.filter(~is_state), rows.filter(is_state)):
        cut = cut_shards(
            find_requests(TokenRows(part.lazy())),
            shard_tokens=STEPS_PER_SHARD * step_tokens,
            min_shard_tokens=MIN_STEPS_PER_SHARD * step_tokens,
            n_replicas=n_replicas,
            shares_prefixes=True,
        )
        found += [_through_cache(fed(part.slice(shard.first, shard.n_rows)), cache) for shard in cut]
    return found


def fed(rows: pl.DataFrame) -> Iterator[list[int]]:
    """Yield what the engine is sent: each context, then its continuations of several tokens without their last ones.

    (vLLM's model runner V2 needs no request for such a context alone.)
    """
    starts = [*request_starts(rows).tolist(), rows.height]
    contexts, continuations = rows["context"].to_list(), rows["continuations"].to_list()
    for start, end in pairwise(starts):
        stems = {tuple(choice[:-1]) for row in range(start, end) for choice in continuations[row] if len(choice) > 1}
        yield contexts[start]
        yield from ([*contexts[start], *stem] for stem in sorted(stems))


def _through_cache(sequences: Iterable[list[int]], cache: Cache) -> ShardCost:
    """Count the tokens that are not in the cache: whole blocks, the least recently used of which give way."""
    size = cache.block_tokens
    held: OrderedDict[int, None] = OrderedDict()
    requests = tokens = computed = 0
    before: Sequence[int] = ()
    for sequence in sequences:
        keys = _block_keys(sequence, size)
        n_hits = next((place for place, key in enumerate(keys) if key not in held), len(keys))
        cached = min(n_hits * size, (len(sequence) - 1) // size * size)  # the last token is always computed
        if cache.shares_parts:
            common = min(n_shared(before, sequence), len(sequence) - 1)
            if common - cached >= MIN_GAIN_TOKENS and common // size == cached // size:
                cached = common
        for key in reversed(keys):  # ends of prompts give way first
            held[key] = None
            held.move_to_end(key)
        while len(held) > cache.n_blocks:
            held.popitem(last=False)
        requests, tokens, computed = requests + 1, tokens + len(sequence), computed + len(sequence) - cached
        before = sequence
    return ShardCost(requests, tokens, computed)


def _block_keys(sequence: Sequence[int], size: int) -> list[int]:
    """Return a hash for each whole block, of all tokens up to its end."""
    key, keys = 0, []
    for end in range(size, len(sequence) + 1, size):
        key = hash((key, *sequence[end - size : end]))
        keys.append(key)
    return keys


def estimate(shards: Sequence[ShardCost], costs: Costs, n_replicas: int, n_prompts: int) -> Estimate:
    """Return the time of a run whose replicas take the largest shard that is left."""
    seconds = sorted(
        (one.computed_tokens * costs.token_s + one.requests * costs.request_s + costs.shard_s for one in shards),
        reverse=True,
    )
    free = [0.0] * n_replicas
    for of_shard in seconds:
        heapq.heapreplace(free, free[0] + of_shard)
    score_s = max(free)
    before_s = n_prompts * costs.prompt_s
    # Several replicas load while prompts are built.
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
    """Return the seconds of a run by what they go to, the longest first; they add up to the whole."""
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
    """Return costs, none below 0, that reproduce measured seconds with the least relative error.

    Args:
        work: [runs, kinds of work].
        seconds: [runs].
    """
    costs, _ = scipy.optimize.nnls(work / seconds[:, None], np.ones(len(seconds)))
    return np.asarray(costs)
