"""Requests joined with their scores on disk, against the join in memory."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from evaluator.schemas import REQUESTS, TOKEN_SCORES, TOKENS
from evaluator.scores import sorted_join
from evaluator.scores.prompts import join_prompt_scores
from evaluator.scores.table import Kind, ScoreManifest, ScoreTable
from evaluator.store import sorted_runs


class Scores(ScoreTable):
    """Scores in two shards, of which the second repeats some rows of the first with other numbers."""

    def frames(self, kind: Kind) -> Iterator[pl.DataFrame]:
        assert kind == "scores"
        yield token_scores(range(0, 30), 1.0)
        yield token_scores(range(20, 50), 2.0)


def token_scores(tokens: range, factor: float) -> pl.DataFrame:
    rows = {
        "token_id": [f"{token * 7919 % 64:032x}" for token in tokens],
        "log_likelihoods": [[-factor * token, -1.0] for token in tokens],
        "token_counts": [[1 + token % 2, 1] for token in tokens],
    }
    return pl.DataFrame(rows, TOKEN_SCORES)


@pytest.fixture
def tokens() -> pl.LazyFrame:
    """Fifty rows of labels, two with last tokens, one with a state; several prompts share a token_id."""
    whole = [(f"{number * 31 % 101:032x}", number % 40, "labels") for number in range(50)]
    last = [(prompt, 40 + number, "last_tokens") for number, (prompt, _, _) in enumerate(whole[:2])]
    rows = [*whole, *last, ("f" * 32, 60, "state")]
    return pl.LazyFrame(
        {
            "prompt_id": [prompt for prompt, _, _ in rows],
            "token_id": [f"{token * 7919 % 64:032x}" for _, token, _ in rows],
            "ask": [ask for _, _, ask in rows],
            "context": [[1]] * len(rows),
            "continuations": [[[2], [3]]] * len(rows),
        },
        TOKENS,
    )


@pytest.mark.parametrize("rows_together", [3, 20, 1000])
def test_rows_are_those_of_the_join_in_memory_in_the_order_of_requests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tokens: pl.LazyFrame, rows_together: int
) -> None:
    monkeypatch.setattr(sorted_join, "ROWS_TOGETHER", rows_together)
    monkeypatch.setattr(sorted_runs, "BATCH_ROWS", 2)
    prompts = [f"{number * 31 % 101:032x}" for number in (*range(49, -1, -1), 3, 3, 77)]  # the last has no scores
    requests = pl.LazyFrame({"suite": "s", "position": range(len(prompts)), "prompt_id": prompts}).select(
        pl.col(name).cast(dtype) if name in ("suite", "position", "prompt_id") else pl.lit(None, dtype).alias(name)
        for name, dtype in REQUESTS.items()
    )
    table = Scores(tmp_path, ScoreManifest())
    found = pl.concat(sorted_join.joined_requests(requests, tokens, table, tmp_path))
    scores = pl.concat(table.frames("scores")).unique("token_id", keep="first", maintain_order=True)
    expected = requests.join(join_prompt_scores(tokens, scores.lazy()), on="prompt_id", maintain_order="left").collect()
    assert_frame_equal(found, expected)
    assert found.height == len(prompts) - 1
    assert found["last_token_log_probs"].null_count() < found.height
    assert not list(tmp_path.iterdir())
