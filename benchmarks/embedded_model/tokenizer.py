"""Train the tokenizer of the embedded model: lower-case, byte-level BPE; a space belongs to the word before it.

A prompt ends in a space, which the label follows. In most tokenizers a space belongs to the next word, so this last
space is a separate token that does not occur in demonstrations. Here "topic: " and "sports" are the same tokens in
demonstrations and in the query.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path

from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

from benchmarks.embedded_model.rows import LabelledTexts
from benchmarks.embedded_model.settings import VOCABULARY
from benchmarks.embedded_model.words import SYMBOLS, TEMPLATE_WORDS
from evaluator.datasets.base import ClassificationDataset
from evaluator.models.embedded.llama import byte_level_tokenizer

TEXTS_PER_DATASET = 20_000
REPEATS = 1_000
"""Number of times that a word which must become one token occurs in the training texts."""
WORD_AND_ITS_SPACE = r"[\p{L}\p{M}]+ ?|\p{N} ?|[^\s\p{L}\p{M}\p{N}]+ ?|\s+"


def train_tokenizer(rows: Sequence[LabelledTexts]) -> Tokenizer:
    """Train a tokenizer of VOCABULARY tokens that puts BOS before every text."""
    words = pre_tokenizers.Split(Regex(WORD_AND_ITS_SPACE), "isolated")
    in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return byte_level_tokenizer(
        _texts(rows),
        vocab_size=VOCABULARY,
        normalizer=normalizers.Lowercase(),
        pre_tokenizer=pre_tokenizers.Sequence([words, in_bytes]),
    )


def compact_tokenizer(folder: Path) -> None:
    """Rewrite tokenizer.json without line breaks and indentation, which are more than half of its size."""
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()), ensure_ascii=False, separators=(",", ":")))


def _texts(rows: Sequence[LabelledTexts]) -> Iterator[str]:
    for labelled in rows:
        yield from labelled.texts[:TEXTS_PER_DATASET]
        yield from _repeated(_words_of_template(labelled.dataset))
    yield from _repeated(TEMPLATE_WORDS)
    yield from _repeated(SYMBOLS)


def _words_of_template(dataset: ClassificationDataset) -> list[str]:
    return [*dataset.template.input_prefixes, dataset.template.label_prefix, *dataset.verbalizer.label_names]


def _repeated(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        yield from repeat(word, REPEATS)
