"""The server engine against a real vLLM server: the engine contract, and a whole run against the reference's."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import urllib3

import evaluator
from evaluator.config import ModelConfig, ServerConfig
from evaluator.engine import ENGINES, load_engine
from evaluator.engine.base import ContinuationRequest, ContinuationScores, Engine
from evaluator.errors import ModelError
from evaluator.models.fake_source import WordTokenizer
from evaluator.models.source import ModelSource
from tests.command_line import command
from tests.engine.test_engine_contract import (  # noqa: F401  (collected here once more, with the engine below)
    oracle,
    test_a_context_of_one_token_is_enough,
    test_a_label_that_begins_another_is_scored_by_itself_too,
    test_labels_of_real_prompts_of_every_dataset_agree_with_log_softmax,
    test_more_labels_than_fit_one_question_are_all_scored,
    test_random_requests_of_all_lengths_agree_with_log_softmax,
)
from tests.engine.vllm_server import VllmServer, running_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    with running_server(tiny_model, tmp_path_factory.mktemp("server") / "log", fork=True) as server:
        yield server


@pytest.fixture(scope="module")
def url(server: VllmServer) -> str:
    return server.url


def config(url: str, model: Path, concurrency: int = 16) -> ModelConfig:
    server = ServerConfig(urls=(url,), concurrency=concurrency)
    return ModelConfig(model=str(model), engine="server", dtype="float32", server=server)


@pytest.fixture(scope="module")
def model_engine(url: str, tiny_model: Path, tiny_source: ModelSource) -> Engine:
    return load_engine(tiny_source, config(url, tiny_model))


def test_facts_name_the_served_model_and_its_version_of_vllm(model_engine: Engine, url: str) -> None:
    assert model_engine.facts.device == f"served at {url}"
    assert model_engine.facts.versions["vllm"][0].isdigit()
    assert not ENGINES["server"].has_hidden_states


def test_a_model_with_another_tokenizer_than_the_served_one_is_refused(
    url: str, tiny_model: Path, tiny_source: ModelSource
) -> None:
    other = replace(tiny_source)
    vars(other)["tokenizer"] = WordTokenizer()
    with pytest.raises(ModelError, match="serves served with another tokenizer than that of"):
        load_engine(other, config(url, tiny_model))


def test_a_run_over_http_agrees_with_the_reference_engine(url: str, tiny_model: Path, tmp_path: Path) -> None:
    words = ("run", "staicc-normal", "--datasets", "sst5", "--queries", 4, "--model", tiny_model)
    command(*words, "--dtype", "float32", "--engine", "server", "--server-url", url, "--out", tmp_path / "server")
    command(*words, "--engine", "transformers", "--out", tmp_path / "transformers")
    runs = [tmp_path / name for name in ("server", "transformers")]
    key = ["prompt_id", "dataset", "position"]
    scores = [evaluator.read_scores(run).collect().sort(key) for run in runs]
    assert scores[0].select(key).equals(scores[1].select(key))
    numbers = [np.array(table["label_log_likelihoods"].explode()) for table in scores]
    np.testing.assert_allclose(*numbers, rtol=0, atol=1e-5)
    predictions = [pl.read_parquet(run / "tables" / "predictions.parquet") for run in runs]
    assert predictions[0]["pred"].equals(predictions[1]["pred"])


def test_a_server_that_is_killed_and_started_again_answers_the_rest(
    server: VllmServer, tiny_model: Path, tiny_source: ModelSource
) -> None:
    requests = [ContinuationRequest([2 + n % 7, 3 + n], [[5], [6, 7]]) for n in range(200)]
    one_at_a_time = load_engine(tiny_source, config(server.url, tiny_model, concurrency=1))
    undisturbed = _by_request(one_at_a_time.log_likelihoods(requests))
    answers = one_at_a_time.log_likelihoods(requests)
    first = next(answers)
    server.kill()  # after one HTTP request of many
    server.start()
    disturbed = _by_request([first, *answers])
    assert disturbed.keys() == undisturbed.keys()
    for index, log_probs in undisturbed.items():
        np.testing.assert_allclose(disturbed[index], log_probs, rtol=0, atol=1e-5)


@pytest.mark.exhaustive
def test_a_server_with_two_data_parallel_replicas_computes_each_beginning_on_one_of_them(
    tiny_model: Path, tiny_source: ModelSource, tmp_path: Path
) -> None:
    requests = [
        ContinuationRequest([family] * 64 + [place], [[5], [6]]) for family in range(7, 15) for place in range(20)
    ]
    with running_server(tiny_model, tmp_path / "log", "--data-parallel-size", "2") as server:
        engine = load_engine(tiny_source, config(server.url, tiny_model))
        answers = list(engine.log_likelihoods(requests))
        metrics = urllib3.request("GET", f"{server.url}/metrics").data.decode()
    cached = [float(n) for n in re.findall(r'^vllm:prefix_cache_hits_total\{.*engine="\d".*\} (.*)$', metrics, re.M)]

    assert len(answers) == len(requests)
    assert len(cached) == 2
    assert sum(cached) >= 0.8 * 64 * (len(requests) - 8)
    assert min(cached) > 0.3 * sum(cached)


def _by_request(answers: Iterable[ContinuationScores]) -> dict[int, list[float]]:
    """Return all log-probabilities of each request."""
    scores = [(answer.index, [*chain.from_iterable(answer.token_log_probs)]) for answer in answers]
    assert len(scores) == len(dict(scores)), "each is answered once"
    return dict(scores)
