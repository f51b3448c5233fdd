"""Tokenizers: the interface that turns texts into token ids, and its implementations.

Prompts repeat the same lines: the demonstrations, and the query once per label. A tokenizer that first cuts text by a
regular expression tokenises every match separately, so a repeated line needs to be tokenised only once.
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
"""Pattern for control tokens that some tokenizers do not declare as special."""


_CUT = re.compile(r"\n(?<=\S\n)(?=[A-Za-z])")


def cut(text: str) -> list[str]:
    """Cut a text after each line end that follows a character other than white space and precedes an ASCII letter.

    The regular expressions that `cuts_exactly` accepts never match across such a cut, so the pieces can be tokenised
    separately. They do not look ahead beyond a cut either: the lookahead that separates white space before a word from
    other white space needs two white-space characters.
    """
    *lines, last = _CUT.split(text)
    return [*(f"{line}\n" for line in lines), last]


def cuts_exactly(backend: Any) -> bool:
    """Return whether tokenising the pieces of `cut` separately gives the tokens of the whole text.

    True for the regular expression of GPT-2 and those of _CUT_AFTER_LINES, if the tokenizer applies no normalisation
    but NFC, and for tokenizers as Gemma's, in which line ends are added tokens: a text is split at these first. In both
    cases, no added token may extend across a cut.

    Args:
        backend: a tokenizer of the `tokenizers` library.
    """
    added = [*backend.get_added_tokens_decoder().values()]
    if any(token.lstrip or token.single_word for token in added):  # it would include the white space before it
        return False
    normalizer, pre_tokenizer = _state(backend.normalizer), _state(backend.pre_tokenizer)
    of_lines = {token.content for token in added if "\n" in token.content}
    if not of_lines:
        return normalizer.get("type", "NFC") == "NFC" and _splits_at_lines(pre_tokenizer)
    are_alone = "\n" in of_lines and not any(content.strip("\n") for content in of_lines)
    replaces_spaces = normalizer.get("type", "Replace") == "Replace" and normalizer.get("pattern", _SPACE) == _SPACE
    splits_at_spaces = pre_tokenizer.get("type", "Split") == "Split" and pre_tokenizer.get("pattern", _SPACE) == _SPACE
    return are_alone and replaces_spaces and splits_at_spaces


_SPACE = {"String": " "}


def _state(step: Any) -> dict[str, Any]:
    """Return the configuration of a normalizer or pre-tokenizer; {} without one."""
    return {} if step is None else dict(json.loads(step.__getstate__()))


def _splits_at_lines(pre_tokenizer: dict[str, Any]) -> bool:
    steps = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    if not steps or steps[-1].get("type") != "ByteLevel" or steps[-1]["add_prefix_space"]:
        return False
    if len(steps) == 1:
        return bool(steps[0]["use_regex"])
    split, bytes_alone = steps[0], not steps[-1]["use_regex"]
    is_known = split["type"] == "Split" and split["pattern"].get("Regex") in _CUT_AFTER_LINES
    return len(steps) == 2 and bytes_alone and is_known and split["behavior"] == "Isolated" and not split["invert"]


class TextTokenizer(Protocol):
    """Tokenises texts; never truncates or pads."""

    def token_ids(self, texts: Sequence[str], *, special_tokens: bool) -> list[list[int]]:
        """Return the token ids of each text; with special_tokens, including the tokenizer's BOS and EOS."""

    def fixed_length(self, text: str) -> int:
        """Return the length of a beginning of the text that has tokens of its own, whatever follows; 0 if unknown.

        Its tokens and those of the rest without special tokens are the tokens of the text.
        """

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return each token as the vocabulary writes it: `Ġgood` for " good" in a byte-level vocabulary."""

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Decode each row of token ids, control tokens included; return an empty list if ids cannot be decoded."""

    @property
    def control_tokens(self) -> dict[int, str]:
        """Token id -> text of the tokens that a prompt should not contain: BOS, EOS, the beginning of a turn."""


