"""Compare prompts with what their tokens say: control tokens inside texts, and texts that a tokenizer changes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal

import polars as pl

from evaluator.tokens.boundary import PromptTokens
from evaluator.tokens.tokenizer import TextTokenizer

_AROUND_MARKS = re.compile(r"\s*(<[^<>\s]+>|\[[^\[\]\s]+\])\s*")
"""White space around control tokens is a template's: some tokenizers drop it there, others add a space."""

SHOWN = 24  # characters of a text before the place of a fault


@dataclass(frozen=True, kw_only=True)
class TextFault:
    """A difference between texts and their tokens, with the first prompt that has it."""

    kind: Literal["control token", "label", "prompt"]  # what differs, or what the text contains
    n_prompts: int
    written: str  # the text at the place, and a little before it
    read: str  # the same as the tokens say; of a control token its text
    tokens: list[str]  # of a label, or the control token


class TextFaults:
    """The first fault of each kind among prompts that are added batch by batch, and the number of such prompts.

    A tokenizer may lower-case a text, drop characters, replace them by its unknown token, or put a space before a label
    that is tokenised alone: the text of the tokens then differs from the text of the prompt.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._control = tokenizer.control_tokens
        self._spaces: dict[int, bool] = {}  # label spaces whose labels were all compared -> whether any differs
        self._found: dict[str, TextFault] = {}

    @property
    def found(self) -> list[TextFault]:
        """Return the first fault of each kind."""
        return [*self._found.values()]

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
            texts, continuations: as they were tokenised, after a chat template if there is one.
            rows: their tokens.
            n_front: tokens that the tokenizer has put in front of each text.
        """
        self._add_control_tokens(prompts)
        asked, ids, spaces, noted = [], [], [], set[tuple[str, int]]()
        contexts, rests = rows.contexts.to_pylist(), rows.continuations.to_pylist()
        for number, (context, labels, tokens) in enumerate(zip(contexts, continuations, rests, strict=True)):
            # All labels of a space are compared once, the first label after every prompt.
            space = hash((*labels, *map(tuple, tokens)))
            spaces.append(space)
            n_compared = 1 if space in self._spaces else max(len(tokens), 1)
            self._spaces.setdefault(space, False)
            for label, label_ids in [*zip_longest(labels, tokens)][:n_compared] or [(None, None)]:
                asked.append((number, label or "", label_ids or []))
                ids.append([*context[n_front:], *(label_ids or [])])
        for (number, label, label_ids), read in zip(asked, self._tokenizer.texts(ids), strict=False):
            if read != texts[number] + label:
                fault = self._difference(texts[number], label, label_ids, read)
                if fault is not None and (fault.kind, number) not in noted:
                    noted.add((fault.kind, number))  # a prompt counts once, whichever of its labels differ
                    self._note(fault)
                    self._spaces[spaces[number]] |= fault.kind == "label"
        for number, space in enumerate(spaces):
            if self._spaces[space] and ("label", number) not in noted:
                self._note(self._found["label"])

    def _add_control_tokens(self, prompts: pl.DataFrame) -> None:
        """Note the prompts whose own texts or labels contain control tokens."""
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
                self._note(TextFault(kind="control token", n_prompts=1, written=around, read=mark, tokens=[mark]))

    def _difference(self, text: str, label: str, label_ids: Sequence[int], read: str) -> TextFault | None:
        """Return how the text of a prompt's tokens differs from the prompt; None where only a template's space does."""
        written = text + label
        if not written.startswith(" "):
            read = read.removeprefix(" ")  # of a tokenizer that begins every text with a space
        if label:
            before = read.removesuffix(label)
            gains_space = len(before) - len(before.rstrip()) > len(text) - len(text.rstrip())
            if gains_space or not read.endswith(label):
                start = max(first_difference(written, read) - SHOWN, 0)
                pieces = self._tokenizer.pieces(label_ids)
                return TextFault(kind="label", n_prompts=1, written=written[start:], read=read[start:], tokens=pieces)
        written, read = (_AROUND_MARKS.sub(r"\1", each) for each in (written, read))
        if written == read:
            return None
        place = first_difference(written, read)
        part = slice(max(place - SHOWN, 0), place + SHOWN)
        return TextFault(kind="prompt", n_prompts=1, written=written[part], read=read[part], tokens=[])

    def _note(self, fault: TextFault) -> None:
        first = self._found.setdefault(fault.kind, replace(fault, n_prompts=0))
        self._found[fault.kind] = replace(first, n_prompts=first.n_prompts + 1)


def first_difference(a: str, b: str) -> int:
    """Return the number of characters that two texts have in common from their beginnings on."""
    places = (place for place, (one, other) in enumerate(zip(a, b, strict=False)) if one != other)
    return next(places, min(len(a), len(b)))
