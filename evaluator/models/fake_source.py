"""The model of the fake engine: it has no files, and a tokenizer that splits words."""

import hashlib
import math
import re
import zlib
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from evaluator.arrays import Floats32
from evaluator.files.digests import fingerprint
from evaluator.models.source import ModelSource

VOCAB_SIZE = 2**20
HIDDEN_SIZE = 16
_PIECES = re.compile(r"\s?\w+|\s|[^\w\s]")  # a word with the space before it, or any other single character
_BEFORE_LAST_SPACE = re.compile(r"(?s).*\S(?=\s)")


class WordTokenizer:
    """A tokenizer whose ids are hashes of words, so that label names are single tokens; it adds no special tokens."""

    control_tokens: ClassVar[dict[int, str]] = {}

    def token_ids(self, texts: Sequence[str], *, special_tokens: bool) -> list[list[int]]:  # noqa: ARG002
        return [[zlib.crc32(piece.encode()) % VOCAB_SIZE for piece in _PIECES.findall(text)] for text in texts]

    def fixed_length(self, text: str) -> int:
        before_space = _BEFORE_LAST_SPACE.match(text)
        return before_space.end() if before_space else 0

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [f"word {token}" for token in ids]  # a hash cannot be read back

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:  # noqa: ARG002
        return []


class FakeModelSource(ModelSource):
    """A model without files whose tokens are words."""

    weight_bytes, n_parameters, size, bos = 0, None, None, None
    is_hashed, has_chat_template = True, False
    tokenizer_fingerprint, tokenizer = "fake-words", WordTokenizer()

    def not_finite(self) -> str | None:
        return None

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.name)

    @cached_property
    def transformers_tokenizer(self) -> Any:
        """A tokenizer with an empty vocabulary, which only renders the chat template of a file."""
        from tokenizers import Tokenizer, models
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({})))

    @cached_property
    def lm_head(self) -> Floats32:
        """LM head, float32 of [64, HIDDEN_SIZE], unrelated to the scores."""
        rows = [[uniform_hash([row], [axis]) - 0.5 for axis in range(HIDDEN_SIZE)] for row in range(64)]
        return np.array(rows, np.float32)


def fake_model_source(name: str = "fake") -> FakeModelSource:
    """Return the source of a fake model; another name gives another fingerprint, but the same scores."""
    return FakeModelSource(
        name=name,
        folder=Path(),
        revision=None,
        architecture="none",
        context_length=1_000_000,
        vocab_size=VOCAB_SIZE,
        kv_values_per_token=0,
        dtype="float32",
        trust_remote_code=False,
    )


def uniform_hash(prefix: Sequence[int], rest: Sequence[int]) -> float:
    """Return a number in [0, 1) that looks random and is the same for the same tokens in every process."""
    hashed = hashlib.blake2b(np.array([len(prefix), *prefix, *rest], np.int32).tobytes(), digest_size=8)
    return int.from_bytes(hashed.digest(), "little") / 2**64


def token_log_probs(requests: Sequence[tuple[Sequence[int], Sequence[Sequence[int]]]]) -> list[list[list[float]]]:
    """Return fake log-probabilities (nats) of the tokens after each context: [request][continuation][token].

    Args:
        requests: the tokens of a context and of its continuations.

    They are hashes of the prefix and the token, plus a hash of the token alone, which makes some tokens likelier after
    every prefix. A probability is at most 1 / VOCAB_SIZE, so that probabilities never sum to more than one.
    """

    def log_prob(prefix: Sequence[int], token: int) -> float:
        return -math.log(VOCAB_SIZE) - 2 * uniform_hash(prefix, [token]) - uniform_hash([], [token])

    return [
        [[log_prob([*context, *after[:place]], token) for place, token in enumerate(after)] for after in continuations]
        for context, continuations in requests
    ]
