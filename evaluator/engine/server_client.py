"""Make HTTP requests to vLLM and SGLang servers, check every answer, and distribute work over several servers.

Prompts with a common prefix mostly go to the same server, and failed requests are repeated.
"""

import heapq
import math
import os
import random
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from queue import Empty, Queue
from threading import Thread
from typing import NamedTuple, TypeVar

import msgspec
import urllib3

from evaluator.config import ServerKind
from evaluator.engine.server_protocols import PROTOCOLS, Answers, Body, ScoringPrompt, ServerProtocol, WrongModelError
from evaluator.errors import ModelError
from evaluator.redaction import HIDDEN, MIN_LENGTH

API_KEY_VARIABLE = "VLLM_API_KEY"
"""The environment variable with the API key of servers. No option takes the key, because commands are recorded."""

CONNECT_S, READ_S, MAX_RETRY_AFTER_S = 10.0, 600.0, 60.0
"""Maximum seconds to connect, to receive a whole answer, and to wait because a server asks for a later repetition."""

MAX_ANSWER_BYTES, MAX_BYTES_EACH_SENT = 2**26, 100
"""Maximum bytes of an answer, and additional bytes for each byte sent, because vLLM repeats the tokens as text."""
_REPLICA_METRIC = re.compile(rb'^vllm:num_requests_running\{engine="(\d+)"', re.MULTILINE)
_UNAVAILABLE = (408, 429, 502, 503, 504, 529)
# vLLM replaces minus infinity by this number, because JSON has no infinity.
_MINUS_INFINITY = -9999.0
# Tolerance in nats: in half precision, rounding can raise the log-probability of one or several tokens above 0.
_ROUNDED_UP = 0.01
_LARGEST_EXPONENT = 700.0  # exponent of e for which hundreds of exponentials can be added without overflow

T = TypeVar("T")


