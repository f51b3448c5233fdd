"""The server engine against answers in SGLang's documented form: from a real model, and from servers that fail."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from evaluator.config import ModelConfig, ServerConfig
from evaluator.engine import engine_identity, load_engine
from evaluator.engine.base import ContinuationRequest, Engine
from evaluator.errors import ModelError
from evaluator.models.fake_source import fake_model_source
from evaluator.models.source import ModelSource
from tests.engine.label_server import LabelServer
from tests.engine.sglang_server import SPOILED, SglangServer
from tests.engine.test_engine_contract import (  # noqa: F401  (collected here once more, with the engine below)
    oracle,
    test_a_context_of_one_token_is_enough,
    test_a_label_that_begins_another_is_scored_by_itself_too,
    test_labels_of_one_to_twenty_tokens_with_and_without_a_common_stem,
    test_more_labels_than_fit_one_question_are_all_scored,
    test_random_requests_of_all_lengths_agree_with_log_softmax,
)
from tests.engine.test_server_faults import FAULTS, assert_all_answered_once, engine_of, on_calls, some_requests, status

pytestmark = pytest.mark.usefixtures("short_waits")


@pytest.fixture(scope="module")
def model_engine(oracle: Any, tiny_model: Path, tiny_source: ModelSource) -> Iterator[Engine]:  # noqa: F811
    """The engine on a server that answers with a real model's log-probabilities."""

    def token_log_prob(prefix: Sequence[int], token: int) -> float:
        return float(oracle(tuple(prefix), (token,))[0])

    server = SglangServer(token_log_prob=token_log_prob)
    config = ModelConfig(model=str(tiny_model), engine="server", server=ServerConfig(urls=(server.url,)))
    yield load_engine(tiny_source, config)
    server.stop()


@pytest.fixture
def serve() -> Iterator[Callable[..., SglangServer]]:
    with ExitStack() as stack:

        def serve(fault: Any = None) -> SglangServer:
            server = SglangServer(fault)
            stack.callback(server.stop)
            return server

        yield serve


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_requests_are_answered_once_although_some_answers_fail(serve, fault):
    server = serve(on_calls({1, 4, 9}, fault))
    engine = engine_of(server)
    assert_all_answered_once(engine)
    assert engine.counts.prompt_tokens == sum(map(len, server.answered))


@pytest.mark.parametrize("spoil", SPOILED)
def test_an_answer_that_is_not_the_answer_is_asked_for_again(serve, spoil):
    server = serve()
    right, spoiled = server.answer, []

    def once_wrong(body):
        if spoiled or "token_ids_logprob" not in body:
            return right(body)
        spoiled.append(body)
        return spoil(right(body))

    server.answer = once_wrong
    assert_all_answered_once(engine_of(server, concurrency=1))
    assert spoiled


def test_what_a_server_took_from_its_cache_is_counted(serve):
    engine = engine_of(serve())
    list(engine.log_likelihoods([ContinuationRequest([1] * 10, [[5], [6]])]))
    assert (engine.counts.prompt_tokens, engine.counts.cached_tokens) == (10, 5)
    assert engine.facts.counts_cached_tokens


def test_a_long_label_is_scored_from_its_first_token_on(serve):
    server = serve()
    asked = []
    right = server.answer
    server.answer = lambda body: (asked.append(body), right(body))[1]
    list(engine_of(server).log_likelihoods([ContinuationRequest([*range(30)], [[1, 2, 3, 4, 5], [9]])]))
    (whole,) = [body for body in asked if "token_ids_logprob" not in body]
    assert whole["logprob_start_len"] == [29]
    assert [len(tokens) for tokens in whole["input_ids"]] == [35]


def test_log_probabilities_without_their_tokens_end_the_run_with_a_sentence(serve):
    server = serve()
    right = server.answer

    def without_tokens(body):
        answers = right(body)
        for answer in answers if "token_ids_logprob" in body else []:
            answer["meta_info"]["output_token_ids_logprobs"] = [[[-1.0]]]
        return answers

    server.answer = without_tokens
    with pytest.raises(
        ModelError,
        match=r"did not return the requested log-probabilities: log-probabilities of other tokens \(5 times\)",
    ):
        list(engine_of(server).log_likelihoods([ContinuationRequest([1] * 10, [[5]])]))


def test_facts_and_identity_name_the_program(serve):
    server = serve()
    assert engine_of(server).facts.versions == {"sglang": "0.5.9"}
    config = ModelConfig(model="x", engine="server", server=ServerConfig(urls=(server.url,)))
    assert engine_identity(fake_model_source(), config).versions == {"sglang": "0.5.9"}


def test_servers_of_two_kinds_are_refused(serve):
    other = LabelServer()
    try:
        with pytest.raises(ModelError, match=r"with vLLM 1\.2\.3, but .* with SGLang 0\.5\.9"):
            engine_of(serve(), other)
    finally:
        other.stop()


def test_the_kind_of_server_can_be_named(serve):
    server = serve()
    server.about = server.about | {"/v1/models": {"data": [{"id": "small", "owned_by": "us"}]}}
    urls = ServerConfig(urls=(server.url,), kind="sglang")
    assert_all_answered_once(load_engine(fake_model_source(), ModelConfig(model="x", engine="server", server=urls)))


def test_a_request_that_the_server_refuses_ends_the_run(serve):
    server = serve(lambda handler, _number: status(400)(handler) is None)
    with pytest.raises(ModelError, match=r"/generate answered 400"):
        list(engine_of(server, concurrency=1).log_likelihoods(some_requests()))
