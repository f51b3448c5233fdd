"""The server engine against servers that fail: everything is answered once, or the run ends with one sentence."""

import gzip
import math
import random
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import cache
from http.server import BaseHTTPRequestHandler

import pytest

from evaluator.config import ModelConfig, RunConfig, ServerConfig
from evaluator.engine import load_engine, server_client
from evaluator.engine.base import ContinuationRequest, Engine
from evaluator.errors import ConfigError, ModelError, PromptTooLongError
from evaluator.models.fake_source import fake_model_source
from evaluator.progress import finish
from evaluator.run import pipeline
from evaluator.run.folders import read_run
from tests.command_line import command
from tests.engine.label_server import LabelServer, completion, log_prob, send

pytestmark = pytest.mark.usefixtures("short_waits")

Fault = Callable[[BaseHTTPRequestHandler, int], bool]


@pytest.fixture
def serve() -> Iterator[Callable[..., LabelServer]]:
    with ExitStack() as stack:

        def serve(fault: Fault | None = None) -> LabelServer:
            server = LabelServer(fault)
            stack.callback(server.stop)
            return server

        yield serve


def engine_of(*servers: LabelServer | str, concurrency: int = 2) -> Engine:
    urls = tuple(server if isinstance(server, str) else server.url for server in servers)
    config = ModelConfig(model="x", engine="server", server=ServerConfig(urls=urls, concurrency=concurrency))
    return load_engine(fake_model_source(), config)


def some_requests(n: int = 100) -> list[ContinuationRequest]:
    """Labels of one token, of a few, and of so many that the whole prompt is sent."""
    rng = random.Random(0)
    labels = {1: [[5], [6]], 2: [[5, 6], [7]], 3: [rng.choices(range(100), k=20), [9, 10]]}
    return [
        ContinuationRequest(rng.choices(range(100), k=rng.randrange(1, 40)), labels[rng.randint(1, 3)])
        for _ in range(n)
    ]


def assert_all_answered_once(engine: Engine) -> None:
    requests = some_requests()
    answers = list(engine.log_likelihoods(requests))
    assert sorted(answer.index for answer in answers) == list(range(len(requests)))
    for answer in answers:
        context, continuations = requests[answer.index]
        for label, got in zip(continuations, answer.token_log_probs, strict=True):
            assert got == [log_prob([*context, *label[:n]], token) for n, token in enumerate(label)]


def on_calls(numbers: set[int], then: Callable[[BaseHTTPRequestHandler], object]) -> Fault:
    def fault(handler: BaseHTTPRequestHandler, number: int) -> bool:
        if number in numbers:
            then(handler)
        return number in numbers

    return fault


def status(code: int) -> Callable[[BaseHTTPRequestHandler], object]:
    return lambda handler: send(handler, {"error": "no"}, code)


