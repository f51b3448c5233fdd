"""Make HTTP requests for token log-probabilities to vLLM and SGLang servers, and read their answers.

vLLM: POST /v1/completions with `logprob_token_ids`, or with `prompt_logprobs` for the tokens of the prompt itself.
SGLang: POST /generate with `token_ids_logprob`, or with `logprob_start_len` (docs.sglang.io, "Native APIs" and
"Sampling Parameters"). Log-probabilities of both are over the whole vocabulary.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from msgspec import Struct

from evaluator.config import ServerKind

Body = Mapping[str, Any]


class ScoringPrompt(NamedTuple):
    """A question to a server: tokens to send, and the tokens whose log-probabilities are wanted."""

    tokens: list[int]
    next_token_ids: tuple[int, ...]  # tokens to score after `tokens`
    n_scored: int = 0  # if next_token_ids is empty: number of tokens to score at the end of `tokens`


class Answers(NamedTuple):
    """The answers to the questions of one HTTP request."""

    rows: list[list[float]]  # log-probabilities in nats, one row for each question
    cached_tokens: int = 0  # number of tokens taken from the prefix cache; 0 if the protocol does not report it


class WrongModelError(ValueError):
    """A server answered with another model than the requested model."""


class _LogProb(Struct):
    logprob: float


class _LogProbs(Struct):
    top_logprobs: list[dict[str, float] | None]


class _Choice(Struct):
    index: int
    logprobs: _LogProbs | None = None
    prompt_logprobs: list[dict[int, _LogProb] | None] | None = None


class _Usage(Struct):
    prompt_tokens: int  # number of tokens of all prompts of a request


class _Completion(Struct):
    model: str
    choices: list[_Choice] = []
    usage: _Usage | None = None


class VllmProtocol:
    """The requests and answers of a vLLM server."""

    title = "vLLM"
    path = "/v1/completions"
    version_paths = ("/version",)  # paths that may return the server's version
    answer: ClassVar[Any] = _Completion  # type as which JSON is decoded
    reads_cache_for_prompts = False  # whether scored prompts take their beginning from the prefix cache
    # Whether answers state the cached tokens of all prompts of a request. With --enable-prompt-tokens-details vLLM
    # states only those of the last prompt (vllm/entrypoints/openai/completion/serving.py,
    # request_output_to_completion_response).
    tells_cached_tokens = False

    def body(self, model: str, questions: Sequence[ScoringPrompt]) -> Body:
        """Build the body of a request. All questions have the same `next_token_ids`, or none has any."""
        ids = questions[0].next_token_ids
        return {
            "model": model,
            "prompt": [question.tokens for question in questions],
            "max_tokens": 1,
            "temperature": 0,
            "return_tokens_as_token_ids": True,
            **({"logprobs": 1, "logprob_token_ids": ids} if ids else {"prompt_logprobs": 0}),
        }

    def read(self, model: str, questions: Sequence[ScoringPrompt], answer: _Completion) -> Answers:
        """Return the log-probabilities in an answer.

        Raises ValueError, naming what is missing or wrong, and WrongModelError for another model.
        """
        if answer.model != model:
            raise WrongModelError(answer.model)
        choices = sorted(answer.choices, key=lambda choice: choice.index)  # their numbers count, not their order
        if (numbers := [choice.index for choice in choices]) != list(range(len(questions))):
            raise ValueError(f"{len(choices)} answers to {len(questions)} prompts, with the numbers {numbers[:20]}")
        n_sent = sum(len(question.tokens) for question in questions)
        if answer.usage is not None and answer.usage.prompt_tokens != n_sent:
            raise ValueError(f"its usage counts {answer.usage.prompt_tokens} tokens instead of {n_sent}")
        return Answers([_of_choice(*pair) for pair in zip(questions, choices, strict=True)])


def _of_choice(question: ScoringPrompt, choice: _Choice) -> list[float]:
    if question.next_token_ids:
        rows = choice.logprobs.top_logprobs if choice.logprobs else []
        by_token = (rows[0] if rows else None) or {}
        if missing := [token for token in question.next_token_ids if f"token_id:{token}" not in by_token]:
            since = "vLLM servers support `logprob_token_ids` from version 0.26 on"
            raise ValueError(f"no log-probability of token {missing[0]}; {since}")
        return [by_token[f"token_id:{token}"] for token in question.next_token_ids]
    scored = choice.prompt_logprobs or []  # the row of the first token is empty
    if len(scored) != len(question.tokens):
        raise ValueError(f"{len(scored)} rows of log-probabilities for a prompt of {len(question.tokens)} tokens")
    tokens = question.tokens[-question.n_scored :]
    of_tokens = [row or {} for row in scored[-question.n_scored :]]
    if missing := [token for row, token in zip(of_tokens, tokens, strict=True) if token not in row]:
        raise ValueError(f"no log-probability of token {missing[0]} of a prompt")
    return [row[token].logprob for row, token in zip(of_tokens, tokens, strict=True)]


_Entry = list[float | int | str | None]
"""Log-probability in nats, token id, and text of the token or None."""


class _About(Struct):
    prompt_tokens: int
    cached_tokens: int = 0
    input_token_logprobs: list[_Entry] | None = None
    output_token_ids_logprobs: list[list[_Entry]] | None = None


class _Generated(Struct):
    meta_info: _About


class SglangProtocol:
    """The requests and answers of an SGLang server; attributes as in VllmProtocol. Answers do not name the model."""

    title = "SGLang"
    path = "/generate"
    version_paths = ("/server_info", "/get_server_info")
    answer: ClassVar[Any] = list[_Generated]
    reads_cache_for_prompts = True
    tells_cached_tokens = True

    def body(self, model: str, questions: Sequence[ScoringPrompt]) -> Body:  # noqa: ARG002
        """Build the body of a request, as VllmProtocol does."""
        ids = questions[0].next_token_ids
        # SGLang returns log-probabilities of the prompt's tokens after these positions; for -1, of no prompt token.
        starts = [len(question.tokens) - question.n_scored - 1 if not ids else -1 for question in questions]
        return {
            "input_ids": [question.tokens for question in questions],
            "sampling_params": {"max_new_tokens": 1, "temperature": 0},
            "return_logprob": True,
            "logprob_start_len": starts,
            **({"token_ids_logprob": [question.next_token_ids for question in questions]} if ids else {}),
        }

    def read(self, model: str, questions: Sequence[ScoringPrompt], answer: list[_Generated]) -> Answers:  # noqa: ARG002
        """Return the log-probabilities in an answer. Raises ValueError, naming what is missing or wrong."""
        if len(answer) != len(questions):
            raise ValueError(f"{len(answer)} answers to {len(questions)} prompts")
        about = [generated.meta_info for generated in answer]
        rows = [_of_about(*pair) for pair in zip(questions, about, strict=True)]
        return Answers(rows, sum(one.cached_tokens for one in about))


def _of_about(question: ScoringPrompt, about: _About) -> list[float]:
    if about.prompt_tokens != len(question.tokens):
        raise ValueError(f"{about.prompt_tokens} tokens instead of {len(question.tokens)}")
    if question.next_token_ids:
        tokens = list(question.next_token_ids)
        entries = (about.output_token_ids_logprobs or [[]])[0]
    else:
        tokens = question.tokens[-question.n_scored :]
        entries = (about.input_token_logprobs or [])[-len(tokens) :]
    if [entry[1:2] for entry in entries] != [[token] for token in tokens]:
        raise ValueError("log-probabilities of other tokens")
    return [_number(entry[0]) for entry in entries]


def _number(value: float | int | str | None) -> float:
    if not isinstance(value, float | int):
        raise ValueError(f"{value!r} is not a log-probability")
    return float(value)


ServerProtocol = VllmProtocol | SglangProtocol

PROTOCOLS: dict[ServerKind, ServerProtocol] = {"vllm": VllmProtocol(), "sglang": SglangProtocol()}
