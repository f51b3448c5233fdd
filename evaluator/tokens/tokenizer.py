"""An interface for tokenizers, from texts to token ids, and its implementations."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, Protocol

from evaluator.tokens.pieces import cut, cuts_exactly


class TextTokenizer(Protocol):
    """Tokenises texts; never truncates or pads."""

    def token_ids(self, texts: Sequence[str], *, special_tokens: bool) -> list[list[int]]:
        """Return the ids of each text; with special_tokens, including those that the tokenizer adds (BOS, EOS)."""
        ...

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each token as the vocabulary writes it: `Ġgood` for " good" in a byte-level one."""
        ...


class FastTokenizer:
    """A tokenizer of the `tokenizers` library, which uses all cores; tokenises each different line once if possible."""

    def __init__(self, backend: Any) -> None:
        # Both are often left on in tokenizer files, and would change prompts silently.
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._added_ids = self._special_tokens() if cuts_exactly(backend) else None

    def token_ids(self, texts: Sequence[str], *, special_tokens: bool) -> list[list[int]]:
        if self._added_ids is None:
            return self._encoded(texts, special_tokens)
        rows = [cut(text) for text in texts]
        pieces = list(dict.fromkeys(chain.from_iterable(rows)))
        ids = dict(zip(pieces, self._encoded(pieces, special_tokens=False), strict=True))
        before, after = self._added_ids if special_tokens else ([], [])
        return [[*before, *chain.from_iterable([ids[piece] for piece in row]), *after] for row in rows]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [str(self._backend.id_to_token(token)) for token in ids]

    def _encoded(self, texts: Sequence[str], special_tokens: bool) -> list[list[int]]:
        # The fast variant leaves out the character offsets, which are not needed here.
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=special_tokens)
        return [encoding.ids for encoding in encodings]

    def _special_tokens(self) -> tuple[list[int], list[int]] | None:
        """Return the ids added before and after a text; None if they are not the same for every text."""
        (bare,) = self._encoded(["a"], special_tokens=False)
        empty, whole = self._encoded(["", "a"], special_tokens=True)
        # The empty text has the added ids alone; try every way to split them into before and after.
        splits = [(empty[:n], empty[n:]) for n in range(len(empty) + 1)]
        return next(((before, after) for before, after in splits if [*before, *bare, *after] == whole), None)


class SlowTokenizer:
    """A tokenizer of transformers that is implemented in Python."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def token_ids(self, texts: Sequence[str], *, special_tokens: bool) -> list[list[int]]:
        if not texts:
            return []
        encoded = self._tokenizer(list(texts), add_special_tokens=special_tokens, padding=False, truncation=False)
        ids: list[list[int]] = encoded["input_ids"]
        return ids

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [str(piece) for piece in self._tokenizer.convert_ids_to_tokens(list(ids))]
