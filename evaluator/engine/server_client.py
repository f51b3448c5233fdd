"""HTTP requests to one vLLM server: what it serves, and log-probabilities of tokens, each answer checked."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgspec
import urllib3

from evaluator.errors import ModelError

API_KEY_VARIABLE = "VLLM_API_KEY"
"""The environment variable with the key that servers ask for. No option takes a key: commands are recorded."""

CONNECT_S, READ_S, MAX_RETRY_AFTER_S = 10.0, 600.0, 60.0
_UNAVAILABLE = (429, 502, 503, 504)
# vLLM replaces minus infinity by this number, because JSON has no infinity.
_MINUS_INFINITY = -9999.0
# How far above 0 the rounding of half precision can leave a log-probability, in nats.
_ROUNDED_UP = 0.01

T = TypeVar("T")


class UnavailableError(Exception):
    """A server cannot answer now: it is not reached, too slow, busy or closed the connection."""

    def __init__(self, reason: str, retry_after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


class BadAnswerError(UnavailableError):
    """A server answered with an error of its own, or with something that is not the answer."""


class Question(NamedTuple):
    """Tokens sent to a server, and what it shall say of them."""

    tokens: list[int]
    next_token_ids: tuple[int, ...]  # log-probabilities of these tokens after `tokens`; empty: those of `tokens`


@dataclass(frozen=True)
class _Model:
    id: str
    max_model_len: int | None = None


@dataclass(frozen=True)
class _Models:
    data: list[_Model]


@dataclass(frozen=True)
class _Version:
    version: str


@dataclass(frozen=True)
class _Tokens:
    tokens: list[int]


@dataclass(frozen=True)
class _LogProb:
    logprob: float


@dataclass(frozen=True)
class _LogProbs:
    top_logprobs: list[dict[str, float] | None]


@dataclass(frozen=True)
class _Choice:
    index: int
    logprobs: _LogProbs | None = None
    prompt_logprobs: list[dict[int, _LogProb] | None] | None = None


@dataclass(frozen=True)
class _Completion:
    model: str
    choices: list[_Choice] = field(default_factory=list)


class ServedModel(NamedTuple):
    """The model that a server scores with."""

    name: str
    max_tokens: int | None  # longest sequence that it takes
    vllm_version: str


class ServerClient:
    """One server. Methods may be called from several threads; no redirect is followed."""

    def __init__(self, url: str, *, connections: int = 1) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        key = os.environ.get(API_KEY_VARIABLE)
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self._pool = urllib3.PoolManager(
            maxsize=connections, retries=False, timeout=urllib3.Timeout(connect=CONNECT_S, read=READ_S)
        )

    def served_model(self, name: str | None, model: str) -> ServedModel:
        """Return the model to ask for: the one called `name`, else the only one, else the one called `model`.

        Raises ModelError if the server cannot be reached or serves no such model.
        """
        try:
            models = {served.id: served for served in self._get("/v1/models", _Models).data}
        except UnavailableError as error:
            raise ModelError(
                f"{self.url} does not answer as a vLLM server does: {error}. Start one with `vllm serve MODEL`, or "
                "correct --server-url."
            ) from error
        wanted = name or (next(iter(models)) if len(models) == 1 else model)
        if wanted not in models:
            raise ModelError(
                f"{self.url} serves {', '.join(models) or 'no model'}, not {wanted}. Choose one with --served-name."
            )
        try:
            version = self._get("/version", _Version).version
        except (UnavailableError, ModelError):  # a gateway may pass on the paths below /v1 alone
            version = "unknown"
        return ServedModel(wanted, models[wanted].max_model_len, version)

    def tokens_of(self, model: str, text: str) -> list[int] | None:
        """Return the served model's tokens of a text, without special tokens; None if the server does not tell."""
        try:
            return self._post(
                "/tokenize", {"model": model, "prompt": text, "add_special_tokens": False}, _Tokens
            ).tokens
        except (UnavailableError, ModelError):
            return None

    def log_probs(self, model: str, questions: Sequence[Question]) -> list[list[float]]:
        """Return log-probabilities in nats: of each question's `next_token_ids`, or of its tokens after the first.

        Args:
            model: name of the served model.
            questions: all with the same `next_token_ids`.

        Raises:
            UnavailableError, BadAnswerError: the same questions may be answered later.
            ModelError: they never will.
        """
        ids = questions[0].next_token_ids
        wanted = {"logprobs": 1, "logprob_token_ids": ids} if ids else {"prompt_logprobs": 0}
        body = {
            "model": model,
            "prompt": [question.tokens for question in questions],
            "max_tokens": 1,
            "temperature": 0,
            "return_tokens_as_token_ids": True,
        }
        answer = self._post("/v1/completions", body | wanted, _Completion)
        if answer.model != model:
            raise ModelError(f"{self.url} answered for the model {answer.model}, not for {model}.")
        if [choice.index for choice in answer.choices] != list(range(len(questions))):
            raise BadAnswerError(f"{self.url} gave {len(answer.choices)} answers to {len(questions)} prompts")
        read = _next_token_log_probs if ids else _prompt_log_probs
        try:
            rows = [read(question, choice) for question, choice in zip(questions, answer.choices, strict=True)]
        except (KeyError, ValueError) as error:
            raise BadAnswerError(f"{self.url} left out log-probabilities ({type(error).__name__}: {error})") from error
        if any(value <= _MINUS_INFINITY for row in rows for value in row):
            raise BadAnswerError(f"{self.url} gave a log-probability of minus infinity")
        if wrong := [value for row in rows for value in row if value > _ROUNDED_UP]:
            raise BadAnswerError(f"{self.url} gave {wrong[0]:g} as a log-probability, which is more than 0")
        return rows

    def close(self) -> None:
        self._pool.clear()

    def _get(self, path: str, kind: type[T]) -> T:
        return self._request("GET", path, None, kind)

    def _post(self, path: str, body: Mapping[str, Any], kind: type[T]) -> T:
        return self._request("POST", path, msgspec.json.encode(body), kind)

    def _request(self, method: str, path: str, body: bytes | None, kind: type[T]) -> T:
        try:
            response = self._pool.request(method, self.url + path, body=body, headers=self._headers, redirect=False)
        except urllib3.exceptions.HTTPError as error:
            raise UnavailableError(f"{self.url}: {error}") from error
        if response.status in _UNAVAILABLE:
            retry_after_s = min(urllib3.Retry().get_retry_after(response) or 0.0, MAX_RETRY_AFTER_S)
            raise UnavailableError(f"{self.url} answered {response.status} {_shown(response.data)}", retry_after_s)
        if response.status >= 500:
            raise BadAnswerError(f"{self.url} answered {response.status} {_shown(response.data)}")
        if 300 <= response.status < 400:
            target = urllib3.util.parse_url(response.headers.get("Location", "")).host
            raise ModelError(f"{self.url}{path} redirects to {target or 'another path'}; no redirect is followed.")
        if response.status in (401, 403):
            raise ModelError(f"{self.url} refuses the request ({response.status}): set {API_KEY_VARIABLE} to its key.")
        if response.status != 200:
            raise ModelError(f"{self.url}{path} answered {response.status}: {_shown(response.data)}")
        try:
            return msgspec.json.decode(response.data, type=kind)
        # Of malformed JSON and of JSON of another form, of texts that are no UTF-8, and of lists nested without end.
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadAnswerError(f"{self.url} answered what is not {kind.__name__.strip('_')}: {error}") from error


def _next_token_log_probs(question: Question, choice: _Choice) -> list[float]:
    """Read the log-probabilities of `next_token_ids`. Raises KeyError or ValueError if one is missing."""
    rows = choice.logprobs.top_logprobs if choice.logprobs else []
    (row,) = rows
    return [(row or {})[f"token_id:{token}"] for token in question.next_token_ids]


def _prompt_log_probs(question: Question, choice: _Choice) -> list[float]:
    """Read the log-probabilities of a prompt's tokens but the first. Raises KeyError or ValueError if one lacks."""
    rows = choice.prompt_logprobs or []  # nothing stands in that of the first token
    pairs = zip(rows[1:], question.tokens[1:], strict=True)
    return [(row or {})[token].logprob for row, token in pairs]


def _shown(body: bytes) -> str:
    return body[:300].decode(errors="replace")
