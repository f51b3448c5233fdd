"""Throughput races: the rows that slow tools get, when outputs count as equal, and scores from cached prefixes."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks.throughput import workloads
from benchmarks.throughput.cached_prefixes import transformers_cached
from benchmarks.throughput.contestants import Contestant
from benchmarks.throughput.race import N_BLOCKS, part, require_equal
from benchmarks.throughput.workloads import Job, requests
from evaluator.config import ModelConfig
from evaluator.engine import load_engine
from evaluator.engine.base import ContinuationRequest
from evaluator.models.source import ModelSource

SHARED = list(range(5, 105))
CONTEXTS = [[*SHARED, 7], [*SHARED, 7, 8], [*SHARED, 9], [3, 4, 5], [600, *SHARED]]
CONTINUATIONS = [[[11], [12]], [[11], [12, 13]], [[14, 15, 16]], [[11], [17]], []]


def job(folder: Path, model: Path = Path()) -> Job:
    """Rows in prefix order but for the first token of two; the last wants a hidden state."""
    asks = ["labels"] * 4 + ["state"]
    columns = {"ask": asks, "context": CONTEXTS, "continuations": CONTINUATIONS}
    schema = {"ask": pl.String, "context": pl.List(pl.Int32), "continuations": pl.List(pl.List(pl.Int32))}
    pl.DataFrame(columns, schema=schema).write_parquet(folder / "requests.parquet")
    return Job(model, "float32", folder, folder / "requests.parquet", list(range(len(CONTEXTS))))


def test_cached_prefixes_give_the_scores_of_the_reference_engine(
    tmp_path: Path, tiny_model: Path, tiny_source: ModelSource
) -> None:
    engine = load_engine(tiny_source, ModelConfig(model=str(tiny_model), engine="transformers", dtype="float32"))
    asking = [ContinuationRequest(*pair) for pair in zip(CONTEXTS, CONTINUATIONS, strict=True) if pair[1]]
    answers = {answer.index: answer.token_log_probs for answer in engine.log_likelihoods(asking)}
    expected = [sum(tokens) for index in range(len(asking)) for tokens in answers[index]]
    np.testing.assert_allclose(transformers_cached(job(tmp_path, tiny_model))(), expected, rtol=0, atol=1e-4)


def test_a_slow_tool_gets_blocks_of_neighbours_from_everywhere(tmp_path: Path) -> None:
    everything = job(tmp_path)._replace(rows=list(range(1000)))
    rows = part(everything, Contestant(transformers_cached, max_rows=80)).rows
    assert len(rows) == 80
    assert rows[0] == 0
    assert rows[-1] == 999
    assert (np.diff(rows) > 1).sum() == N_BLOCKS - 1
    assert part(everything, Contestant(transformers_cached)) == everything


def test_a_real_model_that_is_absent_is_named_before_anything_is_built(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(workloads, "SHARED_MODELS", tmp_path)
    with pytest.raises(SystemExit, match=r"Gemma-3-270M: .*gemma-3-270m is absent; EVALUATOR_SHARED_MODELS names"):
        workloads.prepare(["one dataset"], "Gemma-3-270M", tmp_path, [None])


def test_other_outputs_end_the_race(tmp_path: Path) -> None:
    whole = job(tmp_path)
    some = whole._replace(rows=[0, 3])
    scores = {"evaluator": np.arange(7.0), "plain vLLM": np.array([0.0, 1.0, 5.0, 6.0])}
    require_equal(whole, {"plain vLLM": some}, scores, "float32")
    scores["plain vLLM"][3] += 1
    with pytest.raises(SystemExit, match="plain vLLM differs from evaluator at row 3"):
        require_equal(whole, {"plain vLLM": some}, scores, "float32")


def test_a_tool_that_sees_last_tokens_is_compared_where_labels_have_one(tmp_path: Path) -> None:
    whole = job(tmp_path)
    ours = np.log([0.1, 0.3, 1.0, 1.0, 1.0, 0.2, 0.2])
    theirs = np.array(
        [0.25, 0.75, 9.0, 9.0, np.nan, 0.5, 0.5]
    )  # normalised; labels of several tokens are not looked at
    require_equal(whole, {"StaICC toolkit": whole}, {"evaluator": ours, "StaICC toolkit": theirs}, "float32")
    assert requests(whole).height == len(CONTEXTS)
