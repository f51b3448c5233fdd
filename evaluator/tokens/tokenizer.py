"""Tokenizers, from texts to token ids: their interface and implementations.

Prompts repeat the same lines: the demonstrations, and the query once per label. A tokenizer that first cuts text by a
regular expression tokenises each match separately, so each different line needs to be tokenised only once.
"""

import json
import math
import re
from collections.abc import Sequence
from itertools import chain
from typing import Any, Protocol

from evaluator.errors import ModelError, is_panic

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CUT_AFTER_LINES = (
    rf"{_WORDS}|\p{{N}}{{1,3}}|{_REST}",  # Llama 3, GPT-4
    rf"{_WORDS}|\p{{N}}|{_REST}",  # Qwen 2 and 3
)

_MARK = re.compile(r"<\|.+\|>|<[/]?(think|tool_call|tool_response)>|\[/?(INST|THINK|SYSTEM_PROMPT|TOOL_CALLS)\]")
"""Texts of control tokens that some tokenizers do not declare as special."""


_CUT = re.compile(r"\n(?<=\S\n)(?=[A-Za-z])")


def cut(text: str) -> list[str]:
    """Cut a text after each line end that follows a character other than white space and precedes an ASCII letter.

    No match of the expressions that `cuts_exactly` accepts extends across such a place, and none looks ahead beyond it:
    the lookahead that separates white space before a word from other white space needs two white-space characters.
    """
    *lines, last = _CUT.split(text)
    return [*(f"{line}\n" for line in lines), last]


def cuts_exactly(backend: Any) -> bool:
    """Return whether this tokenizer of the `tokenizers` library gives a text the tokens of its pieces.

    True for GPT-2's expression and the listed ones of later models, if the text is not normalised except to NFC.
    """
    normalizer = backend.normalizer
    composes = normalizer is None or json.loads(normalizer.__getstate__())["type"] == "NFC"
    # An added token that includes the white space before it would extend across a cut.
    added = backend.get_added_tokens_decoder().values()
    extends_across = any(token.lstrip or token.single_word or "\n" in token.content for token in added)
    return composes and not extends_across and _splits_at_lines(backend.pre_tokenizer)


def _splits_at_lines(pre_tokenizer: Any) -> bool:
    if pre_tokenizer is None:
        return False
    stated = json.loads(pre_tokenizer.__getstate__())
    steps = stated["pretokenizers"] if stated["type"] == "Sequence" else [stated]
    if not steps or steps[-1]["type"] != "ByteLevel" or steps[-1]["add_prefix_space"]:
        return False
    if len(steps) == 1:
        return bool(steps[0]["use_regex"])
    split, bytes_alone = steps[0], not steps[-1]["use_regex"]
    is_known = split["type"] == "Split" and split["pattern"].get("Regex") in _CUT_AFTER_LINES
    return len(steps) == 2 and bytes_alone and is_known and split["behavior"] == "Isolated" and not split["invert"]


class TextTokenizer(Protocol):
    """Tokenises texts; never truncates or pads."""

    def token_ids(self, texts: Sequence[str], *, special_tokens: bool) -> list[list[int]]:
        """Return the ids of each text; with special_tokens, the tokenizer's BOS and EOS as well."""
        ...

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each token as the vocabulary writes it: `Ġgood` for " good" in a byte-level one."""
        ...

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each row of ids, control tokens included; no texts where ids cannot be read back."""
        ...

    @property
    def control_tokens(self) -> dict[int, str]:
        """Tokens that a text should not contain, with their texts: BOS, EOS, the beginning of a turn."""
        ...


class FastTokenizer:
    """A tokenizer of the `tokenizers` library, which uses all cores; tokenises each different line once if possible."""

    def __init__(self, backend: Any) -> None:
        # All are left on in some tokenizer files, and would change prompts silently: chance is for training.
        backend.no_truncation()
        backend.no_padding()
        for of_chance in {"dropout", "alpha"} & {*dir(backend.model)}:  # of BPE's merges, of Unigram's cuts
            setattr(backend.model, of_chance, None)
        _require_bounded(backend.normalizer)
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

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        if self._backend.decoder is None:
            from tokenizers import decoders

            # Pieces are written in one of two ways: bytes as letters, or a space as ▁ and single bytes as <0x0A>.
            of_words = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
            decoder = decoders.ByteLevel() if "ByteLevel" in str(self._backend.pre_tokenizer) else of_words
            return [decoder.decode(self.pieces(row)) for row in rows]
        decoded: list[str] = self._backend.decode_batch(rows, skip_special_tokens=False)
        return decoded

    @property
    def control_tokens(self) -> dict[int, str]:
        added = self._backend.get_added_tokens_decoder().items()
        return {token: one.content for token, one in added if one.special or _MARK.fullmatch(one.content)}

    def _encoded(self, texts: Sequence[str], special_tokens: bool) -> list[list[int]]:
        # The fast variant leaves out the character offsets, which are not needed here.
        try:
            encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=special_tokens)
        except BaseException as error:  # such as a regular expression that tries too many ways to match
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            raise ModelError(f"The model's tokenizer gives up on a text ({error}). Choose another model.") from error
        return [encoding.ids for encoding in encodings]

    def _special_tokens(self) -> tuple[list[int], list[int]] | None:
        """Return the ids added before and after a text; None if they are not the same for every text."""
        (bare,) = self._encoded(["a"], special_tokens=False)
        empty, whole = self._encoded(["", "a"], special_tokens=True)
        # The empty text has the added ids alone; try every way to split them into before and after.
        splits = [(empty[:n], empty[n:]) for n in range(len(empty) + 1)]
        return next(((before, after) for before, after in splits if bare and [*before, *bare, *after] == whole), None)


MAX_GROWTH = 1000
"""How many times as long a tokenizer may make a text before it cuts it."""


def _require_bounded(normalizer: Any) -> None:
    """Raise ModelError for a normalizer whose replacements, one after the other, make a text longer without end."""
    growth = 1.0 if normalizer is None else _growth(json.loads(normalizer.__getstate__()))
    if growth > MAX_GROWTH:
        raise ModelError(
            f"The model's tokenizer can make a text {growth:.3g} times as long before it cuts it, and more than "
            f"{MAX_GROWTH} times is refused. Choose another model."
        )


def _growth(step: dict[str, Any]) -> float:
    """Return how many times as long a step of a normalizer can make a text."""
    if step["type"] == "Replace":  # a regular expression can match one character
        return max(1.0, len(step["content"]) / max(1, len(step["pattern"].get("String", ""))))
    return math.prod(map(_growth, step.get("normalizers", [])))


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

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        return [str(self._tokenizer.decode(list(row), **options)) for row in rows]

    @property
    def control_tokens(self) -> dict[int, str]:
        added = self._tokenizer.added_tokens_decoder.items()
        return {token: one.content for token, one in added if one.special or _MARK.fullmatch(one.content)}


class TokenizerWithBos:
    """A tokenizer that begins texts with a token, unless they begin with it already (`--add-bos`)."""

    def __init__(self, tokenizer: TextTokenizer, bos: int) -> None:
        self._tokenizer, self._bos = tokenizer, bos
        self.pieces, self.texts, self.control_tokens = tokenizer.pieces, tokenizer.texts, tokenizer.control_tokens

    def token_ids(self, texts: Sequence[str], *, special_tokens: bool) -> list[list[int]]:
        rows = self._tokenizer.token_ids(texts, special_tokens=special_tokens)
        return [row if row[:1] == [self._bos] else [self._bos, *row] for row in rows] if special_tokens else rows
