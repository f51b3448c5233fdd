"""Make HTTP requests to vLLM and SGLang servers, check every answer, and share work out over several servers.

Prompts with a common prefix go to one server, and failed work is tried again.
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
"""The environment variable with the key that servers ask for. No option takes a key: commands are recorded."""

CONNECT_S, READ_S, MAX_RETRY_AFTER_S = 10.0, 600.0, 60.0
"""Seconds for a connection, for a whole answer, and at most until a request is repeated because a server asks to."""

MAX_ANSWER_BYTES, MAX_BYTES_EACH_SENT = 2**26, 100
"""An answer may have so many bytes, and so many more for each byte that was sent: vLLM repeats the tokens in words."""
_REPLICA_METRIC = re.compile(rb'^vllm:num_requests_running\{engine="(\d+)"', re.MULTILINE)
_UNAVAILABLE = (408, 429, 502, 503, 504, 529)
# vLLM replaces minus infinity by this number, because JSON has no infinity.
_MINUS_INFINITY = -9999.0
# How far above 0 the rounding of half precision can leave a log-probability, or that of several tokens, in nats.
_ROUNDED_UP = 0.01
_LARGEST_EXPONENT = 700.0  # of e, without an overflow, also where hundreds of them are added

T = TypeVar("T")


class UnavailableError(Exception):
    """A server cannot answer now: it is not reached, too slow, busy or closed the connection."""

    def __init__(self, reason: str, retry_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class InternalError(UnavailableError):
    """A server answered with an error of its own: it is in trouble, or the questions bring it there."""


class BadAnswerError(UnavailableError):
    """A server answered with something that is not the answer."""


class RefusedError(ModelError):
    """A server refuses a request as it is, with a status of its own and the text of its answer."""

    def __init__(self, message: str, status: int, text: str) -> None:
        super().__init__(message)
        self.status, self.text = status, text


@dataclass(frozen=True)
class _Model:
    id: str
    max_model_len: int | None = None
    owned_by: str | None = None  # both kinds of server name themselves here


@dataclass(frozen=True)
class _Models:
    data: list[_Model]


@dataclass(frozen=True)
class _Version:
    version: str


@dataclass(frozen=True)
class _Tokens:
    tokens: list[int]


class ServedModel(NamedTuple):
    """The model that a server scores with."""

    name: str
    max_tokens: int | None  # longest sequence that it takes
    kind: ServerKind
    version: str  # of the server's program

    @property
    def protocol(self) -> ServerProtocol:
        return PROTOCOLS[self.kind]


class ServerClient:
    """One server. Methods may be called from several threads; no redirect is followed."""

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
        self._key, self._headers = key.encode(), {"Content-Type": "application/json"} | authorization
        if replica is not None:  # of a vLLM server with several; it would choose by load, away from its prefix caches
            self._headers["X-data-parallel-rank"] = str(replica)
        self._pool = urllib3.PoolManager(
            maxsize=connections, retries=False, timeout=urllib3.Timeout(connect=CONNECT_S, read=READ_S)
        )

    def served_model(self, name: str | None, model: str, kind: ServerKind | None = None) -> ServedModel:
        """Return the model to ask for: the one called `name`, else the only one, else the one called `model`.

        Args:
            name, model: of the model.
            kind: of the server; None: what it calls itself.

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
        """Return the version of the server's program; a gateway may pass on other paths alone."""
        for path in PROTOCOLS[kind].version_paths:
            with suppress(UnavailableError, ModelError):
                return self._request(path, _Version).version
        return "unknown"

    def tokens_of(self, model: str, text: str) -> list[int] | None:
        """Return the served model's tokens of a text, without special tokens; None if the server does not tell."""
        with suppress(UnavailableError, ModelError):
            asked = {"model": model, "prompt": text, "add_special_tokens": False}
            return self._request("/tokenize", _Tokens, asked).tokens
        return None

    def replicas(self) -> Sequence[int | None]:
        """Return the data-parallel replicas that a vLLM server's metrics list; None alone, unless there are several."""
        with suppress(UnavailableError, ModelError):
            n_replicas = len({*_REPLICA_METRIC.findall(self.exchange("/metrics"))})
            return range(n_replicas) if n_replicas > 1 else [None]
        return [None]

    def log_probs(self, model: ServedModel, questions: Sequence[ScoringPrompt]) -> Answers:
        """Return the answers to questions, all with the same `next_token_ids`.

        Raises:
            UnavailableError: the same questions may be answered later.
            ModelError: they never will.
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
        """Return the answer to a body, or to no body, as an object of a type."""
        data = self.exchange(path, None if body is None else msgspec.json.encode(body))
        try:
            return msgspec.json.decode(data, type=kind)
        # Malformed JSON or other fields, bytes that are not UTF-8, lists nested too deeply.
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadAnswerError(f"{self.url} returned a body that is not the expected JSON: {error}") from error

    def exchange(self, path: str, body: bytes | None = None) -> bytes:
        """Return the answer to a body of JSON, or to no body, as it came, without the key.

        Raises UnavailableError and ModelError as log_probs does; RefusedError for another status than 200.
        """
        try:
            response, data = _begun(partial(self._answer, path, body)).result(timeout=READ_S)
        except urllib3.exceptions.HTTPError as error:
            raise UnavailableError(f"{self.url}: {error}") from error
        except TimeoutError as error:
            raise UnavailableError(f"{self.url}: no whole answer within {READ_S:g} s") from error
        if len(self._key) >= MIN_LENGTH:  # a server may send back what it was sent
            data = data.replace(self._key, HIDDEN.encode())
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
        """Return a response and its body. Raises BadAnswerError for a body without end."""
        method = "GET" if body is None else "POST"
        response = self._pool.request(
            method, self.url + path, body=body, headers=self._headers, redirect=False, preload_content=False
        )
        limit, data = MAX_ANSWER_BYTES + MAX_BYTES_EACH_SENT * len(body or b""), bytearray()
        # No encoding was asked for, so none is undone: a few compressed bytes could fill the memory.
        while piece := response.read(2**20, decode_content=False):
            data += piece
            if len(data) > limit:
                response.close()
                raise BadAnswerError(f"{self.url} returned more than {limit:,} bytes")
        return response, bytes(data)


def sum_fault(total: float) -> str | None:
    """Return the fault of a sum of probabilities of different next tokens, or None."""
    if total <= math.exp(_ROUNDED_UP):
        return None
    return (
        f"gave different next tokens probabilities with a sum of {total:.4g}, which is more than 1: it must return "
        "log-probabilities over the whole vocabulary (vLLM: --logprobs-mode raw_logprobs)"
    )


def _begun(call: Callable[[], T]) -> Future[T]:
    """Make a call in a thread of its own, and return its future result; nobody has to wait for it.

    The thread is a daemon: Ctrl-C does not wait either.
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
    """Return the first key that the environment has, or an empty text.

    Raises ModelError, without the key, if it cannot be sent.
    """
    name = next((name for name in variables if os.environ.get(name, "").strip()), variables[0])
    key = os.environ.get(name, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ModelError(f"{name} holds a line break or another character that no key has. Set it again.")
    return key


def _retry_after_s(response: urllib3.BaseHTTPResponse) -> float:
    """Return the seconds that a server asks to wait; 0 if it does not, or in no form that HTTP has."""
    with suppress(urllib3.exceptions.InvalidHeader, ValueError):  # ValueError: a date beyond the year 9999
        if milliseconds := response.headers.get("retry-after-ms"):
            return min(max(0.0, float(milliseconds) / 1000), MAX_RETRY_AFTER_S)  # in this order NaN is 0
        return min(urllib3.Retry().get_retry_after(response) or 0.0, MAX_RETRY_AFTER_S)
    return 0.0


def _shown(body: bytes) -> str:
    return body[:300].decode(errors="replace")


FIRST_WAIT_S, MAX_WAIT_S = 0.25, 30.0
"""How long a job or a slot waits after its first failure, and at most after many."""
PATIENCE_S = 900.0
"""How long all servers may be silent: a large model takes minutes to load after a restart."""
MAX_BAD_ANSWERS = 5
"""After so many for the same job a run ends: what fails every time is no accident."""

JobT = TypeVar("JobT")
AnswerT = TypeVar("AnswerT")
ServerT = TypeVar("ServerT")


@dataclass
class _Slot:
    """Room for one request to a server."""

    server: int
    free_from_s: float = 0.0  # of a monotonic clock; infinite while a request is in flight
    failed_in_a_row: int = 0


def answer_all(
    jobs: Sequence[JobT], servers: Sequence[ServerT], ask: Callable[[ServerT, JobT], AnswerT], *, concurrency: int
) -> Iterator[tuple[JobT, AnswerT]]:
    """Yield each job once with its answer, as answers come.

    Each server starts with an equal part of neighbouring jobs and, once it has none left, takes the last one of
    another. A job that fails with UnavailableError is put back for any server. What may be at fault waits, twice as
    long after each failure, while the others go on:

    - the job, after a BadAnswerError or an InternalError. The first counts against it; the second only if the same
      server has answered another job since this one's first failure.
    - the server's slot, after an InternalError or any other UnavailableError, or as long as the server says. So a
      server that is down is not flooded.

    Args:
        jobs: in the order in which servers should get them.
        servers: passed to `ask`.
        ask: returns the answer to a job; called from several threads.
        concurrency: jobs that a server works on at a time.

    Raises ModelError if no server answered for PATIENCE_S, or MAX_BAD_ANSWERS count against one job; and whatever else
    `ask` raises.
    """
    work = _Work(len(jobs), len(servers))
    # In turn, so that each server fills its slots from its own queue before another takes from it.
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
        except Empty:  # a job or a slot has waited
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
            fill_slots(slot.free_from_s)  # servers go on while the caller is at work
            yield jobs[job], answer.result()


class _Work:
    """Jobs, by their place in the sequence, that are not with a server: in the queue of one, or waiting."""

    def __init__(self, n_jobs: int, n_servers: int) -> None:
        bounds = [n_jobs * part // n_servers for part in range(n_servers + 1)]
        self._queues = [deque(range(*part)) for part in pairwise(bounds)]
        self._first_failures_s: dict[int, float] = {}  # by job, in seconds of a monotonic clock
        self._failures, self._counted = Counter[int](), Counter[int]()  # failures of a job, and those that count
        self._waiting: list[tuple[float, int]] = []  # heap of failed jobs, with the time from which they may be tried
        self.last_answers_s = [time.monotonic()] * n_servers

    def take(self, server: int, now: float) -> int | None:
        """Return the next job for a server, None if there is none now.

        That is a failed job that has waited, else the server's next, else the last one of the server with most jobs.
        """
        if self._waiting and self._waiting[0][0] <= now:
            return heapq.heappop(self._waiting)[1]
        if queue := self._queues[server]:
            return queue.popleft()
        longest = max(self._queues, key=len)
        return longest.pop() if longest else None

    def seconds_to_wait(self, slots: Sequence[_Slot], now: float) -> float | None:
        """Return the seconds until a job or a slot may be tried again; None where only an answer changes anything."""
        times = [*(slot.free_from_s for slot in slots), *(time_s for time_s, _ in self._waiting[:1])]
        return min((time_s - now for time_s in times if now < time_s < math.inf), default=None)

    def put_back(self, slot: _Slot, job: int, error: UnavailableError) -> None:
        """Let a failed job, the slot or both wait. Raises ModelError if too much counts against the job or servers."""
        now = time.monotonic()
        if not isinstance(error, BadAnswerError):  # after which a server is there, so that the slot goes on
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
    """Return the seconds to wait after this number of failures; a random part keeps jobs from coming back at once."""
    if not n_failures:
        return 0.0
    doubled = 2.0 ** min(n_failures - 1, 16)  # more would overflow in the end
    return min(FIRST_WAIT_S * doubled, MAX_WAIT_S) * random.uniform(1, 1.25)
