"""An engine without a model, for fast tests and to try out reports: scores are hashes of tokens and mean nothing."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from evaluator.engine.base import ContinuationRequest, ContinuationScores, TokenCounts
from evaluator.models.fake_source import HIDDEN_SIZE, VOCAB_SIZE, uniform_hash
from evaluator.record import EngineRecord


class FakeEngine:
    """Scores that are a pure function of the tokens; some tokens are always likelier, as in a biased model."""

    def __init__(self) -> None:
        self.facts = EngineRecord(
            name="fake", versions={}, device="none", dtype="float64", prefix_block_tokens=None, tokens_per_step=256
        )
        self.counts = TokenCounts()

    def log_likelihoods(self, requests: Sequence[ContinuationRequest]) -> Iterator[ContinuationScores]:
        for index, request in enumerate(requests):
            scores = [self._score(request.context, continuation) for continuation in request.continuations]
            self.counts.prompt_tokens += len(request.context)
            yield ContinuationScores(index, scores)

    def hidden_states(self, texts: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
        self.counts.prompt_tokens += sum(map(len, texts))
        rows = [[uniform_hash(text, [axis]) - 0.5 for axis in range(HIDDEN_SIZE)] for text in texts]
        return np.array(rows, np.float32).reshape(len(texts), HIDDEN_SIZE)

    def close(self) -> None:
        pass

    def _score(self, context: Sequence[int], continuation: Sequence[int]) -> list[float]:
        tokens = [*context, *continuation]
        return [_log_prob(tokens[:place], tokens[place]) for place in range(len(context), len(tokens))]


def _log_prob(prefix: Sequence[int], token: int) -> float:
    """Return a log-probability of at most 1 / VOCAB_SIZE, so that no probabilities sum to more than one."""
    return -math.log(VOCAB_SIZE) - 2 * uniform_hash(prefix, [token]) - uniform_hash([], [token])
