"""Replicas of a model on vLLM, and a model split over parts of the processor, beside one process with it."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import evaluator
from evaluator.engine.devices import this_processor
from tests.command_line import command
from tests.end_to_end.processes import table_bytes
from tests.engine import vllm_processes

pytestmark = [
    pytest.mark.skipif(this_processor().max_devices < 2, reason="one core"),
    pytest.mark.slow,
    pytest.mark.usefixtures("without_pages"),
]

ON_ONE_CORE = """
import os, runpy
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
runpy.run_module("evaluator", run_name="__main__")
"""


def test_two_replicas_of_vllm_with_a_core_each_give_the_bytes_of_one_process_on_one_core(tmp_path: Path) -> None:
    words = ("run", "staicc-normal", "--datasets", "sst5,trec", "--queries", 4, "--model", "embedded")
    words = (*words, "--engine", "vllm")
    one = vllm_processes.run(ON_ONE_CORE, *words, "--out", tmp_path / "one", folder=tmp_path)
    assert one.returncode == 0, one
    command(*words, "--devices", 2, "--out", tmp_path / "two")
    assert table_bytes(tmp_path / "two") == table_bytes(tmp_path / "one")


@pytest.mark.exhaustive  # in every run: on Ray, with runner V2 (tests/engine/test_on_model_runner_v2.py)
def test_a_model_split_over_two_parts_of_the_processor_agrees_with_one(tiny_model: Path, tmp_path: Path) -> None:
    # One method reads scores, the other hidden states.
    what = ("--datasets", "sst5", "--definition", "paper", "--queries", 4, "--methods", "vanilla,hidden_calibration")
    words = ("run", "staicc-normal", *what, "--model", tiny_model, "--dtype", "float32", "--engine", "vllm")
    scores, predictions = [], []
    for n in (1, 2):
        command(*words, "--tensor-parallel", n, "--out", tmp_path / str(n))
        scores.append(evaluator.read_scores(tmp_path / str(n)).collect().sort("dataset", "position"))
        table = pl.read_parquet(tmp_path / str(n) / "tables" / "predictions.parquet")
        predictions.append(table.sort("method", "definition", "dataset", "position").select("prompt_id", "pred"))
    log_probs = (each["label_log_likelihoods"].explode().to_numpy() for each in scores)
    np.testing.assert_allclose(*log_probs, rtol=0, atol=1e-5)
    assert_frame_equal(*predictions)
