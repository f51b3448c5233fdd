"""Compute how fast shards were scored: in all, and over time."""

from collections.abc import Sequence

import numpy as np

from evaluator.record import ThroughputRecord
from evaluator.scores.table import ShardRecord

MAX_PERIODS = 60
"""Into how many equal periods the time is cut at most; fewer if there are fewer shards."""


def scoring_seconds(shards: Sequence[ShardRecord]) -> float:
    """Return the time in which any of these shards was computed; replicas compute several at once."""
    undated = sum(shard.elapsed_s for shard in shards if not shard.finished_s)  # of earlier versions, one at a time
    return round(undated + throughput(shards).elapsed_s, 3)


def throughput(shards: Sequence[ShardRecord]) -> ThroughputRecord:
    """Return the rates at which shards were computed, whichever processes did it.

    Time in which no shard was computed, such as that between two commands, does not count. Within a shard, requests and
    tokens are taken as spread evenly.

    Args:
        shards: those of earlier versions, which have no `finished_s`, are left out.
    """
    dated = [shard for shard in shards if shard.finished_s and shard.elapsed_s]
    shards = sorted(dated, key=lambda shard: shard.finished_s - shard.elapsed_s)
    if not shards:
        return ThroughputRecord()
    elapsed = np.array([shard.elapsed_s for shard in shards])
    ends = np.array([shard.finished_s for shard in shards])
    starts = ends - elapsed
    # Idle time before each shard but the first: from the latest end so far to its start.
    idle = np.maximum(starts[1:] - np.maximum.accumulate(ends)[:-1], 0)
    first = starts - starts[0] - np.concatenate([[0.0], np.cumsum(idle)])
    last = first + elapsed
    edges = np.linspace(0, last.max(), min(MAX_PERIODS, len(shards)) + 1)
    # The part of each shard that falls into each period: [period, shard].
    inside = np.minimum(edges[1:, None], last) - np.maximum(edges[:-1, None], first)
    parts = inside.clip(min=0) / elapsed
    requests = np.array([shard.prompts for shard in shards])
    computed = np.array([shard.prompt_tokens - shard.cached_tokens for shard in shards])
    period_s = edges[1]
    replicas = np.array([shard.replica for shard in shards])
    spent = np.bincount(replicas, weights=elapsed)
    replica_rates = np.bincount(replicas, weights=computed)[spent > 0] / spent[spent > 0]
    return ThroughputRecord(
        elapsed_s=round(float(edges[-1]), 3),
        requests_per_s=round(float(requests.sum() / edges[-1]), 3),
        computed_tokens_per_s=round(float(computed.sum() / edges[-1]), 3),
        replica_computed_tokens_per_s=np.round(replica_rates, 3).tolist(),
        period_s=round(float(period_s), 3),
        period_requests_per_s=np.round(parts @ requests / period_s, 3).tolist(),
        period_computed_tokens_per_s=np.round(parts @ computed / period_s, 3).tolist(),
    )
