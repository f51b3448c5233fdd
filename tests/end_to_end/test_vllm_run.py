"""A whole run on a real vLLM: from datasets to the report, killed on the way, and against the reference engine."""

import signal

import numpy as np
import polars as pl
import pytest

import evaluator
from tests.end_to_end.processes import command, shards_done, start, table_bytes, wait_for_a_shard

RUN = ("run", "staicc-normal", "--model", "embedded", "--datasets", "sst5,trec,agnews")  # five shards


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("vllm") / "out"
    command(*RUN, "--engine", "vllm", "--out", out)
    return out


@pytest.mark.slow
def test_a_run_killed_while_vllm_scores_ends_with_the_bytes_of_one_never_killed(finished, tmp_path):
    out = tmp_path / "killed"
    process = start(*RUN, "--engine", "vllm", "--out", out)
    wait_for_a_shard(out, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    done, planned = shards_done(out)
    assert 0 < done < planned
    command(*RUN, "--engine", "vllm", "--out", out)
    assert table_bytes(out) == table_bytes(finished)


@pytest.mark.slow
def test_both_engines_agree_on_every_prompt_of_a_run(finished, tmp_path):
    command(*RUN, "--engine", "transformers", "--out", tmp_path / "out")
    fast, plain = (evaluator.read_scores(out).collect() for out in (finished, tmp_path / "out"))
    assert fast["prompt_id"].to_list() == plain["prompt_id"].to_list()
    for column in ("label_log_likelihoods", "last_token_log_probs"):
        numbers = [np.array(table[column].explode()) for table in (fast, plain)]
        np.testing.assert_allclose(*numbers, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_the_report_says_which_model_made_its_numbers(finished):
    assert "the small model that ships here" in (finished / "report.html").read_text()


@pytest.mark.slow
def test_a_random_model_answers_by_chance_and_its_report_says_so(tmp_path):
    words = ("run", "staicc-normal", "--model", "random", "--datasets", "trec", "--queries", 256)
    command(*words, "--engine", "vllm", "--out", tmp_path)
    assert "every number here is chance" in (tmp_path / "report.html").read_text()
    accuracy = pl.read_parquet(tmp_path / "tables" / "metrics.parquet").filter(metric="accuracy", definition="paper")
    # Label frequencies differ, so a constant answer may lie some way off a sixth; a model that can read lies far off.
    assert abs(accuracy.filter(dataset="trec")["value"].item() - 1 / 6) < 0.2
