import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from evaluator import store
from evaluator.engine.base import ContinuationRequest, ContinuationScores, TokenCounts
from evaluator.engine.replicas import EngineLoader, OneReplica, Replicas
from evaluator.errors import ScoreError
from evaluator.progress import Stage, finish
from evaluator.record import EngineRecord
from evaluator.schemas import TOKEN_STATES, TOKENS
from evaluator.scores.compute import score_rows
from evaluator.scores.plan import Plan, Shard, cut_shards, find_requests, plan_rows
from evaluator.scores.table import Kind, PlanRecord, ScoreTable, open_scores, prompt_scores
from evaluator.tokens.rows import TokenRows
from evaluator.tokens.table import with_last_tokens, with_token_ids


class CountingEngine:
    """Answers the negative sum of the context's tokens for each token; can be told to die after some requests."""

    def __init__(self, dies_after: int | None = None, dies_of: type[BaseException] = KeyboardInterrupt) -> None:
        self.facts = EngineRecord(
            name="counting", versions={}, device="none", dtype="float64", prefix_block_tokens=None, tokens_per_step=1
        )
        self.counts = TokenCounts()
        self.asked = 0
        self.dies_after, self.dies_of = dies_after, dies_of

    def log_likelihoods(self, requests: Sequence[ContinuationRequest]) -> Iterator[ContinuationScores]:
        # Backwards, because answers may come in any order.
        for index in reversed(range(len(requests))):
            if self.asked == self.dies_after:
                raise self.dies_of
            self.asked += 1
            context, continuations = requests[index]
            self.counts.prompt_tokens += len(context)
            yield ContinuationScores(
                index, [[-float(sum(context) + token) for token in tokens] for tokens in continuations]
            )

    def hidden_states(self, texts: Sequence[Sequence[int]]) -> np.ndarray:
        self.asked += len(texts)
        return np.array([[sum(text), len(text)] for text in texts], np.float32)

    def close(self) -> None: ...


ASKS_STATE = {"ask": pl.lit("state"), "continuations": pl.lit([], pl.List(pl.List(pl.Int32)))}


def token_rows(n: int = 100) -> pl.DataFrame:
    rows = pl.DataFrame(
        {
            "prompt_id": [f"p{i:03d}" for i in range(n)],
            "ask": "labels",
            "context": [[i, i + 1, i + 2] for i in range(n)],
            "continuations": [[[1], [2, 3]]] * n,
        },
        schema_overrides={name: TOKENS[name] for name in ("context", "continuations")},
    )
    return with_token_ids(rows)


def states_of(tokens: pl.DataFrame) -> pl.DataFrame:
    """The same contexts, asked for their hidden states."""
    return with_token_ids(tokens.drop("token_id").with_columns(**ASKS_STATE))


class Loaded(EngineLoader):
    """A loader whose engine is there already."""

    def __init__(self, replicas: OneReplica) -> None:
        self.loaded = replicas

    def replicas(self, longest: int = 0) -> Stage[Replicas]:
        yield from ()
        assert longest > 1
        return self.loaded


def planned(tokens: pl.DataFrame, table: ScoreTable, kind: Kind = "scores") -> Plan:
    return plan_rows(TokenRows(tokens.lazy()), table, kind)


def shards_of(tokens: pl.DataFrame, **sizes) -> list[Shard]:
    plan = PlanRecord(reused={}, prompts=tokens.height, reused_prompts=0, **sizes)
    return cut_shards(find_requests(TokenRows(tokens.lazy())), plan)


def answer(tokens, engine, folder, kind="scores"):
    table = open_scores(folder)
    return finish(score_rows(planned(tokens, table, kind), table, Loaded(OneReplica(engine))))


def score(tokens, engine, folder):
    return answer(tokens, engine, folder)


def test_scores_sum_whole_labels_and_keep_the_last_token_apart(tmp_path):
    tokens = with_last_tokens(token_rows(1))
    engine = CountingEngine()
    table = score(tokens, engine, tmp_path / "rows")
    row = prompt_scores(tokens.lazy(), table.read("scores")).collect().row(0, named=True)
    # The context 0 1 2 sums to 3. Label [1]: -(3+1) = -4. Label [2, 3]: -(3+2) - (3+3) = -11; its last token: -(3+3).
    assert row["label_log_likelihoods"] == [-4.0, -11.0]
    assert row["last_token_log_probs"] == [-4.0, -6.0]
    assert row["label_token_counts"] == [1, 2]
    assert engine.asked == 1  # labels and last tokens of a prompt are one request


