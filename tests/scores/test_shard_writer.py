"""When finished shards are written, and the manifest that names them."""

import polars as pl

from evaluator.schemas import TOKEN_SCORES
from evaluator.scores import compute
from evaluator.scores.compute import ShardUpdate, write_finished
from evaluator.scores.table import ScoreManifest, ScoreTable, open_scores
from tests.scores.test_table import CountingEngine, score, token_rows

ROWS = pl.DataFrame({"token_id": ["0" * 32], "log_likelihoods": [[-1.0, -2.0]], "token_counts": [[1, 1]]})


def finished(number: int) -> ShardUpdate:
    frame = ROWS.cast(TOKEN_SCORES)
    return ShardUpdate(f"scores-0-{number:05d}.arrow", 0, 1, prompt_tokens=3, cached_tokens=0, elapsed_s=1, frame=frame)


def test_every_finished_shard_is_named_at_once(tmp_path):
    table = ScoreTable(tmp_path, ScoreManifest())
    for number in range(3):
        table = write_finished(table, finished(number), 5000.0)
        names = [f"scores-0-{n:05d}.arrow" for n in range(number + 1)]
        assert [*table.manifest.shards] == [*open_scores(tmp_path).manifest.shards] == names
    assert open_scores(tmp_path).read("scores").collect().height == 3


def test_a_clock_that_is_set_back_between_shards_changes_no_rate(tmp_path, monkeypatch):
    now, write = [5000.0], compute.write_shard

    def write_an_hour_back(path, frame):
        now[0] = 1400.0
        return write(path, frame)

    monkeypatch.setattr(compute.time, "time", lambda: now[0])
    monkeypatch.setattr(compute, "write_shard", write_an_hour_back)
    shards = score(token_rows(100), CountingEngine(), tmp_path).manifest.shards.values()
    assert len(shards) > 1
    assert all(5000 <= shard.finished_s < 5060 for shard in shards)
