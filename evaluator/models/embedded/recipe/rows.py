"""The rows that the embedded model may learn from: none whose text stands in a calibration or test split.

Datasets share sentences (SST-2's are phrases of SST-5's, which are rotten_tomatoes' too), so a row is kept only if its
text neither holds nor lies within the text of any held-out row of any dataset.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.staicc import load_staicc, source_table
from evaluator.datasets.staicc_sources import SOURCES

SHORTEST_OVERLAP = 4
"""Words that two texts must share from end to end of the shorter one to count as the same text. Shorter texts count
only if they are equal: "a good film" lies within many sentences and gives none of them away."""
LONGEST_TEXT = 400
"""Characters. Longer rows are left out, so that a sequence holds more than a few examples."""

Row = tuple[str, int]
"""A text and its label index."""

Words = tuple[str, ...]

_WORD = re.compile(r"[^\W_]+")


DEVELOPMENT_ROWS = 256
"""At most so many rows of a dataset, and at most a twentieth, are set aside to watch the training on."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelledTexts:
    """Some rows of a dataset."""

    dataset: ClassificationDataset
    texts: list[str]
    gold: list[int]


class RecipeRows(NamedTuple):
    """The rows of each dataset, in the datasets' order: to learn from, and to watch the learning on."""

    training: list[LabelledTexts]
    development: list[LabelledTexts]


def recipe_rows(*, seed: int) -> RecipeRows:
    """All rows that overlap with no held-out text, shuffled; no training row overlaps with a development row either."""
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
    watched = Texts(text for rows in development for text, _ in rows)
    training = [
        [(text, gold) for text, gold in rows[n:] if text not in watched]
        for rows, n in zip(drawn, n_development, strict=True)
    ]
    return RecipeRows(
        training=[_labelled(dataset, rows) for dataset, rows in zip(datasets, training, strict=True)],
        development=[_labelled(dataset, rows) for dataset, rows in zip(datasets, development, strict=True)],
    )


def _usable_rows(dataset: ClassificationDataset, held_out: "Texts") -> list[Row]:
    table = source_table(dataset.name)
    rows = zip(table["texts"].to_pylist(), table["gold"].to_pylist(), strict=True)
    return [(text, gold) for (text,), gold in rows if len(text) <= LONGEST_TEXT and text not in held_out]


def _shuffled(rows: list[Row], random: np.random.Generator) -> list[Row]:
    return [rows[place] for place in random.permutation(len(rows))]


def _labelled(dataset: ClassificationDataset, rows: list[Row]) -> LabelledTexts:
    return LabelledTexts(dataset=dataset, texts=[text for text, _ in rows], gold=[gold for _, gold in rows])


def words_of(text: str) -> Words:
    """A text as the words it consists of: case, spaces and punctuation do not tell two texts apart."""
    return tuple(_WORD.findall(text.lower()))


class Texts:
    """Texts set aside; `text in these` is true if one of them holds it or lies within it."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = {words_of(text) for text in texts}
        self._parts = defaultdict[Words, list[tuple[Words, int]]](list)  # words in a row -> texts with them, and where
        for words in self._texts:
            for start, part in enumerate(_parts(words)):
                self._parts[part].append((words, start))

    def __contains__(self, text: str) -> bool:
        words = words_of(text)
        return words in self._texts or self._lies_within_one(words) or self._holds_one(words)

    def _lies_within_one(self, words: Words) -> bool:
        places = self._parts.get(words[:SHORTEST_OVERLAP], ())
        return any(held_out[start : start + len(words)] == words for held_out, start in places)

    def _holds_one(self, words: Words) -> bool:
        return any(
            words[start : start + len(held_out)] == held_out
            for start, part in enumerate(_parts(words))
            if part in self._parts
            for held_out, at in self._parts[part]
            if at == 0
        )


def _parts(words: Words) -> Iterable[Words]:
    """SHORTEST_OVERLAP words in a row, from every place on."""
    return zip(*(words[skipped:] for skipped in range(SHORTEST_OVERLAP)), strict=False)