def test_last_tokens_are_null_unless_requested_except_for_labels_of_one_token(tmp_path):
    several, single = (
        token_rows(1),
        token_rows(2).tail(1).with_columns(continuations=pl.lit([[1], [2]], TOKENS["continuations"])),
    )
    tokens = pl.concat([several, with_token_ids(single.drop("token_id"))])
    table = score(tokens, CountingEngine(), tmp_path / "rows")
    scores = prompt_scores(tokens.lazy(), table.read("scores")).collect()
    in_order = scores.join(tokens, on="prompt_id", how="right", maintain_order="right")
    assert in_order["last_token_log_probs"].to_list() == [None, [-7.0, -8.0]]


def test_rows_with_scores_in_another_folder_are_not_scored_again(tmp_path):
    score(token_rows(60), CountingEngine(), tmp_path / "first")
    engine = CountingEngine()
    table = score(token_rows(100), engine, tmp_path / "second")
    assert engine.asked == 40
    assert set(table.read("scores").collect()["token_id"]) == set(token_rows(100)["token_id"])
    again = CountingEngine()
    assert score(token_rows(100), again, tmp_path / "second").manifest == table.manifest
    assert again.asked == 0


@pytest.mark.parametrize("dies_after", [None, 20])
def test_rows_whose_reused_scores_were_removed_are_scored_again_and_no_others(tmp_path, dies_after):
    score(token_rows(60), CountingEngine(), tmp_path / "first")
    alone = score(token_rows(100), CountingEngine(), tmp_path / "alone" / "rows").read("scores").collect()
    if dies_after is None:
        score(token_rows(100), CountingEngine(), tmp_path / "second")
    else:
        with pytest.raises(KeyboardInterrupt):
            score(token_rows(100), CountingEngine(dies_after=dies_after), tmp_path / "second")
    kept = sum(shard.prompts for shard in open_scores(tmp_path / "second").manifest.shards.values())
    assert kept == 40 or 0 < kept < 20
    shutil.rmtree(tmp_path / "first")
    engine = CountingEngine()
    table = score(token_rows(100), engine, tmp_path / "second")
    assert engine.asked == 100 - kept
    assert table.read("scores").collect().sort("token_id").equals(alone.sort("token_id"))
    assert len(table.manifest.plans) == 1
    assert sum(n_prompts(table)) == 100
    again = CountingEngine()
    assert score(token_rows(100), again, tmp_path / "second").manifest == table.manifest
    assert again.asked == 0


def n_prompts(table: ScoreTable) -> tuple[int, int]:
    """Number of prompts that the plans of a table score, and of those that they reuse."""
    shards, plans = table.manifest.counted_shards, table.manifest.plans.values()
    return sum(shard.prompts for shard in shards), sum(plan.reused_prompts for plan in plans)


def rows_with_last_tokens(n: int) -> pl.DataFrame:
    """Two rows a prompt: its labels, and their last tokens."""
    return with_last_tokens(token_rows(n)).sort("prompt_id", "ask")


def test_a_prompt_of_two_rows_counts_once_whether_it_is_scored_or_reused(tmp_path):
    score(rows_with_last_tokens(10), CountingEngine(), tmp_path / "first")
    table = open_scores(tmp_path / "second")
    loader = Loaded(OneReplica(CountingEngine()))
    stage = score_rows(planned(rows_with_last_tokens(20), table), table, loader)
    said = [(now.done, now.total) for now in stage if now.stage == "Reused from earlier runs"]
    assert said == [(10, 20)]
    assert n_prompts(open_scores(tmp_path / "second")) == (10, 10)


def test_a_prompt_that_lacks_only_its_last_tokens_counts_as_scored(tmp_path):
    score(token_rows(10), CountingEngine(), tmp_path / "first")
    engine = CountingEngine()
    table = score(rows_with_last_tokens(15), engine, tmp_path / "second")
    assert engine.asked == 15
    assert n_prompts(table) == (15, 0)


