"""The numbers that are shown while shards are computed, worked by hand."""

from types import SimpleNamespace

import polars as pl
import pytest

from evaluator.engine.base import TokenCounts
from evaluator.scores import compute
from evaluator.scores.compute import ShardUpdate

DONE = pl.DataFrame()


@pytest.fixture
def clock(monkeypatch):
    """A clock that was started at second 0 and looks at second 4: 30 prompts, of which 10 were there before."""
    monkeypatch.setattr("time.monotonic", lambda: 0.0)
    clock = compute._Clock(
        "Scoring", done_before=10, total=30, flop_per_token=1000, peak_flop_per_s=400_000, counts_cached_tokens=True
    )
    monkeypatch.setattr("time.monotonic", lambda: 4.0)
    return clock


def test_rates_are_of_all_replicas_and_the_slowest_is_named(clock):
    clock.add(ShardUpdate("a", 0, prompts=4, prompt_tokens=400, cached_tokens=100, elapsed_s=2.0, frame=DONE))
    clock.add(ShardUpdate("b", 1, prompts=2, prompt_tokens=200, cached_tokens=150, elapsed_s=2.0))
    clock.add(ShardUpdate("b", 1, prompts=3, prompt_tokens=300, cached_tokens=200, elapsed_s=4.0))
    now = clock.progress()
    assert (now.done, now.total) == (17, 30)
    assert now.requests_per_s == 7 / 4
    assert now.computed_tokens_per_s == (300 + 100) / 4
    assert now.cached_share == pytest.approx(300 / 700)
    assert now.seconds_left == pytest.approx(4 / 7 * 13)
    assert now.flop_per_s == 100_000
    assert now.peak_share == 0.25
    assert now.slowest_replica_tokens_per_s == 100 / 4


def test_a_shard_that_another_replica_begins_again_counts_once(clock):
    clock.add(ShardUpdate("a", 0, prompts=4, prompt_tokens=400, cached_tokens=0, elapsed_s=2.0))
    clock.add(ShardUpdate("a", 1, prompts=1, prompt_tokens=100, cached_tokens=0, elapsed_s=1.0))
    now = clock.progress()
    assert now.done == 11
    assert now.computed_tokens_per_s == 25
    assert now.slowest_replica_tokens_per_s is None  # one is at work


def test_answers_that_an_interrupted_command_has_kept_count_as_done_and_not_as_speed(clock):
    clock.add(ShardUpdate("a", 0, prompts=8, prompt_tokens=800, cached_tokens=100, elapsed_s=9.0, earlier=(4, 300)))
    now = clock.progress()
    assert now.done == 18
    assert now.requests_per_s == (8 - 4) / 4
    assert now.seconds_left == 12  # at a prompt a second
    assert now.computed_tokens_per_s == (700 - 300) / 4


def test_before_a_command_has_answered_anything_itself_there_is_no_speed(clock):
    clock.add(ShardUpdate("a", 0, prompts=4, prompt_tokens=400, cached_tokens=100, elapsed_s=9.0, earlier=(4, 300)))
    now = clock.progress()
    assert (now.done, now.requests_per_s, now.seconds_left) == (14, None, None)


def test_tokens_and_seconds_that_an_interrupted_command_has_spent_are_added_to_those_of_its_shard(monkeypatch):
    engine = SimpleNamespace(counts=TokenCounts(prompt_tokens=1000, cached_tokens=700))  # of other shards
    kept = {"answers": [[0, []]] * 4, "prompt_tokens": 400, "cached_tokens": 100, "elapsed_s": 9.0}
    monkeypatch.setattr("time.monotonic", lambda: 50.0)
    meter = compute._Meter(engine, 0, "a", kept)
    engine.counts.prompt_tokens += 60
    engine.counts.cached_tokens += 20
    monkeypatch.setattr("time.monotonic", lambda: 52.0)
    update = meter.update(6)
    assert (update.prompt_tokens, update.cached_tokens, update.elapsed_s) == (400 + 60, 100 + 20, 9.0 + 2.0)
    assert update.earlier == (4, 400 - 100)