def drop(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True


def redirect(handler: BaseHTTPRequestHandler, to: str) -> None:
    handler.send_response(307)
    handler.send_header("Location", to)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


GOOD = {"model": "small", "choices": [{"index": 0, "logprobs": {"top_logprobs": [{}]}}]}
FAULTS = {
    "too many requests": status(429),
    "an internal error": status(500),
    "a bad gateway": status(502),
    "no service": status(503),
    "a closed connection": drop,
    "a body that ends too early": lambda handler: send(handler, GOOD, keep=20),
    "JSON that ends too early": lambda handler: send_bytes(handler, b'{"model": "small", "choi'),
    "a text that is no UTF-8": lambda handler: send_bytes(handler, b'{"model": "sm\xedll", "choices": []}'),
    "lists nested without end": lambda handler: send_bytes(handler, b'{"model": ' + b"[" * 20_000),
    "another form": lambda handler: send(handler, {"model": "small", "choices": "none"}),
    "no choices": lambda handler: send(handler, {"model": "small", "choices": []}),
    "too many choices": lambda handler: send(handler, {"model": "small", "choices": [{"index": n} for n in range(99)]}),
    "no log-probabilities": lambda handler: send(handler, GOOD),
}


def send_bytes(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_requests_are_answered_once_although_some_answers_fail(serve, fault):
    server = serve(on_calls({1, 4, 9}, fault))
    engine = engine_of(server)
    assert_all_answered_once(engine)
    # What was tried again counts once: as many tokens as the prompts that were answered.
    assert engine.counts.prompt_tokens == sum(map(len, server.answered))


def test_answers_in_another_order_belong_to_the_prompts_of_their_numbers(serve):
    server = serve()
    server.answer = lambda body: (answer := completion(body)) | {"choices": answer["choices"][::-1]}
    assert_all_answered_once(engine_of(server))


def test_two_answers_with_one_number_are_refused_with_their_numbers(serve):
    server = serve()
    server.answer = lambda body: completion(body) | {"choices": [{"index": 0}] * len(body["prompt"])}
    with pytest.raises(ModelError, match=r"2 answers to 2 prompts, with the numbers \[0, 0\]"):
        list(engine_of(server).log_likelihoods([ContinuationRequest([n], [[5], [6]]) for n in (1, 2)]))


def test_a_label_without_its_number_is_sent_again(serve):
    server = serve()

    def without_one(body):
        answer = completion(body)
        if server.n_completions == 3 and "logprob_token_ids" in body:
            answer["choices"][-1]["logprobs"]["top_logprobs"][0].popitem()
        return answer

    server.answer = without_one
    assert_all_answered_once(engine_of(server, concurrency=1))
    assert server.n_completions > len(server.answered) / 16


def test_a_log_probability_above_0_is_asked_for_again(serve):
    server = serve()

    def too_likely(body):
        answer = completion(body)
        if server.n_completions == 3 and "logprob_token_ids" in body:
            row = answer["choices"][-1]["logprobs"]["top_logprobs"][0]
            row |= dict.fromkeys(row, 0.5)
        return answer

    server.answer = too_likely
    assert_all_answered_once(engine_of(server, concurrency=1))
    assert server.n_completions > len(server.answered) / 16


@pytest.mark.parametrize("logit", [0.5, 1000.0])
def test_a_number_that_is_no_log_probability_ends_the_run_with_a_sentence(serve, monkeypatch, logit):
    """Of next tokens and of a whole prompt, and also where e to it is more than a float holds."""
    monkeypatch.setattr(server_client, "FIRST_WAIT_S", 0.001)
    for labels in ([[5], [6]], [[*range(50)], [60]]):
        server = serve()
        server.answer = lambda body: completion(body, lambda _prefix, _token: logit)
        if len(labels[0]) > 1:
            server.answer = lambda body: completion(body, lambda prefix, token: logit if prefix[3:] else -token - 1.0)
        with pytest.raises(ModelError, match=r"which is more than 1.*\(5 times\)"):
            list(engine_of(server).log_likelihoods([ContinuationRequest([1, 2], labels)]))


def first_tokens(change):
    """Change the log-probabilities of the next tokens of a prompt."""

    def answer(body):
        answer = completion(body)
        for choice in answer["choices"]:
            if "logprobs" in choice:
                row = choice["logprobs"]["top_logprobs"][0]
                row |= {token: change(number) for token, number in row.items()}
        return answer

    return answer


@pytest.mark.parametrize("n_labels", [2, 3, 5, 128])
@pytest.mark.parametrize("logit", [0.0, 0.005, -0.25, -0.6])
def test_next_tokens_that_are_together_likelier_than_1_are_refused(serve, monkeypatch, n_labels, logit):
    monkeypatch.setattr(server_client, "FIRST_WAIT_S", 0.001)
    server = serve()
    server.answer = first_tokens(lambda _number: logit)
    request = ContinuationRequest([1, 2], [[token] for token in range(n_labels)])
    with pytest.raises(ModelError, match=r"with a sum of [0-9.]+, which is more than 1.*--logprobs-mode raw_logprobs"):
        list(engine_of(server).log_likelihoods([request]))


def test_next_tokens_over_several_questions_are_added(serve):
    server = serve()
    server.answer = first_tokens(lambda _number: -math.log(150))  # 128 of them are less likely than 1, 200 are not
    request = ContinuationRequest([1, 2], [[token] for token in range(200)])
    with pytest.raises(ModelError, match=r"sum of 1\.333, which is more than 1"):
        list(engine_of(server).log_likelihoods([request]))


@pytest.mark.parametrize("rounding", [0.0, 0.004])
def test_probabilities_that_sum_to_1_are_taken(serve, rounding):
    server = serve()
    server.answer = first_tokens(lambda _number: math.log(1 / 4) + rounding)
    (scores,) = engine_of(server).log_likelihoods([ContinuationRequest([1], [[2], [3], [4], [5]])])
    assert scores.token_log_probs == [[math.log(1 / 4) + rounding]] * 4


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_server_that_counts_other_tokens_than_were_sent_is_refused(serve, monkeypatch, difference):
    monkeypatch.setattr(server_client, "FIRST_WAIT_S", 0.001)
    server = serve()

    def counted(body):
        n_sent = sum(map(len, body["prompt"]))
        return completion(body) | {"usage": {"prompt_tokens": n_sent + difference, "total_tokens": 0}}

    server.answer = counted
    with pytest.raises(ModelError, match=rf"its usage counts {37 + difference} tokens instead of 37"):
        list(engine_of(server).log_likelihoods([ContinuationRequest([1] * 37, [[2], [3]])]))


def drip(handler: BaseHTTPRequestHandler, line: bytes) -> None:
    """Send a line again and again, slowly, until nobody reads any more."""
    with suppress(OSError):
        while True:
            handler.wfile.write(line)
            time.sleep(0.05)


def dripping_head(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    drip(handler, b"X")


def dripping_body(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    drip(handler, b" ")


@pytest.mark.parametrize("fault", [dripping_head, dripping_body])
def test_an_answer_that_drips_is_asked_for_again(serve, monkeypatch, fault):
    monkeypatch.setattr(server_client, "READ_S", 1.0)
    assert_all_answered_once(engine_of(serve(on_calls({2}, fault))))


def endless(handler: BaseHTTPRequestHandler) -> None:
    with suppress(OSError):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            handler.wfile.write(b"10000\r\n" + b" " * 2**16 + b"\r\n")


@cache
def many_zeros() -> bytes:
    return gzip.compress(bytes(2**28))


def compressed(handler: BaseHTTPRequestHandler) -> None:
    body = many_zeros()
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


@pytest.mark.parametrize("fault", [endless, compressed])
def test_an_answer_without_end_is_asked_for_again_and_fills_no_memory(serve, monkeypatch, fault):
    monkeypatch.setattr(server_client, "MAX_ANSWER_BYTES", 2**20)
    assert_all_answered_once(engine_of(serve(on_calls({2}, fault))))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert_all_answered_once(engine_of(serve(on_calls({1, 2, 3}, fault))))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**16  # KiB


def test_a_machine_without_another_thread_is_one_sentence(serve, tmp_path, monkeypatch):
    server, start = serve(), threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if "process_request" not in thread.name:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    words = ["run", "staicc-normal", "--model", "embedded", "--datasets", "sst5", "--queries", 4, "--engine", "server"]
    message = command(*words, "--server-url", server.url, "--out", tmp_path, exits=2)
    assert "This machine lets no further thread start. Raise its limit" in message


def test_a_server_that_gives_all_prompts_the_same_numbers_is_a_warning(serve, tmp_path):
    server = serve()
    words = ["run", "staicc-normal", "--model", "embedded", "--datasets", "sst5", "--queries", 4, "--engine", "server"]
    words += ["--server-url", server.url]
    warning = "All prompts have the same log-likelihoods of their labels"
    assert warning not in command(*words, "--out", tmp_path / "honest")
    server.answer = first_tokens(lambda _number: -9998.0)
    assert warning in command(*words, "--out", tmp_path / "lies")
    assert warning in (tmp_path / "lies" / "evaluator.log").read_text()


def test_a_prompt_with_a_row_too_few_is_sent_again(serve):
    server, cut = serve(), []

    def cut_once(body):
        answer = completion(body)
        if body.get("prompt_logprobs") == 0 and not cut:  # those of the prompt's own tokens, without the likeliest
            cut.append(answer["choices"][0]["prompt_logprobs"].pop())
        return answer

    server.answer = cut_once
    assert_all_answered_once(engine_of(server))
    assert cut


def test_a_prompt_with_minus_infinity_is_sent_again_and_never_a_score(serve):
    server = serve(on_calls({2}, lambda handler: send(handler, {"model": "small", "choices": minus_infinity()})))
    assert_all_answered_once(engine_of(server))


def minus_infinity():
    top = {f"token_id:{token}": -9999.0 for token in range(100)}
    return [{"index": n, "logprobs": {"top_logprobs": [top]}} for n in range(16)]


def test_a_server_that_is_slow_once_gets_the_request_again(serve, monkeypatch):
    monkeypatch.setattr("evaluator.engine.server_client.READ_S", 0.5)
    released = threading.Event()
    try:
        assert_all_answered_once(engine_of(serve(on_calls({3}, lambda _handler: released.wait()))))
    finally:
        released.set()


def test_a_server_that_stops_and_starts_again_answers_the_rest(serve):
    stopped = threading.Event()

    def stop_at_the_fifth(handler: BaseHTTPRequestHandler, number: int) -> bool:
        if number == 5:
            drop(handler)
            stopped.set()
        return number == 5

    server = serve(stop_at_the_fifth)

    def restart() -> None:
        stopped.wait()
        server.stop()
        time.sleep(0.5)
        server.start_again()

    restarting = threading.Thread(target=restart)
    restarting.start()
    assert_all_answered_once(engine_of(server))
    restarting.join()


def test_another_server_takes_over_from_one_that_is_gone(serve):
    alive = serve()
    gone = serve(lambda handler, number: number > 2 and not drop(handler))
    assert_all_answered_once(engine_of(alive, gone))
    assert len(alive.answered) > len(gone.answered) > 0


def test_a_server_that_never_answers_again_ends_the_run_with_a_sentence(serve, monkeypatch):
    monkeypatch.setattr("evaluator.engine.server_client.PATIENCE_S", 0.3)
    server = serve(lambda handler, number: number > 3 and not drop(handler))
    with pytest.raises(ModelError, match=r"127\.0\.0\.1.*\(for 0 s\)\. What was scored is kept"):
        list(engine_of(server).log_likelihoods(some_requests()))


def test_a_server_that_fails_at_everything_ends_the_run_with_its_words_once_patience_ends(serve, monkeypatch):
    monkeypatch.setattr("evaluator.engine.server_client.PATIENCE_S", 0.3)
    server = serve(lambda handler, number: number > 3 and not send(handler, {"error": "out of memory"}, 500))
    with pytest.raises(ModelError, match=r"500 .*out of memory.*\(for 0 s\)"):
        list(engine_of(server, concurrency=1).log_likelihoods(some_requests()))


def test_a_server_too_old_for_chosen_tokens_ends_the_run_with_the_version_it_needs(serve):
    server = serve()

    def by_likelihood_alone(body):
        answer = completion(body)
        for choice in answer["choices"] if "logprob_token_ids" in body else []:
            choice["logprobs"]["top_logprobs"] = [{"token_id:99": -0.5}]
        return answer

    server.answer = by_likelihood_alone
    said = r"no log-probability of token \d+; vLLM servers support `logprob_token_ids` from version 0\.26 on"
    with pytest.raises(
        ModelError, match=rf"127\.0\.0\.1:\d+ did not return the requested log-probabilities: {said} \(5 times\)"
    ):
        list(engine_of(server).log_likelihoods(some_requests()))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (None, "0 rows of log-probabilities for a prompt of 25 tokens"),
        ([None, *({"1": {"logprob": -1.0}} for _ in range(24))], "no log-probability of token 7 of a prompt"),
        ([None] * 25, "no log-probability of token 7 of a prompt"),
    ],
)
def test_what_a_scored_prompt_lacks_is_said_in_words(serve, rows, said):
    server = serve()

    def spoilt(body):
        answer = completion(body)
        for choice in answer["choices"] if "prompt_logprobs" in body else []:
            choice["prompt_logprobs"] = rows
        return answer

    server.answer = spoilt
    with pytest.raises(ModelError, match=rf"did not return the requested log-probabilities: {said} \(5 times\)"):
        list(engine_of(server).log_likelihoods([ContinuationRequest([1] * 5, [[7] * 20])]))


def test_a_busy_server_is_given_the_time_it_asks_for(serve):
    def busy(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(429)
        handler.send_header("Retry-After", "1")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    engine = engine_of(serve(on_calls({2}, busy)), concurrency=1)
    start = time.monotonic()
    assert_all_answered_once(engine)
    assert time.monotonic() - start >= 1  # without the header the first repetition comes at once


@pytest.mark.parametrize(
    ("header", "hint"),
    [
        *(("Retry-After", hint) for hint in ("1.5", "soon", "Wed, 21 Oct 99999 07:28:00 GMT")),
        *(("retry-after-ms", hint) for hint in ("nan", "-inf", "soon")),
    ],
)
def test_a_time_to_wait_that_is_none_is_no_hint(serve, header, hint):
    def busy(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(503)
        handler.send_header(header, hint)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    assert_all_answered_once(engine_of(serve(on_calls({2}, busy)), concurrency=1))


def test_a_request_that_the_server_refuses_is_not_tried_again(serve):
    server = serve(lambda handler, _number: not send(handler, {"error": "prompt too long"}, 400))
    with pytest.raises(ModelError, match=r"400: .*prompt too long"):
        list(engine_of(server, concurrency=1).log_likelihoods(some_requests()))
    assert server.n_completions == 1


def test_no_redirect_is_followed(serve):
    other = serve()
    server = serve(lambda handler, _number: not redirect(handler, other.url + "/v1/completions"))
    with pytest.raises(ModelError, match=r"redirects to 127\.0\.0\.1; no redirect is followed"):
        list(engine_of(server).log_likelihoods(some_requests()))
    assert other.n_completions == 0


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("http://[::1", "another path"),
        ("http://somewhere:99999999/", "somewhere"),
        ("https://me:word@somewhere/", "somewhere"),
    ],
)
def test_a_redirect_to_no_address_is_refused_in_a_sentence(serve, target, said):
    server = serve(lambda handler, _number: not redirect(handler, target))
    with pytest.raises(ModelError, match=f"redirects to {said}; no redirect is followed"):
        list(engine_of(server).log_likelihoods(some_requests()))


def test_an_answer_of_another_model_ends_the_run(serve):
    server = serve()
    server.answer = lambda body: completion(body) | {"model": "large"}
    with pytest.raises(ModelError, match="answered for the model large, not for small"):
        list(engine_of(server).log_likelihoods(some_requests()))


def test_a_call_that_is_abandoned_leaves_the_engine_usable(serve):
    engine = engine_of(serve())
    running = engine.log_likelihoods(some_requests())
    next(running)
    running.close()
    assert_all_answered_once(engine)


def test_an_address_where_nothing_listens_is_refused_at_once(serve):
    server = serve()
    server.stop()
    with pytest.raises(ModelError, match=r"127\.0\.0\.1:\d+ does not answer as a .*server does.*--server-url"):
        engine_of(server)
    server.start_again()


def test_a_name_that_is_not_served_is_refused_with_those_that_are(serve):
    server = ServerConfig(urls=(serve().url,), served_name="large")
    with pytest.raises(ModelError, match="serves small, not large"):
        load_engine(fake_model_source(), ModelConfig(model="x", engine="server", server=server))


def test_two_models_that_one_served_model_would_score_are_refused(serve, tiny_model, tmp_path):
    words = ["run", "staicc-normal", "--model", "embedded", "--model", tiny_model, "--datasets", "sst5"]
    words += ["--engine", "server", "--server-url", serve().url, "--out", tmp_path]
    said = command(*words, exits=2)
    assert f"would score both embedded and {tiny_model} by the model that they serve as small" in said
    assert not (tmp_path / "store").exists()


def test_a_prompt_longer_than_the_server_allows_is_refused(serve):
    request = ContinuationRequest([1] * 4096, [[1]])
    with pytest.raises(PromptTooLongError, match="4097 tokens is longer than the 4096"):
        list(engine_of(serve()).log_likelihoods([request]))


def test_of_two_servers_the_one_with_less_room_decides(serve):
    servers = serve(), serve()
    servers[1].about = servers[1].about | {"/v1/models": {"data": [{"id": "small", "max_model_len": 100}]}}
    with pytest.raises(PromptTooLongError, match="101 tokens is longer than the 100"):
        list(engine_of(*servers).log_likelihoods([ContinuationRequest([1] * 100, [[1]])]))


def test_a_prompt_of_all_tokens_that_the_server_allows_is_asked_token_by_token(serve):
    # Scored as a whole, it would be followed by a token that the server samples, which has no room.
    server, request = serve(), ContinuationRequest([1] * 3946, [[7] * 150])
    ((_, scores),) = [(one.index, one.token_log_probs) for one in engine_of(server).log_likelihoods([request])]
    assert scores == [[log_prob([1] * 3946 + [7] * n, 7) for n in range(150)]]
    assert max(map(len, server.answered)) == 4095


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://host", "http://me:secret@host", "http://host/?key=secret"])
def test_an_address_that_is_none_or_holds_a_secret_is_refused_without_showing_it(url):
    with pytest.raises(ConfigError, match="--server-url") as refusal:
        ServerConfig(urls=(url,))
    assert "secret" not in str(refusal.value)


def test_the_key_reaches_the_server_and_no_file(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "key-0123456789")
    server = serve()
    words = ("run", "staicc-normal", "--model", "embedded", "--datasets", "sst5", "--queries", 4, "--engine", "server")
    shown = command(*words, "--server-url", server.url, "--out", tmp_path)
    assert server.keys == {"Bearer key-0123456789"}
    assert "key-0123456789" not in shown
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"key-0123456789" in path.read_bytes()]


def test_white_space_around_the_key_is_not_sent(serve, monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", " key-0123456789\r\n")
    server = serve()
    assert_all_answered_once(engine_of(server))
    assert server.keys == {"Bearer key-0123456789"}


@pytest.mark.parametrize("key", ["key-0123\n456789", "key-0123\t456789", "κλειδί-0123456789", "schlüssel-0123456789"])
def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(serve, monkeypatch, key):
    monkeypatch.setenv("VLLM_API_KEY", key)
    with pytest.raises(ModelError, match=r"VLLM_API_KEY holds .*Set it again") as refusal:
        engine_of(serve())
    assert "456789" not in str(refusal.value)


def test_a_run_says_nothing_of_the_cache_of_a_server_that_does_not_tell(serve, tmp_path):
    config = RunConfig(suites=("staicc-normal",), datasets=("sst5",), n_queries=4)
    model = ModelConfig(model="embedded", engine="server", server=ServerConfig(urls=(serve().url,)))
    shown = []
    finish(pipeline.run(config, model, tmp_path), shown.append)
    record = read_run(tmp_path).scores
    assert record.prompt_tokens > 0
    assert (record.cached_tokens, record.computed_tokens, record.throughput.flop_per_s) == (None, None, 0.0)
    scoring = [one for one in shown if one.stage == "Scoring"]
    assert scoring
    assert {(one.computed_tokens_per_s, one.cached_share, one.flop_per_s) for one in scoring} == {(None, None, None)}


def test_a_receipt_offers_only_engines_that_load_the_model_here(tmp_path):
    shown = command("receipt", tmp_path, "--engine", "server", exits=2)
    assert "'server' is not one of 'vllm', 'transformers', 'fake'" in shown


def test_two_servers_get_neighbouring_prompts(serve):
    first, second = serve(), serve()
    requests = [ContinuationRequest([n, n + 1], [[5]]) for n in range(320)]
    list(engine_of(first, second, concurrency=1).log_likelihoods(requests))
    assert sorted(first.answered + second.answered) == [request.context for request in requests]
    # Each began with its half; which took more at the end depends on their speed.
    assert (first.answered[0], second.answered[0]) == ([0, 1], [160, 161])


def test_each_data_parallel_replica_of_a_server_gets_neighbouring_prompts(serve):
    ranks: dict[int, str | None] = {}
    prompts: dict[str | None, list[list[int]]] = {"0": [], "1": [], None: []}
    server = serve(lambda handler, _: ranks.update({threading.get_ident(): handler.headers["X-data-parallel-rank"]}))
    server.answer = lambda body: prompts[ranks[threading.get_ident()]].extend(body["prompt"]) or completion(body)
    rows = b"".join(b'vllm:num_requests_running{engine="%d",model_name="small"} 0.0\n' % rank for rank in range(2))
    server.about = server.about | {"/metrics": b"# TYPE vllm:num_requests_running gauge\n" + rows}
    requests = [ContinuationRequest([family, place], [[5]]) for family in (1, 2) for place in range(96)]

    assert len(list(engine_of(server, concurrency=1).log_likelihoods(requests))) == len(requests)

    assert not prompts[None]
    assert sorted(prompts["0"] + prompts["1"]) == [request.context for request in requests]
    # Each began with its half; which took more at the end depends on their speed.
    assert (prompts["0"][0], prompts["1"][0]) == ([1, 0], [2, 0])


def test_few_prompts_are_shared_by_servers_with_room_for_all(serve):
    first, second = serve(), serve()
    requests = [ContinuationRequest([n, n + 1], [[5]]) for n in range(64)]  # two HTTP requests for each server
    list(engine_of(first, second, concurrency=16).log_likelihoods(requests))
    assert sorted(first.answered) == [[n, n + 1] for n in range(32)]
