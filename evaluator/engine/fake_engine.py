"""An engine without a model, for fast tests and to try out reports: scores are hashes of tokens and mean nothing."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from evaluator.engine.base import ContinuationRequest, ContinuationScores, TokenCounts
from evaluator.models.fake_source import HIDDEN_SIZE, token_log_probs, uniform_hash
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
            self.counts.prompt_tokens += len(request.context)
            yield ContinuationScores(index, token_log_probs(request.context, request.continuations))

    def hidden_states(self, texts: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
        self.counts.prompt_tokens += sum(map(len, texts))
        rows = [[uniform_hash(text, [axis]) - 0.5 for axis in range(HIDDEN_SIZE)] for text in texts]
        return np.array(rows, np.float32).reshape(len(texts), HIDDEN_SIZE)

    def close(self) -> None:
        pass
