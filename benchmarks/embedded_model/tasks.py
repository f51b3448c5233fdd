"""Draw training sequences: examples of one task with their labels, until the sequence is full.

Every label that can be inferred from the preceding tokens is learned, so one sequence trains all numbers of shots at
once. In half of the sequences the label words are permuted or replaced by unrelated words: then the text alone does not
determine the label, and the model must read the demonstrations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from benchmarks.embedded_model.token_embeddings import sampling_shares
from benchmarks.embedded_model.tokenized import TokenizedRows
from benchmarks.embedded_model.words import (
    INPUT_PREFIXES,
    INSTRUCTIONS,
    LABEL_AFFIXES,
    LABEL_PREFIXES,
    SYMBOLS,
)
from evaluator.models.embedded.llama import BOS_ID, EOS_ID
from evaluator.templates.template import MetaTemplate

TOKEN_DROPOUTS = (0.0, 0.0, 0.1, 0.2)
"""Shares of tokens that are dropped from a text; every sequence draws one of them. Small datasets are repeated many
times, and dropout varies their texts."""
OWN_TEMPLATE = 0.6
"""Share of sequences of one dataset that use the template of the dataset."""
SHARES = {"natural": 0.50, "exchanged": 0.25, "symbolic": 0.12, "mixed": 0.13}
"""Shares of kinds of sequences. Natural: the label names of the dataset; exchanged: the same names, permuted among the
labels; symbolic: unrelated words; mixed: unrelated words for labels from several datasets."""
BALANCED = 0.5
"""Share of sequences that draw labels uniformly; others draw labels by their frequency."""
REPEATED = 0.1
"""Share of examples that repeat an earlier text, in all kinds of sequences except natural."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sequences:
    """A batch of training sequences."""

    token_ids: np.ndarray  # int64 [sequences, length], padded with EOS
    is_label: np.ndarray  # bool [sequences, length]: whether the token is a label token to be learned
    is_text: np.ndarray  # bool [sequences, length]: whether it is any other token except BOS and padding


@dataclass(frozen=True, kw_only=True, eq=False)
class _Class:
    """A label of a task, with its texts and its label word."""

    texts: Sequence[np.ndarray]  # token ids of all texts of the dataset
    rows: np.ndarray  # numbers of the texts with this label
    share: float  # probability that an example has this label
    word: np.ndarray  # token ids of the label word