def test_a_plan_stays_as_it_was_when_other_folders_are_added(tmp_path):
    """So that a run which was killed ends with the bytes of one that was not, whatever ran in between."""
    with pytest.raises(KeyboardInterrupt):
        score(token_rows(100), CountingEngine(dies_after=60), tmp_path / "stopped")
    score(token_rows(100), CountingEngine(), tmp_path / "other")
    score(token_rows(100), CountingEngine(), tmp_path / "stopped")
    files = [
        {path.name: path.read_bytes() for path in (tmp_path / name).glob("*.arrow")} for name in ("stopped", "other")
    ]
    # The other run found some rows answered; the stopped one goes on as it had planned and answers all by itself.
    assert sum(len(pl.read_ipc(content)) for content in files[0].values()) == 100
    assert sum(len(pl.read_ipc(content)) for content in files[1].values()) < 100


def test_every_shard_is_hashed_once_when_scores_are_opened_and_none_when_they_are_read(tmp_path, monkeypatch):
    score(token_rows(60), CountingEngine(), tmp_path / "first")
    score(token_rows(100), CountingEngine(), tmp_path / "second")
    hashed = []
    digest = store.file_digest
    monkeypatch.setattr(store, "file_digest", lambda path: hashed.append(path) or digest(path))
    table = open_scores(tmp_path / "second")
    table.read("scores").collect()
    finish(score_rows(planned(token_rows(100), table), table, Loaded(OneReplica(CountingEngine()))))
    assert len(hashed) == len(set(hashed)) == len([*tmp_path.glob("*/*.arrow")])


def test_a_run_that_was_stopped_scores_only_what_is_missing_and_ends_with_the_same_bytes(tmp_path):
    tokens = token_rows()
    score(tokens, CountingEngine(), tmp_path / "a" / "rows")
    with pytest.raises(KeyboardInterrupt):
        score(tokens, CountingEngine(dies_after=60), tmp_path / "b" / "rows")
    kept = open_scores(tmp_path / "b" / "rows").manifest.shards
    assert 0 < len(kept) < len(shards_of(tokens, shard_tokens=64, shares_prefixes=False))
    second = CountingEngine()
    score(tokens, second, tmp_path / "b" / "rows")
    assert second.asked == tokens.height - sum(shard.prompts for shard in kept.values())
    names = sorted(path.name for path in (tmp_path / "a" / "rows").glob("*.arrow"))
    assert names == sorted(path.name for path in (tmp_path / "b" / "rows").glob("*.arrow"))
    for name in names:
        assert (tmp_path / "a" / "rows" / name).read_bytes() == (tmp_path / "b" / "rows" / name).read_bytes()


def test_a_shard_that_the_manifest_does_not_name_or_whose_bytes_changed_is_scored_again(tmp_path):
    tokens = token_rows()
    score(tokens, CountingEngine(), tmp_path / "rows")
    damaged = sorted((tmp_path / "rows").glob("*.arrow"))[1]
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1])
    (tmp_path / "rows" / "scores-00099.arrow").write_bytes(b"never named")
    again = CountingEngine()
    table = score(tokens, again, tmp_path / "rows")
    assert 0 < again.asked < tokens.height
    assert damaged.read_bytes() == whole
    assert table.read("scores").collect().height == tokens.height


def test_shards_close_at_the_token_budget_and_cover_every_row_once():
    tokens = token_rows(25)  # four tokens to feed a row: three of the context and the first of the second label
    # No two share a prefix, so a shard closes as soon as it may: of 32 tokens at 24, before the seventh row.
    plan = shards_of(tokens, shard_tokens=32, shares_prefixes=False)
    assert plan == [(0, 6, 24), (6, 6, 24), (12, 6, 24), (18, 7, 28)]
    assert shards_of(tokens.clear(), shard_tokens=32, shares_prefixes=False) == []


