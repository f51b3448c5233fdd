"""A whole run on a real vLLM: from datasets to the report, killed on the way, and against the reference engine."""

import numpy as np
import polars as pl
import pytest

import evaluator
from tests.command_line import command
from tests.end_to_end.processes import killed, shards_done, table_bytes

EMBEDDED = ("run", "staicc-normal", "--model", "embedded")


@pytest.mark.slow
def test_a_run_killed_while_vllm_scores_ends_with_the_bytes_of_one_never_killed(tmp_path):
    words = (*EMBEDDED, "--engine", "vllm", "--datasets", "sst5,trec,agnews", "--queries", 64)
    killed(*words, "--out", tmp_path / "killed", at_call=2)
    assert shards_done(tmp_path / "killed") == (1, 2)
    for name in ("killed", "whole"):
        command(*words, "--out", tmp_path / name)
    assert table_bytes(tmp_path / "killed") == table_bytes(tmp_path / "whole")


@pytest.mark.slow
def test_both_engines_agree_on_every_prompt_of_three_datasets(embedded_run, tmp_path):
    words = ("--engine", "transformers", "--datasets", "sst5,trec,agnews", "--queries", 64)
    command(*EMBEDDED, *words, "--out", tmp_path)
    key = ["dataset", "position"]
    plain = evaluator.read_scores(tmp_path).collect().sort(key)
    fast = (
        evaluator.read_scores(embedded_run).join(plain.lazy(), on=["prompt_id", *key], how="semi").collect().sort(key)
    )
    assert fast["prompt_id"].to_list() == plain["prompt_id"].to_list()
    for column in ("label_log_likelihoods", "last_token_log_probs"):
        numbers = [np.array(table[column].explode()) for table in (fast, plain)]
        np.testing.assert_allclose(*numbers, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_the_report_says_which_model_made_its_numbers(embedded_run):
    assert "the small model that ships here" in (embedded_run / "report.html").read_text()


@pytest.mark.slow
def test_a_random_model_answers_by_chance_and_its_report_says_so(tmp_path):
    words = ("run", "staicc-normal", "--model", "random", "--datasets", "trec", "--queries", 256)
    command(*words, "--engine", "vllm", "--out", tmp_path)
    assert "every number here is chance" in (tmp_path / "report.html").read_text()
    accuracy = pl.read_parquet(tmp_path / "tables" / "metrics.parquet").filter(metric="accuracy", definition="paper")
    # Label frequencies differ, so a constant answer may lie some way off a sixth; a model that can read lies far off.
    assert abs(accuracy.filter(dataset="trec")["value"].item() - 1 / 6) < 0.2
