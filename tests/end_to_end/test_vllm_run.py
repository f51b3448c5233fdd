"""Runs of the model that ships on a real vLLM: killed on the way, against the reference engine, its MODEL_CARD.md."""

import json
import shutil
import signal
from unittest.mock import patch

import numpy as np
import polars as pl
import pytest

import evaluator
from evaluator.config import ModelConfig
from evaluator.engine import transformers_engine
from evaluator.models.embedded import EMBEDDED_MODELS
from evaluator.models.source import find_model
from tests.command_line import command
from tests.end_to_end.processes import INTERRUPTED, prompts_left, shards_done, table_bytes
from tests.engine import vllm_processes

FOLDER = EMBEDDED_MODELS["embedded"]()
EMBEDDED = ("run", "staicc-normal", "--model", "embedded")
SMALL = (*EMBEDDED, "--datasets", "sst5,trec,agnews", "--queries", 8)
VLLM = ("--engine", "vllm", "--step-tokens", 128, "--step-prompts", 64)  # small steps, so several shards


@pytest.fixture(scope="module")
def embedded_run(tmp_path_factory):
    """Folder of a run of the model that ships through vLLM; read only."""
    out = tmp_path_factory.mktemp("embedded") / "out"
    command(*SMALL, *VLLM, "--out", out)
    return out


def test_weights_and_tokenizer_take_at_most_eight_megabytes():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 8_000_000


def test_it_is_an_ordinary_llama_folder_with_its_own_tokenizer():
    source = find_model(ModelConfig(model=str(FOLDER)))
    assert source.dtype == "float32"
    assert source.n_parameters < 4_000_000
    assert {path.name for path in FOLDER.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json"}


@pytest.mark.exhaustive  # it tests the weights, which do not change
def test_most_of_ten_datasets_lie_above_the_random_baseline_and_the_majority_class(tmp_path):
    """Accuracies on 96 of 512 queries, by the paper's definition."""
    command(*EMBEDDED, "--engine", "vllm", "--queries", 96, "--out", tmp_path)
    metrics = pl.read_parquet(tmp_path / "tables" / "metrics.parquet")
    accuracies = metrics.filter(pl.col("dataset") != "mean", metric="accuracy", definition="paper")
    assert accuracies.height == 10
    assert accuracies.filter(pl.col("log10_tail") < -6).height >= 7
    assert accuracies.filter(pl.col("value") > pl.col("majority")).height >= 6


@pytest.mark.slow
def test_a_run_killed_while_vllm_scores_ends_with_the_predictions_of_one_never_killed(embedded_run, tmp_path):
    out = tmp_path / "out"
    words = (*SMALL, *VLLM, "--out", out)
    killed = vllm_processes.run(INTERRUPTED, "SIGKILL", 2, *words, folder=tmp_path)
    assert killed.returncode == -signal.SIGKILL, killed
    assert shards_done(out) == 1
    assert prompts_left(out) > 0
    command(*words)
    assert table_bytes(out) == table_bytes(embedded_run)


@pytest.mark.slow
def test_vllm_is_as_exact_as_transformers_on_every_prompt_of_three_datasets(embedded_run, tmp_path):
    """Two engines in float32 differ by the rounding of both: each is compared with float64."""
    words = (*SMALL, "--engine", "transformers", "--queries", 4)
    command(*words, "--out", tmp_path / "float32")
    with (
        patch.object(transformers_engine, "scoring_dtype", return_value="float64"),
        patch.object(transformers_engine, "_TOKENS_PER_BATCH", {"cpu": 1}),  # no padding: its mask overflows in float64
    ):
        command(*words, "--out", tmp_path / "float64")
    key = ["dataset", "position"]
    exact = evaluator.read_scores(tmp_path / "float64").collect().sort(key)
    errors = {}
    for engine, out in (("vllm", embedded_run), ("transformers", tmp_path / "float32")):
        scores = evaluator.read_scores(out).join(exact.lazy(), on=["prompt_id", *key], how="semi").collect().sort(key)
        assert scores["prompt_id"].to_list() == exact["prompt_id"].to_list()
        log_probs = (table["label_log_likelihoods"].explode().to_numpy() for table in (scores, exact))
        errors[engine] = np.abs(np.subtract(*log_probs))
    assert errors["vllm"].mean() < 1.5 * errors["transformers"].mean() < 1e-5
    assert errors["vllm"].max() < 5e-5


@pytest.mark.slow
def test_vllm_and_transformers_differ_by_at_most_1e_4_nats_in_fp32_on_a_seeded_sample(embedded_run, tmp_path, capsys):
    shutil.copytree(embedded_run, tmp_path / "out")
    command("receipt", tmp_path / "out", "--engine", "transformers", "--n", 32, "--seed", 0)
    receipt = json.loads((tmp_path / "out" / "run.json").read_text())["receipts"]["transformers float32"]
    assert receipt["prompts"] == 32
    assert receipt["max_drift_nats"] <= 1e-4
    with capsys.disabled():
        print(
            f"\nNumerical receipt, vLLM against transformers in fp32: {receipt['prompts']} prompts, at most "
            f"{receipt['max_drift_nats']:.2g} nats, {receipt['flipped']} predictions flipped, "
            f"{len(receipt['changed_verdicts'])} of {receipt['verdicts']} verdicts changed"
        )


@pytest.mark.slow
def test_the_report_says_which_model_made_its_numbers(embedded_run):
    assert "the small model that ships here" in (embedded_run / "report.html").read_text()


@pytest.mark.slow
def test_a_random_model_answers_by_chance_and_its_report_says_so(tmp_path):
    words = ("run", "staicc-normal", "--model", "random", "--datasets", "trec", "--queries", 64)
    command(*words, "--engine", "transformers", "--out", tmp_path)
    assert "every number here is chance" in (tmp_path / "report.html").read_text()
    accuracy = pl.read_parquet(tmp_path / "tables" / "metrics.parquet").filter(metric="accuracy", definition="paper")
    # Label frequencies differ, so a constant answer may lie some way off a sixth; a model that can read lies far off.
    assert abs(accuracy.filter(dataset="trec")["value"].item() - 1 / 6) < 0.2