def test_a_shard_closes_where_the_least_of_a_prefix_is_lost():
    # Rows of three tokens; a shard of 24 may close before the rows 6, 7 or 8, and row 7 begins another prefix.
    contexts = [[1, 1, i] for i in range(7)] + [[2, 2, i] for i in range(7, 14)]
    labels = pl.lit([[5], [6]], pl.List(pl.List(pl.Int32)))
    tokens = token_rows(14).with_columns(context=pl.Series(contexts, dtype=pl.List(pl.Int32)), continuations=labels)
    assert shards_of(tokens, shard_tokens=24, shares_prefixes=False) == [
        (0, 7, 21),
        (7, 7, 21),
    ]
    # Where prefixes are shared, 3 tokens of the first row and 1 of each other are computed, of the eighth 3 again: 18.
    shared = shards_of(tokens, shard_tokens=9, shares_prefixes=True)
    assert shared == [(0, 7, 9), (7, 7, 9)]
    assert len(shards_of(tokens, shard_tokens=24, shares_prefixes=True)) == 1


def test_rows_that_share_all_their_tokens_count_one_each():
    contexts = pl.Series([[1, 2, 3]] * 10, dtype=pl.List(pl.Int32))
    text = pl.lit([[4, 5, 6, 7]], pl.List(pl.List(pl.Int32)))
    tokens = token_rows(10).with_columns(ask=pl.lit("text"), context=contexts, continuations=text)
    # Of the first row 6 tokens are fed, of each other 1, so that rows begin at 0, 6, 7, ..., 14. A shard of 8 may close
    # from 6 on, and every row loses as much there: the first closes before row 1, which begins at 6; the second before
    # the row that begins at 6 + 6, row 7; the rest fits into the third.
    assert shards_of(tokens, shard_tokens=8, shares_prefixes=True) == [
        (0, 1, 6),
        (1, 6, 6),
        (7, 3, 3),
    ]


def test_a_row_longer_than_a_shard_is_a_shard_by_itself():
    plan = shards_of(token_rows(3), shard_tokens=2, shares_prefixes=False)
    assert plan == [(0, 1, 4), (1, 1, 4), (2, 1, 4)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_log_likelihood_that_is_not_finite_is_refused_with_the_prompt_named(tmp_path, value):
    class Broken(CountingEngine):
        def log_likelihoods(self, requests):
            for answer in super().log_likelihoods(requests):
                yield replace(answer, token_log_probs=[[value], *answer.token_log_probs[1:]])

    with pytest.raises(ScoreError, match="prompt p0"):
        score(token_rows(3), Broken(), tmp_path / "rows")
    assert not list(tmp_path.rglob("*.arrow"))


def test_progress_reaches_the_total_and_counts_existing_scores(tmp_path):
    tokens = token_rows()
    with pytest.raises(KeyboardInterrupt):
        score(tokens, CountingEngine(dies_after=60), tmp_path / "rows")
    table = open_scores(tmp_path / "rows")
    seen = list(score_rows(planned(tokens, table), table, Loaded(OneReplica(CountingEngine()))))
    assert seen[0].done > 22
    assert seen[-1].done == seen[-1].total == tokens.height
    assert all(earlier.done <= later.done for earlier, later in pairwise(seen))


def test_hidden_states_are_stored_next_to_the_scores_and_computed_once(tmp_path):
    score(token_rows(40), CountingEngine(), tmp_path / "rows")
    for_states = states_of(token_rows(50).tail(10))
    engine = CountingEngine()
    for _ in range(2):
        table = answer(for_states, engine, tmp_path / "rows", "states")
    assert engine.asked == 10
    states = table.read("states").collect()
    assert states.schema == TOKEN_STATES
    # The last context is 49 50 51: it sums to 150 and holds three tokens.
    assert states.row(-1) == (for_states["token_id"][-1], [150.0, 3.0])
    assert table.read("scores").collect().height == 40


def test_a_hidden_state_that_is_not_finite_is_refused_with_the_prompt_named_and_the_scores_are_kept(tmp_path):
    class Broken(CountingEngine):
        def hidden_states(self, texts):
            states = super().hidden_states(texts)
            states[1, 0] = math.nan
            return states

    score(token_rows(3), CountingEngine(), tmp_path / "rows")
    for_states = states_of(token_rows(3))
    with pytest.raises(
        ScoreError, match="1 of 3 prompts have a hidden state that is not finite; the first is prompt p001"
    ):
        answer(for_states, Broken(), tmp_path / "rows", "states")
    assert open_scores(tmp_path / "rows").read("scores").collect().height == 3
