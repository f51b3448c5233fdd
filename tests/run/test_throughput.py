"""Rates of scoring, worked by hand."""

from evaluator.record import ThroughputRecord
from evaluator.run.stage_records import throughput
from evaluator.scores.table import ShardRecord


def shard(finished_s: float, elapsed_s: float, prompts: int, replica: int = 0) -> ShardRecord:
    return ShardRecord(
        sha256="",
        prompts=prompts,
        prompt_tokens=10 * prompts,
        cached_tokens=4 * prompts,
        elapsed_s=elapsed_s,
        finished_s=finished_s,
        replica=replica,
    )


def test_shards_that_are_computed_at_the_same_time_add_up():
    # One takes from 100 to 110 for 20 prompts, another from 100 to 104 for 8: 28 prompts in 10 s.
    shards = [shard(110, 10, 20), shard(104, 4, 8, replica=1)]
    rates = throughput(shards)
    assert rates == ThroughputRecord(
        elapsed_s=10,
        requests_per_s=2.8,
        computed_tokens_per_s=16.8,  # 6 of 10 tokens of each prompt
        replica_computed_tokens_per_s=[12.0, 12.0],  # 120 tokens in 10 s, 48 in 4 s
        period_s=5,
        # In the first five seconds 2 a second of the first shard, and all 8 of the other.
        period_requests_per_s=[3.6, 2.0],
        period_computed_tokens_per_s=[21.6, 12.0],
    )


def test_the_time_between_two_commands_does_not_count():
    # From 0 to 10 and, after a pause, from 1000 to 1010: 20 seconds.
    rates = throughput([shard(1010, 10, 30), shard(10, 10, 10)])
    assert (rates.elapsed_s, rates.requests_per_s) == (20, 2)
    assert rates.period_requests_per_s == [1, 3]


def test_a_short_shard_within_a_long_one_hides_no_pause():
    # From 0 to 10, within it 2 to 4; pause; 15 to 20.
    rates = throughput([shard(10, 10, 10), shard(4, 2, 2), shard(20, 5, 5)])
    assert rates.elapsed_s == 15
    assert sum(rates.period_requests_per_s) * rates.period_s == 17


def test_shards_that_took_no_time_have_no_rate():
    assert throughput([shard(0, 0, 10)]) == ThroughputRecord()
