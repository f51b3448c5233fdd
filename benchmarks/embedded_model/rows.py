"""Select the rows on which the embedded model may be trained: no row whose text is in a calibration or test split.

Datasets share sentences (texts of SST-2 are phrases of SST-5, whose sentences are also in rotten_tomatoes). So a row is
kept only if its text neither contains nor is contained in the text of a held-out row of any dataset.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evaluator.datasets import SOURCES
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.staicc import load_staicc, source_table

MIN_OVERLAP_WORDS = 4
"""A text of at least so many words overlaps with every text that contains it. A shorter text overlaps only with an
equal text, because "a good film" is part of many sentences and reveals none of them."""
MAX_CHARACTERS = 400
"""Maximum length of a text. Longer rows are left out, so that a sequence holds more than a few examples."""

Row = tuple[str, int]
"""A text and its label index."""

Words = tuple[str, ...]

_WORD = re.compile(r"[^\W_]+")


DEVELOPMENT_ROWS = 256
"""Maximum number of development rows of a dataset; they are also at most a twentieth of its rows."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledTexts:
    """Texts and label indices of rows of a dataset."""

    dataset: ClassificationDataset
    texts: list[str]
    gold: list[int]


class RecipeRows(NamedTuple):
    """The rows for training and for development, one entry per dataset."""

    training: list[LabelledTexts]
    development: list[LabelledTexts]


def recipe_rows(*, seed: int) -> RecipeRows:
    """Return the rows that overlap with no held-out text, shuffled; training rows overlap with no development row."""
    datasets = [load_staicc(name) for name in SOURCES]
    held_out = Texts(
        text
        for dataset in datasets
        for split in (dataset.calibration, dataset.test)
        for text in split["texts"].list.first()
    )
    random = np.random.default_rng(seed)
    drawn = [_shuffled(_usable_rows(dataset, held_out), random) for dataset in datasets]
    n_development = [min(DEVELOPMENT_ROWS, len(rows) // 20) for rows in drawn]
    development = [rows[:n] for rows, n in zip(drawn, n_development, strict=True)]
    development_texts = Texts(text for rows in development for text, _ in rows)
    training = [
        [(text, gold) for text, gold in rows[n:] if text not in development_texts]
        for rows, n in zip(drawn, n_development, strict=True)
    ]
    return RecipeRows(
        training=[_labelled(dataset, rows) for dataset, rows in zip(datasets, training, strict=True)],
        development=[_labelled(dataset, rows) for dataset, rows in zip(datasets, development, strict=True)],
    )


def _usable_rows(dataset: ClassificationDataset, held_out: "Texts") -> list[Row]:
    table, _ = source_table(dataset.name)
    rows = zip(table["texts"].to_pylist(), table["gold"].to_pylist(), strict=True)
    return [(text, gold) for (text,), gold in rows if len(text) <= MAX_CHARACTERS and text not in held_out]


def _shuffled(rows: list[Row], random: np.random.Generator) -> list[Row]:
    return [rows[place] for place in random.permutation(len(rows))]


def _labelled(dataset: ClassificationDataset, rows: list[Row]) -> LabelledTexts:
    return LabelledTexts(dataset=dataset, texts=[text for text, _ in rows], gold=[gold for _, gold in rows])


def words_of(text: str) -> Words:
    """Return the words of a text in lower case; two texts with equal words count as the same text."""
    return tuple(_WORD.findall(text.lower()))


class Texts:
    """A set of texts; `text in texts` is true if a text of the set contains it or is contained in it."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = {words_of(text) for text in texts}
        # MIN_OVERLAP_WORDS consecutive words -> texts that contain them, with the number of their first word
        self._parts = defaultdict[Words, list[tuple[Words, int]]](list)
        for words in self._texts:
            for start, part in enumerate(_parts(words)):
                self._parts[part].append((words, start))

    def __contains__(self, text: str) -> bool:
        words = words_of(text)
        return words in self._texts or self._is_contained(words) or self._contains_one(words)

    def _is_contained(self, words: Words) -> bool:
        places = self._parts.get(words[:MIN_OVERLAP_WORDS], ())
        return any(held_out[start : start + len(words)] == words for held_out, start in places)

    def _contains_one(self, words: Words) -> bool:
        return any(
            words[start : start + len(held_out)] == held_out
            for start, part in enumerate(_parts(words))
            if part in self._parts
            for held_out, at in self._parts[part]
            if at == 0
        )


def _parts(words: Words) -> Iterable[Words]:
    """Return all sequences of MIN_OVERLAP_WORDS consecutive words."""
    return zip(*(words[skipped:] for skipped in range(MIN_OVERLAP_WORDS)), strict=False)
