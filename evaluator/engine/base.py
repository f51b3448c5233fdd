"""What an engine must do: the two kinds of model call that every suite is made of.

Token ids go in and log-probabilities or hidden states come out; prompts, labels and datasets are unknown here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt


class ContinuationRequest(NamedTuple):
    """One context and the continuations to score after it, as token ids; none of them is empty."""

    context: Sequence[int]
    continuations: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class ContinuationScores:
    """The answer to one request."""

    index: int  # place of the request in the sequence that was asked
    token_log_probs: list[list[float]]  # [continuation][token], nats, over the whole vocabulary


@dataclass(kw_only=True)
class TokenCounts:
    """What an engine has done since it was made, in tokens; grows while a call runs."""

    prompt_tokens: int = 0  # tokens sent
    cached_tokens: int = 0  # of these, served from the prefix cache

    @property
    def computed_tokens(self) -> int:
        return self.prompt_tokens - self.cached_tokens


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """What a report must say about the engine that made its numbers."""

    name: str
    versions: dict[str, str]  # package -> version
    device: str
    dtype: str
    prefix_block_tokens: int | None  # prefix-cache block; None where there is no prefix cache
    has_hidden_states: bool = True
    tokens_per_step: int  # how many tokens one forward pass holds; shards are cut to a multiple of it


class Engine(Protocol):
    """A loaded model. Each call depends on its arguments alone: nothing is carried over from an earlier call, so that
    a run which was interrupted and resumed gives the numbers of one that was not."""

    facts: EngineFacts
    counts: TokenCounts

    def log_likelihoods(self, requests: Sequence[ContinuationRequest]) -> Iterator[ContinuationScores]:
        """Score continuations after their contexts; answers come as they are ready, in any order, each index once.

        Send requests in prefix order: a prefix cache can only reuse what is still in it.
        """
        ...

    def hidden_states(self, texts: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
        """Final-norm hidden state of each text's last token, shape [len(texts), hidden size], in the order asked."""
        ...

    def close(self) -> None:
        """Give back memory and devices. A closed engine is not used again."""
        ...
