import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from evaluator.engine.base import ContinuationRequest, ContinuationScores, EngineFacts, TokenCounts
from evaluator.errors import ScoreError
from evaluator.progress import finish
from evaluator.schemas import HIDDEN_STATES, TOKENS
from evaluator.scores.table import compute_hidden_states, open_scores, score_prompts, shard_plan


class CountingEngine:
    """Answers the negative sum of the context's tokens for each token; can be told to die after some requests."""

    def __init__(self, dies_after: int | None = None) -> None:
        self.facts = EngineFacts(
            name="counting", versions={}, device="none", dtype="float64", prefix_block_tokens=None, tokens_per_step=1
        )
        self.counts = TokenCounts()
        self.asked = 0
        self.dies_after = dies_after

    def log_likelihoods(self, requests: Sequence[ContinuationRequest]) -> Iterator[ContinuationScores]:
        # Backwards, because answers may come in any order.
        for index in reversed(range(len(requests))):
            if self.asked == self.dies_after:
                raise KeyboardInterrupt
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
    return pl.DataFrame(
        {
            "prompt_id": [f"p{i:03d}" for i in range(n)],
            "ask": "labels",
            "context": [[i, i + 1, i + 2] for i in range(n)],
            "continuations": [[[1], [2, 3]]] * n,
        },
        schema=TOKENS,
    )


def score(tokens, engine, folder):
    return finish(score_prompts(tokens, engine, folder, identity={"model": "m"}))


def test_scores_sum_whole_labels_and_keep_the_last_token_apart(tmp_path):
    table = score(token_rows(1), CountingEngine(), tmp_path)
    row = table.scores().collect().row(0, named=True)
    # The context 0 1 2 sums to 3. Label [1]: -(3+1) = -4. Label [2, 3]: -(3+2) - (3+3) = -11; its last token: -(3+3).
    assert row["label_log_likelihoods"] == [-4.0, -11.0]
    assert row["last_token_log_probs"] == [-4.0, -6.0]
    assert row["label_token_counts"] == [1, 2]


def test_a_run_that_was_stopped_scores_only_what_is_missing_and_ends_with_the_same_bytes(tmp_path):
    tokens = token_rows()
    score(tokens, CountingEngine(), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        score(tokens, CountingEngine(dies_after=60), tmp_path / "stopped")
    kept = json.loads((tmp_path / "stopped" / "manifest.json").read_text())["shards"]
    assert 0 < len(kept) < len(shard_plan(tokens, shard_tokens=64, shares_prefixes=False))
    second = CountingEngine()
    score(tokens, second, tmp_path / "stopped")
    assert second.asked == tokens.height - sum(shard["prompts"] for shard in kept.values())
    names = sorted(path.name for path in (tmp_path / "whole").glob("*.arrow"))
    assert names == sorted(path.name for path in (tmp_path / "stopped").glob("*.arrow"))
    for name in names:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "stopped" / name).read_bytes()


def test_a_shard_that_the_manifest_does_not_name_or_whose_bytes_changed_is_scored_again(tmp_path):
    tokens = token_rows()
    score(tokens, CountingEngine(), tmp_path)
    damaged = tmp_path / "scores-00001.arrow"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1])
    (tmp_path / "scores-00099.arrow").write_bytes(b"never named")
    again = CountingEngine()
    table = score(tokens, again, tmp_path)
    assert 0 < again.asked < tokens.height
    assert damaged.read_bytes() == whole
    assert table.scores().collect().height == tokens.height


def test_shards_close_at_the_token_budget_and_cover_every_row_once():
    tokens = token_rows(25)  # four tokens to feed a row: three of the context and the first of the second label
    # No two share a prefix, so a shard closes as soon as it may: of 32 tokens at 24, before the seventh row.
    plan = shard_plan(tokens, shard_tokens=32, shares_prefixes=False)
    assert list(plan.values()) == [(0, 6), (6, 6), (12, 6), (18, 7)]
    assert shard_plan(tokens.clear(), shard_tokens=32, shares_prefixes=False) == {}


