"""Texts enter, token ids leave: what the rest needs of a tokenizer, and no more."""

from collections.abc import Sequence
from typing import Any, Protocol


class TextTokenizer(Protocol):
    """Texts -> token ids. Nothing is ever cut or padded."""

    def token_ids(self, texts: Sequence[str], *, special_tokens: bool) -> list[list[int]]:
        """Ids of each text; with special_tokens, as the tokenizer begins and ends a text by itself (BOS, EOS)."""
        ...


class FastTokenizer:
    """A tokenizer of the `tokenizers` library, which works on all cores."""

    def __init__(self, backend: Any) -> None:
        # Both are often left on in tokenizer files, and would cut prompts in silence.
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend

    def token_ids(self, texts: Sequence[str], *, special_tokens: bool) -> list[list[int]]:
        # The fast variant leaves out the character offsets, which nobody here asks for.
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=special_tokens)
        return [encoding.ids for encoding in encodings]


class SlowTokenizer:
    """A tokenizer that exists in Python only."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def token_ids(self, texts: Sequence[str], *, special_tokens: bool) -> list[list[int]]:
        if not texts:
            return []
        encoded = self._tokenizer(list(texts), add_special_tokens=special_tokens, padding=False, truncation=False)
        ids: list[list[int]] = encoded["input_ids"]
        return ids
