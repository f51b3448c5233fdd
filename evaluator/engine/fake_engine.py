"""Scores without a model: a hash of the tokens, for fast tests and to try out a report. The numbers mean nothing."""

import hashlib
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from evaluator.engine.base import ContinuationRequest, ContinuationScores, EngineFacts, TokenCounts
from evaluator.models.source import ModelSource
from evaluator.tokens.tokenizer import TextTokenizer

_VOCAB_SIZE = 2**20
_PIECES = re.compile(r"\s?\w+|\s|[^\w\s]")  # a word with the space before it, or any other single character
_HIDDEN_SIZE = 16


class FakeModelSource(ModelSource):
    """Stands where a model would: no files, one token a word."""

    @cached_property
    def weight_bytes(self) -> int:
        return 0

    @cached_property
    def fingerprint(self) -> str:
        return "fake"

    @cached_property
    def tokenizer_fingerprint(self) -> str:
        return "fake-words"

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        return WordTokenizer()

    @cached_property
    def lm_head(self) -> npt.NDArray[np.float32]:
        """An LM head of few rows, [64, hidden size]; what it says is unrelated to the scores, as these mean nothing."""
        rows = [[_uniform([row], [axis]) - 0.5 for axis in range(_HIDDEN_SIZE)] for row in range(64)]
        return np.array(rows, np.float32)


class WordTokenizer:
    """One token a word, numbered by its hash, so that label names are single tokens; it adds nothing to a text."""

    def token_ids(self, texts: Sequence[str], *, special_tokens: bool) -> list[list[int]]:  # noqa: ARG002
        return [[zlib.crc32(piece.encode()) % _VOCAB_SIZE for piece in _PIECES.findall(text)] for text in texts]


def fake_model_source() -> FakeModelSource:
    return FakeModelSource(
        name="fake",
        folder=Path(),
        revision=None,
        architecture="none",
        context_length=1_000_000,
        vocab_size=_VOCAB_SIZE,
        kv_values_per_token=0,
        feed_forward_size=0,
        dtype="float32",
        trust_remote_code=False,
    )


class FakeEngine:
    """A pure function of the tokens; some tokens are likelier everywhere, as with a biased model."""

    def __init__(self) -> None:
        self.facts = EngineFacts(
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
        rows = [[_uniform(text, [axis]) - 0.5 for axis in range(_HIDDEN_SIZE)] for text in texts]
        return np.array(rows, np.float32).reshape(len(texts), _HIDDEN_SIZE)

    def close(self) -> None:
        pass

    def _score(self, context: Sequence[int], continuation: Sequence[int]) -> list[float]:
        tokens = [*context, *continuation]
        return [_log_prob(tokens[:place], tokens[place]) for place in range(len(context), len(tokens))]


def _log_prob(prefix: Sequence[int], token: int) -> float:
    """Never above that of a uniform guess, so that no vocabulary's probabilities sum to more than one."""
    return -math.log(_VOCAB_SIZE) - 2 * _uniform(prefix, [token]) - _uniform([], [token])


def _uniform(prefix: Sequence[int], rest: Sequence[int]) -> float:
    """A number in [0, 1) that looks random and is the same for the same tokens in every process."""
    hashed = hashlib.blake2b(np.array([len(prefix), *prefix, *rest], np.int32).tobytes(), digest_size=8)
    return int.from_bytes(hashed.digest(), "little") / 2**64
