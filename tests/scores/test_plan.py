"""How many shards rows are cut into, for one replica and for several."""

import numpy as np
import pytest

from evaluator.engine.replicas import OneReplica
from evaluator.progress import finish
from evaluator.scores.compute import score_rows
from evaluator.scores.plan import MIN_SHARDS_PER_REPLICA, shard_plan, shard_sizes
from evaluator.scores.table import ScoreTable, open_scores
from evaluator.tokens.rows import TokenRows
from tests.scores.test_table import CountingEngine, Loaded, token_rows


class Several(OneReplica):
    """An engine that counts as several replicas."""

    def __init__(self, engine: CountingEngine, n: int) -> None:
        super().__init__(engine)
        self.n = n


def score(folder, n_replicas: int, engine: CountingEngine | None = None, n_rows: int = 300) -> ScoreTable:
    loader = Loaded(Several(engine or CountingEngine(), n_replicas))
    return finish(score_rows(TokenRows.of(token_rows(n_rows)), open_scores(folder / "rows"), loader, "scores"))


@pytest.mark.parametrize(
    ("n_rows", "step_tokens", "n_replicas", "size"),
    [
        (100, 2, 1, 2 * 64),  # one replica never waits for another: 64 steps
        (100, 2, 2, 14),  # 400 tokens for 2 x 16 shards: 12.5, which are 7 steps
        (100, 2, 3, 10),  # 400 / 48 = 8.3 tokens, which are 5 steps
        (100, 2, 50, 8),  # 400 / 800 = 0.5 tokens are less than four steps
        (600, 1, 2, 64),  # 2,400 / 32 = 75 tokens are more than 64 steps
    ],
)
def test_shards_shrink_until_each_replica_has_sixteen_but_not_below_four_steps(n_rows, step_tokens, n_replicas, size):
    tokens = TokenRows.of(token_rows(n_rows))  # four tokens are fed for each row
    sizes = shard_sizes(tokens, step_tokens=step_tokens, n_replicas=n_replicas, shares_prefixes=False)
    assert sizes.tokens == size


@pytest.mark.parametrize("n_replicas", [2, 5, 16])
def test_every_replica_has_shards_enough(n_replicas):
    tokens = TokenRows.of(token_rows(300))
    sizes = shard_sizes(tokens, step_tokens=1, n_replicas=n_replicas, shares_prefixes=False)
    shards = shard_plan(tokens, shard_tokens=sizes.tokens, last_shard_tokens=sizes.last_tokens, shares_prefixes=False)
    assert len(shards) >= MIN_SHARDS_PER_REPLICA * n_replicas
    assert sum(shard.n_rows for shard in shards.values()) == 300


def test_the_last_eighth_is_cut_into_quarters_so_that_no_replica_waits_long():
    rows = TokenRows.of(token_rows(800))  # 3,200 tokens
    assert shard_sizes(rows, step_tokens=2, n_replicas=2, shares_prefixes=False) == (100, 26)  # 50 and 13 steps
    cut = [*shard_plan(rows, shard_tokens=100, last_shard_tokens=26, shares_prefixes=False).values()]
    ends = np.cumsum([shard.computed_tokens for shard in cut])
    assert ends[-1] == 3200
    large = [shard.computed_tokens for shard, end in zip(cut, ends, strict=True) if end <= 2800]
    small = [shard.computed_tokens for shard, end in zip(cut[:-1], ends, strict=False) if end > 2900]
    assert min(large) >= 75
    assert max(small) <= 26 + 3  # a request of four tokens may begin within the first 26
    # Two replicas, the largest shards first: the one that ends first waits for at most a small shard.
    busy = [0, 0]
    for size in sorted((shard.computed_tokens for shard in cut), reverse=True):
        busy[busy.index(min(busy))] += size
    assert max(busy) - min(busy) <= 29


def test_a_plan_of_an_earlier_version_has_shards_of_one_size():
    rows = TokenRows.of(token_rows(100))
    cut = shard_plan(rows, shard_tokens=40, shares_prefixes=False)
    assert cut == shard_plan(rows, shard_tokens=40, last_shard_tokens=40, shares_prefixes=False)
    assert len(cut) < len(shard_plan(rows, shard_tokens=40, last_shard_tokens=10, shares_prefixes=False))


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
