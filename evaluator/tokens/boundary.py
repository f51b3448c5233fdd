"""Tokenise prompts and labels, and decide where a label begins.

The boundary is a choice, because merges of a tokenizer can cross it. `separate` tokenises prompt and label separately,
as the StaICC toolkit does and as every published StaICC number was computed: after "sentiment: " the label follows a
separate space token. `merged` tokenises the whole string, as a model sees it in running text: the space becomes part of
the label's first token.

The module also compares prompts with the decoded text of their tokens, and reports control tokens inside texts and
texts that a tokenizer changes.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Literal, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from evaluator.arrays import arrow_lists
from evaluator.config import LabelBoundary
from evaluator.errors import LabelError, ModelError
from evaluator.schemas import Ask
from evaluator.tokens.tokenizer import TextTokenizer


class PromptTokens(NamedTuple):
    """Tokens of prompts and their continuations, one row per prompt."""

    contexts: pa.LargeListArray  # list<int32>; no context is empty
    continuations: pa.LargeListArray  # list<list<int32>>; no continuation is empty, and no two of a prompt are equal


def tokenise_prompts(
    tokenizer: TextTokenizer,
    prompts: Sequence[str],
    asks: Sequence[Ask],
    continuations: Sequence[Sequence[str]],
    boundary: LabelBoundary,
    *,
    special_tokens: bool = True,
) -> PromptTokens:
    """Tokenise each prompt with the continuations to score after it.

    Under `separate`, prompt (with BOS if the tokenizer adds it) and continuation are tokenised separately. Under
    `merged`, each prompt + continuation is tokenised as one string. The context is the longest token prefix that these
    strings and the bare prompt share, so that a beginning shared by all labels is still scored; a continuation is the
    remaining tokens. Under both, a prompt with ask "text" has its first token as the context and the other tokens as
    the continuation; a prompt with ask "state" is a context without continuations.

    An EOS that the tokenizer appends is dropped, because a new text would begin after it.

    Args:
        tokenizer: tokenizer of the model.
        prompts, asks, continuations: one entry per prompt.
        boundary: where a label begins.
        special_tokens: whether the tokenizer puts BOS before a text; False if a chat template has written BOS.

    Raises:
        LabelError: a continuation without tokens, two continuations of a prompt with equal tokens, an empty context, or
            a text of a single token.
        ModelError: it is unclear which tokens the tokenizer adds to a text.
    """
    tokenize = _tokenise_separately if boundary == "separate" else _tokenise_merged
    n_appended = tokens_around(tokenizer)[1] if special_tokens else 0

    def as_text(texts: Sequence[str]) -> list[list[int]]:
        rows = tokenizer.token_ids(texts, special_tokens=special_tokens)
        return [row[:-n_appended] for row in rows] if n_appended else rows

    contexts, rests = tokenize(tokenizer, as_text, prompts, continuations)
    for row, (prompt, ask) in enumerate(zip(prompts, asks, strict=True)):
        if ask == "text":
            whole = contexts[row]
            if len(whole) < 2:
                raise LabelError(f"The text {prompt[:60]!r} is one token, so it has no likelihood. Make it longer.")
            contexts[row], rests[row] = whole[:1], [whole[1:]]
    every_rest = _token_lists([tokens for row in rests for tokens in row])
    return PromptTokens(_token_lists(contexts), arrow_lists(every_rest, map(len, rests)))


def _token_lists(rows: Sequence[Sequence[int]]) -> pa.LargeListArray:
    tokens = np.fromiter(chain.from_iterable(rows), np.int32)
    return arrow_lists(pl.Series(tokens).to_arrow(), map(len, rows))


Tokenize = Callable[[Sequence[str]], list[list[int]]]
ContextsAndContinuations = tuple[list[list[int]], list[list[list[int]]]]
"""Contexts and continuations, one entry per prompt."""


def tokens_around(tokenizer: TextTokenizer) -> tuple[int, int]:
    """Return the numbers of tokens that a tokenizer puts in front of a text (BOS) and appends to it (EOS).

    Raises ModelError if the tokens of a text do not contain the tokens of the same text without special tokens.
    """
    # Find the tokens of "a" within the tokens of "a" with special tokens.
    (bare,) = tokenizer.token_ids(["a"], special_tokens=False)
    (whole,) = tokenizer.token_ids(["a"], special_tokens=True)
    n_before = next((i for i in range(len(whole)) if whole[i : i + len(bare)] == bare), None)
    if n_before is None or (whole and not bare):  # a tokenizer may drop a letter it does not know
        raise ModelError(
            f"The tokenizer turns 'a' into {bare} but the text 'a' into {whole}: unclear where a text begins."
        )
    return n_before, len(whole) - n_before - len(bare)


def _tokenise_separately(
    tokenizer: TextTokenizer, as_text: Tokenize, prompts: Sequence[str], continuations: Sequence[Sequence[str]]
) -> ContextsAndContinuations:
    # Equal continuations are tokenised once, and equal label spaces are looked up once.
    texts = list(dict.fromkeys(chain.from_iterable(continuations)))
    contexts, ids = as_text(prompts), tokenizer.token_ids(texts, special_tokens=False)
    _refuse_empty_contexts(prompts, contexts)
    tokens = dict(zip(texts, ids, strict=True))
    spaces = {tuple(space): [tokens[text] for text in space] for space in continuations}
    for space, space_tokens in spaces.items():
        _refuse_indistinct(space, space_tokens, "")
    return contexts, [spaces[tuple(space)] for space in continuations]


def _tokenise_merged(
    tokenizer: TextTokenizer, as_text: Tokenize, prompts: Sequence[str], continuations: Sequence[Sequence[str]]
) -> ContextsAndContinuations:
    # With each label only the end of a prompt is tokenised again, from the last place that no token can cross.
    lengths = list(map(tokenizer.fixed_length, prompts))
    starts = as_text([prompt[:length] for prompt, length in zip(prompts, lengths, strict=True)])
    ends = [
        [prompt[length:] + label for label in ("", *space)]
        for prompt, length, space in zip(prompts, lengths, continuations, strict=True)
    ]
    # One call for all texts of a kind, because FastTokenizer tokenises repeated lines of a call only once.
    after_start, whole = (
        [text for length, texts in zip(lengths, ends, strict=True) if bool(length) == has_start for text in texts]
        for has_start in (True, False)
    )
    left = {True: iter(tokenizer.token_ids(after_start, special_tokens=False)), False: iter(as_text(whole))}
    contexts, rests = list[list[int]](), list[list[list[int]]]()
    for length, start, texts in zip(lengths, starts, ends, strict=True):
        rows = list(islice(left[bool(length)], len(texts)))
        # A prefix that the lexicographically first and last rows share is shared by all rows between them.
        n = n_shared(min(rows), max(rows))
        contexts.append([*(start if length else []), *rows[0][:n]])
        rests.append([row[n:] for row in rows[1:]])
    _refuse_empty_contexts(prompts, contexts)
    for prompt, space, rest in zip(prompts, continuations, rests, strict=True):
        _refuse_indistinct(space, rest, prompt)
    return contexts, rests


def n_shared(a: Sequence[object], b: Sequence[object]) -> int:
    """Return the number of leading tokens or characters that two sequences share."""
    for n, (one, other) in enumerate(zip(a, b, strict=False)):
        if one != other:
            return n
    return min(len(a), len(b))


def _refuse_empty_contexts(prompts: Sequence[str], contexts: Sequence[Sequence[int]]) -> None:
    for prompt, context in zip(prompts, contexts, strict=True):
        if not context:
            raise LabelError(
                f"Prompt {prompt[:60]!r} has no token before its labels, so nothing can be scored after it: it is "
                "empty and the tokenizer adds no BOS. Give it an instruction or demonstrations, or choose another "
                "model."
            )


def _refuse_indistinct(texts: Sequence[str], tokens: Sequence[Sequence[int]], prompt: str) -> None:
    after = f" after the prompt that ends {prompt[-60:]!r}" if prompt else ""
    seen: dict[tuple[int, ...], str] = {}
    for text, ids in zip(texts, tokens, strict=True):
        if not ids:
            raise LabelError(
                f"Label {text!r} of {list(texts)} has no tokens{after}, so it cannot be scored. "
                "Choose other label names (--labels).",
                texts,
            )
        if tuple(ids) in seen:
            raise LabelError(
                f"Labels {seen[tuple(ids)]!r} and {text!r} of {list(texts)} tokenise identically{after}, so no score "
                "can tell them apart. Choose other label names (--labels), or another --label-boundary.",
                texts,
            )
        seen[tuple(ids)] = text


_AROUND_MARKS = re.compile(r"\s*(<[^<>\s]+>|\[[^\[\]\s]+\])\s*")
"""A control token with the white space around it: some tokenizers drop this white space, others add a space."""

SHOWN = 24  # number of characters to show before (and after) the place of a fault


@dataclass(frozen=True, kw_only=True)
class TextFault:
    """A difference between texts and their tokens, with the first prompt that has it."""

    kind: Literal["control token", "label", "prompt"]  # the part that differs; "control token": a text contains one
    n_prompts: int = 1  # number of prompts with such a difference
    written: str  # the prompt's text at the first difference, and a few characters before it
    read: str  # the decoded text of the tokens at the same place; for a control token, its text
    tokens: list[str]  # tokens of the label, or the control token; empty for a prompt


class TextFaults:
    """Collects the first fault of each kind among prompts that are added in batches, and the number of such prompts.

    A tokenizer may lower-case a text, drop characters, replace them by its unknown token, or put a space before a label
    that is tokenised separately: the decoded text of the tokens then differs from the text of the prompt.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._control = tokenizer.control_tokens
        self._spaces: dict[int, bool] = {}  # hash of a compared label space -> whether any label differs
        self._first: dict[str, TextFault] = {}  # kind -> its first fault
        self._n_prompts = Counter[str]()  # kind -> number of prompts

    @property
    def found(self) -> list[TextFault]:
        """Return the first fault of each kind."""
        return [replace(fault, n_prompts=self._n_prompts[kind]) for kind, fault in self._first.items()]

    def add(
        self,
        prompts: pl.DataFrame,
        texts: Sequence[str],
        continuations: Sequence[Sequence[str]],
        rows: PromptTokens,
        n_front: int,
    ) -> None:
        """Compare prompts with their tokens.

        Args:
            prompts: schemas.PROMPTS.
            texts, continuations: the tokenised texts and continuations of the prompts, rendered with the chat template
                if there is one.
            rows: tokens of `texts` and `continuations`.
            n_front: number of tokens that the tokenizer has put before each text.
        """
        self._add_control_tokens(prompts)
        contexts, rests = rows.contexts.to_pylist(), rows.continuations.to_pylist()
        spaces = [hash((*labels, *map(tuple, tokens))) for labels, tokens in zip(continuations, rests, strict=True)]
        compared: list[tuple[int, str, list[int]]] = []  # (index of a prompt, label after it, tokens of the label)
        for number, (space, labels, tokens) in enumerate(zip(spaces, continuations, rests, strict=True)):
            # After the first prompt with a label space all of its labels are compared, after others the first label
            # only. A prompt without labels is compared alone.
            n_compared = 1 if space in self._spaces else None
            pairs = zip(labels or [""], tokens or [[]], strict=True)
            compared += [(number, *pair) for pair in islice(pairs, n_compared)]
            self._spaces.setdefault(space, False)
        texts_read = self._tokenizer.texts([[*contexts[number][n_front:], *ids] for number, _, ids in compared])
        faulty = set[tuple[str, int]]()  # (kind, prompt): a prompt counts once, however many of its labels differ
        for (number, label, label_ids), read in zip(compared, texts_read, strict=False):
            if (fault := self._difference(texts[number], label, label_ids, read)) is not None:
                self._first.setdefault(fault.kind, fault)
                faulty.add((fault.kind, number))
                self._spaces[spaces[number]] |= fault.kind == "label"
        # A differing label counts for all prompts with its label space, also where it was not compared.
        faulty |= {("label", number) for number, space in enumerate(spaces) if self._spaces[space]}
        self._n_prompts.update(kind for kind, _ in faulty)

    def _add_control_tokens(self, prompts: pl.DataFrame) -> None:
        """Record prompts whose text or labels, before any chat template, contain control tokens."""
        if not self._control:
            return
        whole = pl.concat_str("prompt", pl.col("continuations").list.join("\n"), separator="\n")
        marks = [*self._control.values()]
        suspects = prompts.filter(whole.str.contains_any(marks, ascii_case_insensitive=True)).select(whole)
        texts = suspects.to_series().to_list()
        for text, ids in zip(texts, self._tokenizer.token_ids(texts, special_tokens=False), strict=True):
            inside = next((token for token in ids if token in self._control), None)
            if inside is not None:
                mark = self._control[inside]
                place = max(text.casefold().find(mark.casefold()), 0)
                around = text[max(place - SHOWN, 0) : place + len(mark)]
                fault = TextFault(kind="control token", written=around, read=mark, tokens=[mark])
                self._first.setdefault(fault.kind, fault)
                self._n_prompts[fault.kind] += 1

    def _difference(self, text: str, label: str, label_ids: Sequence[int], read: str) -> TextFault | None:
        """Return the difference between a prompt and the decoded text of its tokens; None if there is none.

        A space that the tokenizer puts before a text, and white space around control tokens, are no differences.

        Args:
            text: text of the prompt.
            label: label after the prompt; "" if there is none.
            label_ids: tokens of the label.
            read: decoded text of the tokens of prompt and label.
        """
        written = text + label
        if read == written:
            return None
        if not written.startswith(" "):
            read = read.removeprefix(" ")  # some tokenizers begin every text with a space
        if label:
            before = read.removesuffix(label)
            gains_space = len(before) - len(before.rstrip()) > len(text) - len(text.rstrip())
            if gains_space or not read.endswith(label):
                start = max(n_shared(written, read) - SHOWN, 0)
                pieces = self._tokenizer.pieces(label_ids)
                return TextFault(kind="label", written=written[start:], read=read[start:], tokens=pieces)
        written, read = (_AROUND_MARKS.sub(r"\1", each) for each in (written, read))
        if written == read:
            return None
        place = n_shared(written, read)
        part = slice(max(place - SHOWN, 0), place + SHOWN)
        return TextFault(kind="prompt", written=written[part], read=read[part], tokens=[])
