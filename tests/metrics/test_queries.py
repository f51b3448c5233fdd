"""The table of single queries."""

from pathlib import Path

import polars as pl

from evaluator.methods.base import ScoredRequests, predict
from evaluator.metrics.table import queries_table, query_texts
from evaluator.schemas import PROMPTS, QUERIES
from tests.methods.answered import NORMAL, answers, named, table


def test_each_prompt_of_a_query_has_one_row_with_its_text_and_scores(tmp_path: Path):
    """Two datasets are answered by two methods, and texts are in two stores."""
    tables = [table("normal", [[-1.0, -2.0], [-2.0, -1.0], [-1.0, -3.0]], dataset=name) for name in ("b", "a")]
    scored = ScoredRequests(rows=answers(*tables).rows, parts=NORMAL)
    predictions = predict(scored, named("vanilla", "per_token"), ("paper", "released"))
    texts = scored.rows.select("prompt_id", query=pl.format("text of {}", "prompt_id"))
    rows = pl.concat(queries_table(scored, pl.concat([texts, texts]), predictions, tmp_path))
    assert rows.schema == QUERIES
    assert rows.select("dataset", "query_id").rows() == [(name, query) for name in "ab" for query in range(3)]
    assert rows["label_log_likelihoods"].to_list() == [[-1.0, -2.0], [-2.0, -1.0], [-1.0, -3.0]] * 2
    assert rows.select((pl.col("query") == pl.format("text of {}", "prompt_id")).all()).item()


def test_the_query_is_what_follows_the_last_demonstration():
    spans = [[{"start": 0, "label": 5, "end": 8}, {"start": 9, "label": 15, "end": 15}], None]
    prompts = pl.LazyFrame({"prompt_id": ["a", "b"], "prompt": ["shown: x\n asked: ", " alone"], "spans": spans}).cast(
        {"spans": PROMPTS["spans"]}
    )
    texts = query_texts(prompts).collect()
    assert texts["query"].to_list() == ["asked:", "alone"]