def test_a_shard_closes_where_the_least_of_a_prefix_is_lost():
    # Rows of three tokens; a shard of 24 may close before the rows 6, 7 or 8, and row 7 begins another prefix.
    contexts = [[1, 1, i] for i in range(7)] + [[2, 2, i] for i in range(7, 14)]
    labels = pl.lit([[5], [6]], pl.List(pl.List(pl.Int32)))
    tokens = token_rows(14).with_columns(context=pl.Series(contexts, dtype=pl.List(pl.Int32)), continuations=labels)
    assert list(shard_plan(tokens, shard_tokens=24, shares_prefixes=False).values()) == [(0, 7), (7, 7)]
    # Where prefixes are shared, 3 tokens of the first row and 1 of each other are computed, of the eighth 3 again: 18.
    shared = shard_plan(tokens, shard_tokens=9, shares_prefixes=True)
    assert list(shared.values()) == [(0, 7), (7, 7)]
    assert len(shard_plan(tokens, shard_tokens=24, shares_prefixes=True)) == 1


def test_rows_that_share_all_their_tokens_count_one_each():
    contexts = pl.Series([[1, 2, 3]] * 10, dtype=pl.List(pl.Int32))
    text = pl.lit([[4, 5, 6, 7]], pl.List(pl.List(pl.Int32)))
    tokens = token_rows(10).with_columns(ask=pl.lit("text"), context=contexts, continuations=text)
    # Of the first row 6 tokens are fed, of each other 1, so that rows begin at 0, 6, 7, ..., 14. A shard of 8 may close
    # from 6 on, and every row loses as much there: the first closes before row 1, which begins at 6; the second before
    # the row that begins at 6 + 6, row 7; the rest fits into the third.
    assert list(shard_plan(tokens, shard_tokens=8, shares_prefixes=True).values()) == [(0, 1), (1, 6), (7, 3)]


def test_a_row_longer_than_a_shard_is_a_shard_by_itself():
    assert list(shard_plan(token_rows(3), shard_tokens=2, shares_prefixes=False).values()) == [(0, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_log_likelihood_that_is_not_finite_is_refused_with_the_prompt_named(tmp_path, value):
    class Broken(CountingEngine):
        def log_likelihoods(self, requests):
            for answer in super().log_likelihoods(requests):
                yield replace(answer, token_log_probs=[[value], *answer.token_log_probs[1:]])

    with pytest.raises(ScoreError, match="prompt p0"):
        score(token_rows(3), Broken(), tmp_path)
    assert not list(tmp_path.glob("*.arrow"))


def test_progress_reaches_the_total_and_counts_what_was_there(tmp_path):
    tokens = token_rows()
    with pytest.raises(KeyboardInterrupt):
        score(tokens, CountingEngine(dies_after=60), tmp_path)
    seen = list(score_prompts(tokens, CountingEngine(), tmp_path, identity={}))
    assert seen[0].done > 22
    assert seen[-1].done == seen[-1].total == tokens.height
    assert all(earlier.done <= later.done for earlier, later in pairwise(seen))


def test_hidden_states_lie_beside_the_scores_and_are_computed_once(tmp_path):
    score(token_rows(40), CountingEngine(), tmp_path)
    for_states = token_rows(50).tail(10).with_columns(**ASKS_STATE)
    engine = CountingEngine()
    for _ in range(2):
        table = finish(compute_hidden_states(for_states, engine, tmp_path, identity={"model": "m"}))
    assert engine.asked == 10
    states = table.states().collect()
    assert states.schema == HIDDEN_STATES
    # The last context is 49 50 51: it sums to 150 and holds three tokens.
    assert states.row(-1) == ("p049", [150.0, 3.0])
    assert table.scores().collect().height == 40


def test_a_hidden_state_that_is_not_finite_is_refused_with_the_prompt_named_and_the_scores_are_kept(tmp_path):
    class Broken(CountingEngine):
        def hidden_states(self, texts):
            states = super().hidden_states(texts)
            states[1, 0] = math.nan
            return states

    score(token_rows(3), CountingEngine(), tmp_path)
    for_states = token_rows(3).with_columns(**ASKS_STATE)
    with pytest.raises(
        ScoreError, match="1 of 3 prompts have a hidden state that is not finite; the first is prompt p001"
    ):
        finish(compute_hidden_states(for_states, Broken(), tmp_path, identity={"model": "m"}))
    assert open_scores(tmp_path).scores().collect().height == 3