class TaskSequences:
    """Draw training sequences, which depend only on the seed and the number of the step."""

    def __init__(self, rows: Sequence[TokenizedRows], tokenizer: Tokenizer, *, length: int, seed: int) -> None:
        self._rows = rows
        self._tokenizer = tokenizer
        self._length = length
        self._seed = seed
        self._shares = sampling_shares(rows)
        self._ids: dict[str, np.ndarray] = {}

    def batch(self, step: int, n_sequences: int) -> Sequences:
        """Return n_sequences training sequences for one step."""
        self._random = np.random.default_rng([self._seed, step])
        token_ids = np.full((n_sequences, self._length), EOS_ID, np.int64)
        is_label = np.zeros((n_sequences, self._length), bool)
        is_text = np.zeros((n_sequences, self._length), bool)
        for row in range(n_sequences):
            end = 1
            token_ids[row, 0] = BOS_ID
            for part, learned_as_label in self._parts():
                part = part[: self._length - end]
                token_ids[row, end : end + len(part)] = part
                (is_label if learned_as_label else is_text)[row, end : end + len(part)] = True
                end += len(part)
                if end == self._length:
                    break
        return Sequences(token_ids=token_ids, is_label=is_label, is_text=is_text)

    def label_token_ids(self) -> np.ndarray:
        """Return the sorted ids of all tokens that can be a learned label, int64."""
        natural = np.concatenate([rows.label_token_ids for rows in self._rows])
        return np.unique(np.concatenate([natural, *map(self._encoded, SYMBOLS)]))

    def _parts(self) -> Iterator[tuple[np.ndarray, bool]]:
        """Yield an endless sequence in parts: token ids, and whether they are a label to be learned."""
        kind = self._random.choice(list(SHARES), p=list(SHARES.values()))
        if kind == "mixed":
            classes, template = self._mixed_classes(), self._other_template()
        else:
            rows = self._rows[self._random.choice(len(self._rows), p=self._shares)]
            names = list(rows.dataset.verbalizer.label_names)
            if kind == "exchanged":
                self._random.shuffle(names)
            elif kind == "symbolic":
                names = self._symbols(len(names))
            classes = self._classes_of(rows, names)
            uses_own_template = self._random.random() < OWN_TEMPLATE
            template = rows.dataset.template if uses_own_template else self._other_template()
        # Label names of the dataset can be predicted from the first example on, other words only after a demonstration.
        learns_first = kind in ("natural", "exchanged")
        yield from self._examples(template, classes, learns_first=learns_first, repeats=kind != "natural")

    def _examples(
        self, template: MetaTemplate, classes: list[_Class], *, learns_first: bool, repeats: bool
    ) -> Iterator[tuple[np.ndarray, bool]]:
        random = self._random
        label_prefix, label_affix = self._encoded(template.label_prefix), self._encoded(template.label_affix)
        (input_prefix,) = template.input_prefixes
        between = self._encoded(input_prefix)
        dropout = random.choice(TOKEN_DROPOUTS)
        shares = np.array([drawable.share for drawable in classes])
        shown = list[tuple[int, np.ndarray]]()
        seen = set[int]()
        yield self._encoded(template.instruction), False
        while True:
            if repeats and shown and random.random() < REPEATED:
                label, text = shown[random.integers(len(shown))]
            else:
                label = int(random.choice(len(classes), p=shares))
                drawn = classes[label]
                text = drawn.texts[drawn.rows[random.integers(len(drawn.rows))]]
            shown.append((label, text))
            if dropout:
                text = text[random.random(len(text)) >= dropout]
            yield between, False
            yield text, False
            yield label_prefix, False
            yield classes[label].word, learns_first or label in seen
            yield label_affix, False
            seen.add(label)

    def _classes_of(self, rows: TokenizedRows, names: Sequence[str]) -> list[_Class]:
        sizes = np.array([len(label_rows) for label_rows in rows.with_label], dtype=float)
        shares = np.full(len(names), 1 / len(names)) if self._random.random() < BALANCED else sizes / sizes.sum()
        return [
            _Class(texts=rows.token_ids, rows=label_rows, share=share, word=self._encoded(name))
            for label_rows, share, name in zip(rows.with_label, shares, names, strict=True)
        ]

    def _mixed_classes(self) -> list[_Class]:
        n_classes = int(self._random.integers(2, 6))
        words = self._symbols(n_classes)
        candidates = [(rows, label) for rows in self._rows for label in range(rows.n_labels)]
        drawn = self._random.choice(len(candidates), size=n_classes, replace=False)
        return [
            _Class(texts=rows.token_ids, rows=rows.with_label[label], share=1 / n_classes, word=self._encoded(word))
            for (rows, label), word in zip([candidates[index] for index in drawn], words, strict=True)
        ]

    def _symbols(self, n: int) -> list[str]:
        return [str(word) for word in self._random.choice(SYMBOLS, size=n, replace=False)]

    def _other_template(self) -> MetaTemplate:
        return MetaTemplate(
            instruction=self._one_of(INSTRUCTIONS),
            input_prefixes=(self._one_of(INPUT_PREFIXES),),
            input_affixes=(" ",),
            label_prefix=self._one_of(LABEL_PREFIXES),
            label_affix=self._one_of(LABEL_AFFIXES),
        )

    def _one_of(self, texts: Sequence[str]) -> str:
        return texts[int(self._random.integers(len(texts)))]

    def _encoded(self, text: str) -> np.ndarray:
        if text not in self._ids:
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids if text else []
            self._ids[text] = np.array(ids, dtype=np.int64)
        return self._ids[text]
