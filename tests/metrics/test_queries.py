"""The table of single queries, made piece by piece."""

from pathlib import Path

import polars as pl
import pytest

from evaluator.methods.base import ScoredRequests
from evaluator.methods.predictions import predict
from evaluator.metrics import queries
from evaluator.metrics.queries import QUERY_TEXTS, query_frames, query_texts
from evaluator.schemas import PROMPTS, QUERIES
from evaluator.store import sorted_runs
from tests.methods.answered import NORMAL, answers, named, table


def made(monkeypatch: pytest.MonkeyPatch, folder: Path, rows_together: int) -> pl.DataFrame:
    """The queries of two datasets by two methods, from texts that are in two stores."""
    for name in ("ROWS_ADDED", "ROWS_TOGETHER"):
        monkeypatch.setattr(queries, name, rows_together)
    monkeypatch.setattr(sorted_runs, "BATCH_ROWS", rows_together)
    tables = [table("normal", [[-1.0, -2.0], [-2.0, -1.0], [-1.0, -3.0]], dataset=name) for name in ("b", "a")]
    scored = ScoredRequests(rows=answers(*tables).rows, parts=NORMAL)
    predictions = predict(scored, named("vanilla", "per_token"), ("paper", "released"))
    ids = scored.rows.select("prompt_id").unique(maintain_order=True).collect()["prompt_id"]
    texts = pl.DataFrame({"prompt_id": ids, "query": [f"text {number}" for number in range(len(ids))]}, QUERY_TEXTS)
    return pl.concat(query_frames(scored, [texts, texts], predictions, folder))


def test_each_prompt_of_a_query_has_one_row_with_its_text_and_scores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    rows = made(monkeypatch, tmp_path, 100)
    assert rows.schema == QUERIES
    assert rows.select("dataset", "query_id").rows() == [(name, query) for name in "ab" for query in range(3)]
    assert rows["label_log_likelihoods"].to_list() == [[-1.0, -2.0], [-2.0, -1.0], [-1.0, -3.0]] * 2
    assert rows["query"].null_count() == 0


@pytest.mark.parametrize("rows_together", [1, 2, 4])
def test_the_pieces_do_not_change_the_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rows_together: int):
    assert made(monkeypatch, tmp_path, rows_together).equals(made(monkeypatch, tmp_path, 100))


def test_the_query_is_what_follows_the_last_demonstration():
    spans = [[{"start": 0, "label": 5, "end": 8}, {"start": 9, "label": 15, "end": 15}], None]
    prompts = pl.DataFrame({"prompt_id": ["a", "b"], "prompt": ["shown: x\n asked: ", " alone"], "spans": spans}).cast(
        {"spans": PROMPTS["spans"]}
    )
    (texts,) = query_texts([prompts])
    assert texts["query"].to_list() == ["asked:", "alone"]