class FastTokenizer:
    """A tokenizer of the `tokenizers` library, which uses all cores; tokenises a repeated line once if possible."""

    def __init__(self, backend: Any) -> None:
        # Some tokenizer files leave truncation, padding or random merges (meant for training) switched on, which would
        # change prompts silently.
        backend.no_truncation()
        backend.no_padding()
        for of_chance in {"dropout", "alpha"} & {*dir(backend.model)}:  # randomness of BPE, of Unigram
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

    def fixed_length(self, text: str) -> int:
        return 0 if self._added_ids is None else len(text) - len(cut(text)[-1])

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [str(self._backend.id_to_token(token)) for token in ids]

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        if self._backend.decoder is None:
            from tokenizers import decoders

            # Vocabularies write tokens in one of two ways: bytes as letters, or a space as ▁ and a byte as <0x0A>.
            of_words = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
            decoder = decoders.ByteLevel() if "ByteLevel" in str(self._backend.pre_tokenizer) else of_words
            return [decoder.decode(self.pieces(row)) for row in rows]
        return list(self._backend.decode_batch(rows, skip_special_tokens=False))

    @property
    def control_tokens(self) -> dict[int, str]:
        added = self._backend.get_added_tokens_decoder().items()
        return {token: one.content for token, one in added if one.special or _MARK.fullmatch(one.content)}

    def _encoded(self, texts: Sequence[str], special_tokens: bool) -> list[list[int]]:
        # The fast variant leaves out the character offsets, which are not needed here.
        try:
            encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=special_tokens)
        except BaseException as error:  # for example when a regular expression backtracks too much
            if not isinstance(error, Exception) and not is_panic(error):
                raise
            raise ModelError(f"The model's tokenizer gives up on a text ({error}). Choose another model.") from error
        return [encoding.ids for encoding in encodings]

    def _special_tokens(self) -> tuple[list[int], list[int]] | None:
        """Return the ids that are added before and after a text; None if they differ between "" and "a"."""
        (bare,) = self._encoded(["a"], special_tokens=False)
        empty, whole = self._encoded(["", "a"], special_tokens=True)
        # The empty text consists of the added ids; try every way to split them into ids before and after a text.
        splits = [(empty[:n], empty[n:]) for n in range(len(empty) + 1)]
        return next(((before, after) for before, after in splits if bare and [*before, *bare, *after] == whole), None)


MAX_GROWTH = 1000
"""Maximum factor by which a tokenizer's normalizer may lengthen a text before the text is cut into pieces."""


def _require_bounded(normalizer: Any) -> None:
    """Raise ModelError if the replacements of a normalizer together can lengthen a text by more than MAX_GROWTH."""
    growth = 1.0 if normalizer is None else _growth(_state(normalizer))
    if growth > MAX_GROWTH:
        raise ModelError(
            f"The model's tokenizer can make a text {growth:.3g} times as long before it cuts it, and more than "
            f"{MAX_GROWTH} times is refused. Choose another model."
        )


def _growth(step: dict[str, Any]) -> float:
    """Return the largest factor by which a step of a normalizer can lengthen a text."""
    if step["type"] == "Replace":  # a regular expression can match a single character
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
        return list(encoded["input_ids"])

    def fixed_length(self, _text: str) -> int:
        return 0

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
    """A tokenizer that puts BOS before texts that do not begin with it already (`--add-bos`).

    Texts that are tokenised without special tokens stay unchanged.
    """

    def __init__(self, tokenizer: TextTokenizer, bos: int) -> None:
        self._tokenizer, self._bos = tokenizer, bos
        self.pieces, self.texts, self.control_tokens = tokenizer.pieces, tokenizer.texts, tokenizer.control_tokens
        self.fixed_length = tokenizer.fixed_length

    def token_ids(self, texts: Sequence[str], *, special_tokens: bool) -> list[list[int]]:
        rows = self._tokenizer.token_ids(texts, special_tokens=special_tokens)
        return [row if row[:1] == [self._bos] else [self._bos, *row] for row in rows] if special_tokens else rows
