"""When finished shards are written, and when the manifest that names them is."""

import polars as pl
import pytest

from evaluator.run.stage_records import throughput
from evaluator.schemas import TOKEN_SCORES
from evaluator.scores import compute
from evaluator.scores.compute import TIMES_BETWEEN_MANIFESTS, ShardUpdate, ShardWriter
from evaluator.scores.table import ScoreManifest, ScoreTable, open_scores

ROWS = pl.DataFrame({"token_id": ["0" * 32], "log_likelihoods": [[-1.0, -2.0]], "token_counts": [[1, 1]]})


def finished(number: int) -> ShardUpdate:
    frame = ROWS.cast(TOKEN_SCORES)
    return ShardUpdate(f"scores-0-{number:05d}.arrow", 0, 1, prompt_tokens=3, cached_tokens=0, elapsed_s=1, frame=frame)


@pytest.fixture
def clock(monkeypatch):
    """Seconds, which go on by one when a manifest is written, and otherwise as a test says; few shards are many."""
    monkeypatch.setattr(compute, "SHARDS_NAMED_AT_ONCE", 0)
    now = [100.0]
    write = ScoreTable.write_manifest

    def slowly(table, manifest):
        now[0] += 1
        return write(table, manifest)

    monkeypatch.setattr(compute.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(ScoreTable, "write_manifest", slowly)
    return now


def test_the_manifest_takes_at_most_a_twentieth_of_the_time(tmp_path, clock):
    writer, named = ShardWriter(ScoreTable(tmp_path, ScoreManifest())), []
    for number in range(45):
        table = writer.add(finished(number))
        assert len(table.manifest.shards) == number + 1
        named.append(len(open_scores(tmp_path).manifest.shards))
        clock[0] += 1
    assert TIMES_BETWEEN_MANIFESTS == 20
    assert named == [1] * 20 + [21] * 20 + [41] * 5
    writer.close()
    assert [*open_scores(tmp_path).manifest.shards] == [f"scores-0-{number:05d}.arrow" for number in range(45)]


@pytest.mark.usefixtures("clock")
def test_what_no_manifest_names_after_a_kill_is_written_again(tmp_path):
    writer = ShardWriter(ScoreTable(tmp_path, ScoreManifest()))
    for number in range(3):
        writer.add(finished(number))
    kept = open_scores(tmp_path)  # as the next command finds it
    assert [*kept.manifest.shards] == ["scores-0-00000.arrow"]
    assert (tmp_path / "scores-0-00002.arrow").exists()
    again = ShardWriter(kept)
    for number in (1, 2):
        again.add(finished(number))
    again.close()
    assert open_scores(tmp_path).read("scores").collect().height == 3


def test_the_first_shards_are_all_named_at_once(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(compute, "SHARDS_NAMED_AT_ONCE", 3)
    writer, named = ShardWriter(ScoreTable(tmp_path, ScoreManifest())), []
    for number in range(6):
        writer.add(finished(number))
        named.append(len(open_scores(tmp_path).manifest.shards))
    assert named == [1, 2, 3, 3, 3, 3]
    clock[0] += TIMES_BETWEEN_MANIFESTS
    writer.add(finished(6))
    assert len(open_scores(tmp_path).manifest.shards) == 7


def test_a_clock_that_is_set_back_between_shards_changes_no_rate(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(compute.time, "time", lambda: 5000.0 if clock[0] < 101 else 1400.0)  # an hour back, once
    writer = ShardWriter(ScoreTable(tmp_path, ScoreManifest()))
    for number in range(2):
        table = writer.add(finished(number))
        clock[0] += 1
    first, second = table.manifest.shards.values()
    assert second.finished_s - first.finished_s == 2  # a second for the manifest, and one until the next shard
    assert throughput([first, second]).requests_per_s == 1  # two prompts, a second each


def test_nothing_is_written_where_no_shard_was_added(tmp_path):
    ShardWriter(ScoreTable(tmp_path, ScoreManifest())).close()
    assert not [*tmp_path.iterdir()]