class UnavailableError(Exception):
    """A server cannot answer now: it is not reached, too slow or busy, or has closed the connection."""

    def __init__(self, reason: str, retry_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class InternalError(UnavailableError):
    """A server answered with an internal error (status 5xx), caused by the server's state or by the questions."""


class BadAnswerError(UnavailableError):
    """A server returned something that is not a valid answer."""


class RefusedError(ModelError):
    """A server refused a request; holds the HTTP status and the text of the answer."""

    def __init__(self, message: str, status: int, text: str) -> None:
        super().__init__(message)
        self.status, self.text = status, text


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None
    owned_by: str | None = None  # the server's program: "vllm" or "sglang"


class _Models(msgspec.Struct):
    data: list[_Model]


class _Version(msgspec.Struct):
    version: str


class _Tokens(msgspec.Struct):
    tokens: list[int]


class ServedModel(NamedTuple):
    """The model that a server scores with."""

    name: str
    max_tokens: int | None  # maximum length of a sequence; None: not reported
    kind: ServerKind
    version: str  # version of the server's program

    @property
    def protocol(self) -> ServerProtocol:
        return PROTOCOLS[self.kind]


class ServerClient:
    """A client of one server. Methods may be called from several threads; redirects are not followed."""

    def __init__(
        self,
        url: str,
        *,
        connections: int = 1,
        key_variables: Sequence[str] = (API_KEY_VARIABLE,),
        key_header: str = "Authorization",
        replica: int | None = None,
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._key_variables = key_variables
        key = _key(key_variables)
        authorization = {key_header: f"Bearer {key}" if key_header == "Authorization" else key} if key else {}
        self._headers = {"Content-Type": "application/json"} | authorization
        # JSON may write a character of the key as an escape, such as \u0073 or \/.
        written = (
            rb"(?:%s%s|(?i:\\u%04x))" % (rb"\\?" if c == "/" else b"", re.escape(c.encode()), ord(c)) for c in key
        )
        self._key = re.compile(b"".join(written)) if len(key) >= MIN_LENGTH else None
        if replica is not None:  # without this header, vLLM chooses replicas by load, whatever their caches hold
            self._headers["X-data-parallel-rank"] = str(replica)
        self._pool = urllib3.PoolManager(
            maxsize=connections, retries=False, timeout=urllib3.Timeout(connect=CONNECT_S, read=READ_S)
        )

    def served_model(self, name: str | None, model: str, kind: ServerKind | None = None) -> ServedModel:
        """Return the served model to use.

        Args:
            name: name of the served model; None: the only served model, or of several the model called `model`.
            model: name of the model that the user has chosen.
            kind: kind of the server; None: the kind that the server reports.

        Raises ModelError if the server cannot be reached or serves no such model.
        """
        try:
            models = {served.id: served for served in self._request("/v1/models", _Models).data}
        except UnavailableError as error:
            raise ModelError(
                f"{self.url} does not answer as a vLLM or SGLang server does: {error}. Start one with `vllm serve "
                "MODEL`, or correct --server-url."
            ) from error
        wanted = name or (next(iter(models)) if len(models) == 1 else model)
        if wanted not in models:
            raise ModelError(
                f"{self.url} serves {', '.join(models) or 'no model'}, not {wanted}. Choose one with --served-name."
            )
        found = models[wanted]
        kind = kind or ("sglang" if found.owned_by == "sglang" else "vllm")
        return ServedModel(wanted, found.max_model_len, kind, self._version(kind))

    def _version(self, kind: ServerKind) -> str:
        """Return the version of the server's program; "unknown" if, for example, a gateway does not pass it on."""
        for path in PROTOCOLS[kind].version_paths:
            with suppress(UnavailableError, ModelError):
                return self._request(path, _Version).version
        return "unknown"

    def tokens_of(self, model: str, text: str) -> list[int] | None:
        """Return the served model's tokens of a text, without special tokens; None if the server returns no tokens."""
        with suppress(UnavailableError, ModelError):
            asked = {"model": model, "prompt": text, "add_special_tokens": False}
            return self._request("/tokenize", _Tokens, asked).tokens
        return None

    def replicas(self) -> Sequence[int | None]:
        """Return the numbers of a vLLM server's data-parallel replicas, from its metrics; [None] unless several."""
        with suppress(UnavailableError, ModelError):
            n_replicas = len({*_REPLICA_METRIC.findall(self.exchange("/metrics"))})
            return range(n_replicas) if n_replicas > 1 else [None]
        return [None]

    def log_probs(self, model: ServedModel, questions: Sequence[ScoringPrompt]) -> Answers:
        """Send questions, all with the same `next_token_ids`, and return the checked answers.

        Raises:
            UnavailableError: the server may answer the same questions later.
            ModelError: the server will never answer them.
        """
        protocol = model.protocol
        answer = self._request(protocol.path, protocol.answer, protocol.body(model.name, questions))
        try:
            answers = protocol.read(model.name, questions, answer)
        except WrongModelError as error:
            raise ModelError(f"{self.url} answered for the model {error}, not for {model.name}.") from error
        except ValueError as error:
            raise BadAnswerError(f"{self.url} did not return the requested log-probabilities: {error}") from error
        rows = answers.rows
        if any(value <= _MINUS_INFINITY for row in rows for value in row):
            raise BadAnswerError(f"{self.url} gave a log-probability of minus infinity")
        for question, row in zip(questions, rows, strict=True):
            probabilities = [math.exp(min(value, _LARGEST_EXPONENT)) for value in row]
            if fault := sum_fault(math.fsum(probabilities) if question.next_token_ids else max(probabilities)):
                raise BadAnswerError(f"{self.url} {fault}")
        return answers

    def close(self) -> None:
        self._pool.clear()

    def _request(self, path: str, kind: type[T], body: Body | None = None) -> T:
        """Send a request (POST with a body, GET without) and decode the JSON of the answer as the type `kind`."""
        data = self.exchange(path, None if body is None else msgspec.json.encode(body))
        try:
            return msgspec.json.decode(data, type=kind)
        # Malformed JSON or other fields, bytes that are not UTF-8, lists nested too deeply.
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadAnswerError(f"{self.url} returned a body that is not the expected JSON: {error}") from error

    def exchange(self, path: str, body: bytes | None = None) -> bytes:
        """Send a request (POST with a JSON body, GET without) and return the bytes of the answer without the API key.

        Raises UnavailableError and ModelError as log_probs does, and RefusedError for any other status than 200.
        """
        try:
            response, data = _begun(partial(self._answer, path, body)).result(timeout=READ_S)
        except urllib3.exceptions.HTTPError as error:
            raise UnavailableError(f"{self.url}: {error}") from error
        except TimeoutError as error:
            raise UnavailableError(f"{self.url}: no whole answer within {READ_S:g} s") from error
        if self._key:  # a server may repeat the key in its answer
            data = self._key.sub(HIDDEN.encode(), data)
        if response.status in _UNAVAILABLE:
            message = f"{self.url} answered {response.status} {_shown(data)}"
            raise UnavailableError(message, _retry_after_s(response))
        if response.status >= 500:
            raise InternalError(f"{self.url} answered {response.status} {_shown(data)}")
        if 300 <= response.status < 400:
            target = re.match(r"\w+://(?:[^/?#@]*@)?([\w.-]+)", response.headers.get("Location", ""))
            where = target[1] if target else "another path"
            raise ModelError(f"{self.url}{path} redirects to {where}; no redirect is followed.")
        if response.status in (401, 403):
            variables = " or ".join(self._key_variables)
            raise ModelError(f"{self.url} refuses the request ({response.status}): set {variables} to its key.")
        if response.status != 200:
            message = f"{self.url}{path} answered {response.status}: {_shown(data)}"
            raise RefusedError(message, response.status, data.decode(errors="replace"))
        return data

    def _answer(self, path: str, body: bytes | None) -> tuple[urllib3.BaseHTTPResponse, bytes]:
        """Return a response and its body. Raises BadAnswerError if the body is too long."""
        method = "GET" if body is None else "POST"
        response = self._pool.request(
            method, self.url + path, body=body, headers=self._headers, redirect=False, preload_content=False
        )
        limit, data = MAX_ANSWER_BYTES + MAX_BYTES_EACH_SENT * len(body or b""), bytearray()
        # No compression was requested, so nothing is decompressed: a few compressed bytes could fill the memory.
        while piece := response.read(2**20, decode_content=False):
            data += piece
            if len(data) > limit:
                response.close()
                raise BadAnswerError(f"{self.url} returned more than {limit:,} bytes")
        return response, bytes(data)


def sum_fault(total: float) -> str | None:
    """Return an error phrase if probabilities of different next tokens sum to more than 1 and rounding; else None."""
    if total <= math.exp(_ROUNDED_UP):
        return None
    return (
        f"gave different next tokens probabilities with a sum of {total:.4g}, which is more than 1: it must return "
        "log-probabilities over the whole vocabulary (vLLM: --logprobs-mode raw_logprobs)"
    )


def _begun(call: Callable[[], T]) -> Future[T]:
    """Run a call in a new thread, and return the future of its result.

    The thread is a daemon, so that Ctrl-C does not wait for it.
    """
    result: Future[T] = Future()

    def work() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # handed over to the caller's thread, not swallowed
            result.set_exception(error)

    Thread(target=work, daemon=True).start()
    return result


def _key(variables: Sequence[str]) -> str:
    """Return the API key from the first of these environment variables that is set; "" if none is set.

    Raises ModelError, which does not show the key, if the key has characters that cannot be sent.
    """
    name = next((name for name in variables if os.environ.get(name, "").strip()), variables[0])
    key = os.environ.get(name, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ModelError(f"{name} holds a line break or another character that no key has. Set it again.")
    return key


def _retry_after_s(response: urllib3.BaseHTTPResponse) -> float:
    """Return the seconds that a server asks to wait, at most MAX_RETRY_AFTER_S; 0 without a valid header."""
    with suppress(urllib3.exceptions.InvalidHeader, ValueError):  # ValueError: a date beyond the year 9999
        if milliseconds := response.headers.get("retry-after-ms"):
            return min(max(0.0, float(milliseconds) / 1000), MAX_RETRY_AFTER_S)  # in this order NaN becomes 0
        return min(urllib3.Retry().get_retry_after(response) or 0.0, MAX_RETRY_AFTER_S)
    return 0.0


def _shown(body: bytes) -> str:
    return body[:300].decode(errors="replace")


FIRST_WAIT_S, MAX_WAIT_S = 0.25, 30.0
"""Seconds that a job or a slot waits after its first failure, and maximum after many failures."""
PATIENCE_S = 900.0
"""Maximum seconds without an answer of any server: a large model takes minutes to load after a restart."""
MAX_BAD_ANSWERS = 5
"""Number of failures counted against one job after which a run ends: they are then no accident."""

JobT = TypeVar("JobT")
AnswerT = TypeVar("AnswerT")
ServerT = TypeVar("ServerT")


@dataclass
class _Slot:
    """One of the places for requests that a server works on at the same time."""

    server: int  # index of the server
    free_from_s: float = 0.0  # time on the monotonic clock; infinite while a request is in flight
    failed_in_a_row: int = 0  # number of failures since the last answer


def answer_all(
    jobs: Sequence[JobT], servers: Sequence[ServerT], ask: Callable[[ServerT, JobT], AnswerT], *, concurrency: int
) -> Iterator[tuple[JobT, AnswerT]]:
    """Send jobs to servers, and yield each job once with its answer, in the order of the answers.

    Each server starts with an equal part of consecutive jobs. A server without jobs takes the last job of the server
    with the most jobs. A job that fails with UnavailableError is put back for any server. Jobs and slots then wait,
    twice as long after each failure, while other jobs and slots continue:

    - The job waits after a BadAnswerError or an InternalError. A BadAnswerError counts against the job; an
      InternalError counts only if the same server has answered another job since the job's first failure.
    - The server's slot waits after every UnavailableError except a BadAnswerError, or as long as the server asks. So a
      server that is down is not flooded.

    Args:
        jobs: jobs in the order in which servers should get them.
        servers: servers, which are passed to `ask`.
        ask: returns the answer of a server to a job; called from several threads.
        concurrency: number of jobs that a server works on at the same time.

    Raises ModelError if no server has answered for PATIENCE_S, or if MAX_BAD_ANSWERS failures count against one job;
    and any other exception of `ask`.
    """
    work = _Work(len(jobs), len(servers))
    # Slots alternate between servers, so that a server fills its slots before others take jobs from its queue.
    slots = [_Slot(server) for _ in range(min(concurrency, len(jobs))) for server in range(len(servers))]
    # A SimpleQueue of CPython 3.11 waits for ever if a timeout of microseconds is over before it looks at the clock.
    results: Queue[tuple[_Slot, int, Future[AnswerT]]] = Queue()

    def receive(slot: _Slot, job: int, answer: Future[AnswerT]) -> None:
        results.put((slot, job, answer))

    def fill_slots(now: float) -> None:
        for slot in slots:
            if slot.free_from_s <= now and (job := work.take(slot.server, now)) is not None:
                slot.free_from_s = math.inf
                asked = _begun(partial(ask, servers[slot.server], jobs[job]))
                asked.add_done_callback(partial(receive, slot, job))

    n_answered = 0
    while n_answered < len(jobs):
        now = time.monotonic()
        fill_slots(now)
        try:
            slot, job, answer = results.get(timeout=work.seconds_to_wait(slots, now))
        except Empty:  # a job or a slot has waited long enough
            continue
        slot.free_from_s = time.monotonic()
        error = answer.exception()
        if isinstance(error, UnavailableError):
            work.put_back(slot, job, error)
        elif error is not None:
            raise error
        else:
            slot.failed_in_a_row = 0
            work.last_answers_s[slot.server] = slot.free_from_s
            n_answered += 1
            fill_slots(slot.free_from_s)  # servers go on while the caller uses the answer
            yield jobs[job], answer.result()


class _Work:
    """The jobs, as indices, that no server works on: in the queue of a server, or waiting after a failure."""

    def __init__(self, n_jobs: int, n_servers: int) -> None:
        bounds = [n_jobs * part // n_servers for part in range(n_servers + 1)]
        self._queues = [deque(range(*part)) for part in pairwise(bounds)]
        self._first_failures_s: dict[int, float] = {}  # job -> time of its first failure on the monotonic clock
        self._failures, self._counted = Counter[int](), Counter[int]()  # job -> failures; failures that count
        self._waiting: list[tuple[float, int]] = []  # heap of failed jobs: (time from which to try again, job)
        self.last_answers_s = [time.monotonic()] * n_servers

    def take(self, server: int, now: float) -> int | None:
        """Return the next job for a server; None if there is none now.

        A failed job that has waited comes first, then the server's next job, then the last job of the longest queue.
        """
        if self._waiting and self._waiting[0][0] <= now:
            return heapq.heappop(self._waiting)[1]
        if queue := self._queues[server]:
            return queue.popleft()
        longest = max(self._queues, key=len)
        return longest.pop() if longest else None

    def seconds_to_wait(self, slots: Sequence[_Slot], now: float) -> float | None:
        """Return the seconds until a job or a slot may be tried again; None if neither is waiting."""
        times = [*(slot.free_from_s for slot in slots), *(time_s for time_s, _ in self._waiting[:1])]
        return min((time_s - now for time_s in times if now < time_s < math.inf), default=None)

    def put_back(self, slot: _Slot, job: int, error: UnavailableError) -> None:
        """Let a failed job, its slot or both wait. Raises ModelError after too many failures or too long a silence."""
        now = time.monotonic()
        if not isinstance(error, BadAnswerError):  # a bad answer shows that the server is up, so its slot continues
            slot.free_from_s = now + (error.retry_after_s or _wait_s(slot.failed_in_a_row))
            slot.failed_in_a_row += 1
        if not isinstance(error, BadAnswerError | InternalError):
            self._queues[slot.server].appendleft(job)
        else:
            first_s = self._first_failures_s.setdefault(job, now)
            self._failures[job] += 1
            self._counted[job] += isinstance(error, BadAnswerError) or self.last_answers_s[slot.server] > first_s
            heapq.heappush(self._waiting, (now + _wait_s(self._failures[job]), job))
            if self._counted[job] >= MAX_BAD_ANSWERS:
                raise _given_up(error, f"{MAX_BAD_ANSWERS} times")
        if now - max(self.last_answers_s) > PATIENCE_S:
            raise _given_up(error, f"for {PATIENCE_S:.0f} s")


def _given_up(error: UnavailableError, how: str) -> ModelError:
    return ModelError(f"{error} ({how}). What was scored is kept: the same command goes on from there.")


def _wait_s(n_failures: int) -> float:
    """Return the seconds to wait after this number of failures; a random part spreads the repetitions."""
    if not n_failures:
        return 0.0
    doubled = 2.0 ** min(n_failures - 1, 16)  # larger exponents would overflow
    return min(FIRST_WAIT_S * doubled, MAX_WAIT_S) * random.uniform(1, 1.25)
