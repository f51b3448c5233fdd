"""How many shards rows are cut into, for one replica and for several."""

import msgspec
import numpy as np
import polars as pl
import pytest

from evaluator.engine.replicas import OneReplica
from evaluator.progress import finish
from evaluator.schemas import TOKENS
from evaluator.scores.compute import score_rows
from evaluator.scores.plan import Plan, cut_shards, find_requests, plan_rows, request_starts
from evaluator.scores.table import PlanKey, PlanRecord, ScoreTable, open_scores
from evaluator.tokens.rows import TokenRows
from tests.scores.test_table import CountingEngine, Loaded, token_rows


class Several(OneReplica):
    """An engine that counts as several replicas."""

    def __init__(self, engine: CountingEngine, n: int) -> None:
        super().__init__(engine)
        self.n = n


def score(folder, n_replicas: int, engine: CountingEngine | None = None, n_rows: int = 300) -> ScoreTable:
    loader, table = Loaded(Several(engine or CountingEngine(), n_replicas)), open_scores(folder / "rows")
    return finish(score_rows(plan_rows(TokenRows(token_rows(n_rows).lazy()), table, "scores"), table, loader))


def cut(n_rows: int, n_replicas: int, size: int = 64, least: int = 4) -> list[int]:
    """Tokens of each shard of rows of four tokens that share nothing."""
    requests = find_requests(TokenRows(token_rows(n_rows).lazy()))
    plan = {"reused": {}, "prompts": n_rows, "reused_prompts": 0, "shard_tokens": size, "min_shard_tokens": least}
    shards = cut_shards(requests, PlanRecord(**plan, n_replicas=n_replicas, shares_prefixes=False))
    assert sum(shard.n_rows for shard in shards) == n_rows
    return [shard.computed_tokens for shard in shards]


def test_only_labels_of_one_context_share_a_request():
    rows = token_rows(7).with_columns(
        ask=pl.Series(["labels", "labels", "last_tokens", "state", "labels", "text", "labels"]),
        context=pl.Series([[1, 2]] * 6 + [[1, 3]], dtype=TOKENS["context"]),
    )
    assert request_starts(rows).tolist() == [0, 3, 4, 5, 6]
    assert request_starts(rows[[0, 6]]).tolist() == [0, 1]


def test_one_replica_never_waits_for_another_so_its_shards_have_one_size():
    sizes = cut(300, 1)
    assert min(sizes[:-1]) >= 0.75 * 64
    assert max(sizes) <= 64 + 3  # a request of four tokens may begin within the first 64


@pytest.mark.parametrize("n_replicas", [2, 5, 16])
def test_with_several_replicas_a_shard_takes_half_of_what_each_has_left(n_replicas):
    sizes = np.array(cut(800, n_replicas))
    left = sizes[::-1].cumsum()[::-1]
    most = np.clip(left / (2 * n_replicas), 4, 64)
    assert (sizes <= most + 3).all()
    assert (sizes[:-1] >= 0.75 * most[:-1] - 3).all()
    assert sizes[-1] <= 4 + 3


@pytest.mark.parametrize("n_replicas", [2, 5, 16])
def test_replicas_that_take_the_largest_shard_end_within_the_time_of_a_small_one(n_replicas):
    busy = [0] * n_replicas
    for size in sorted(cut(800, n_replicas), reverse=True):
        busy[busy.index(min(busy))] += size
    assert max(busy) - min(busy) <= 4 + 3


def test_shards_are_never_below_the_least_size_where_there_are_many_replicas():
    assert min(cut(100, 50, size=64, least=8)[:-1]) >= 6


def test_a_plan_of_an_earlier_version_keeps_the_shards_of_one_size():
    rows = TokenRows(token_rows(100).lazy())
    record = msgspec.convert(
        {
            "reused": {},
            "prompts": 100,
            "reused_prompts": 0,
            "n_shards": 11,
            "shard_tokens": 40,
            "shares_prefixes": False,
        },
        PlanRecord,
    )
    requests = find_requests(rows)
    shards = Plan(PlanKey("scores", "rows"), record, rows, requests).shards()
    assert [*shards.values()] == cut_shards(requests, record)
    assert next(iter(shards)) == "scores-rows-00000.arrow"


def test_the_number_of_replicas_changes_the_shards_and_no_score(tmp_path):
    one, eight = (score(tmp_path / str(n), n) for n in (1, 8))
    assert len(one.manifest.shards) < len(eight.manifest.shards)
    assert one.read("scores").collect().equals(eight.read("scores").collect())


def test_a_run_that_goes_on_with_another_number_of_replicas_keeps_its_shards(tmp_path):
    score(tmp_path / "whole", 8)
    with pytest.raises(KeyboardInterrupt):
        score(tmp_path / "stopped", 8, CountingEngine(dies_after=200))
    kept = open_scores(tmp_path / "stopped" / "rows").manifest
    assert kept.shards
    assert score(tmp_path / "stopped", 1).manifest.plans == kept.plans
    files = [
        {path.name: path.read_bytes() for path in (tmp_path / name / "rows").glob("*.arrow")}
        for name in ("whole", "stopped")
    ]
    assert files[0] == files[1]
