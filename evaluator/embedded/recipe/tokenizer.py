"""The embedded model's tokenizer: lower-case, byte-level BPE, every space a part of the word before it.

A prompt ends in a space and its label follows. Where spaces lead words, as usual, that last space is a token of its own
that no demonstration shows; here "topic: " and "sports" are the same tokens in a demonstration and in a query.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from evaluator.datasets.base import ClassificationDataset
from evaluator.embedded.random_llama import BOS, EOS
from evaluator.embedded.recipe.rows import LabelledTexts
from evaluator.embedded.recipe.words import SYMBOLS, TEMPLATE_WORDS

VOCABULARY = 8_192
TEXTS_PER_DATASET = 20_000
REPEATS = 1_000
"""How often each word that must become one token stands among the texts."""
WORD_AND_ITS_SPACE = r"[\p{L}\p{M}]+ ?|\p{N} ?|[^\s\p{L}\p{M}\p{N}]+ ?|\s+"


def train_tokenizer(rows: Sequence[LabelledTexts]) -> Tokenizer:
    """A tokenizer of VOCABULARY tokens; BOS is token 0 and stands before every text, EOS is token 1."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORD_AND_ITS_SPACE), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(rows), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    return tokenizer


def _texts(rows: Sequence[LabelledTexts]) -> Iterator[str]:
    for of_dataset in rows:
        yield from of_dataset.texts[:TEXTS_PER_DATASET]
        yield from _repeated(_words_of_template(of_dataset.dataset))
    yield from _repeated(TEMPLATE_WORDS)
    yield from _repeated(SYMBOLS)


def _words_of_template(dataset: ClassificationDataset) -> list[str]:
    return [*dataset.template.input_prefixes, dataset.template.label_prefix, *dataset.verbalizer.label_names]


def _repeated(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        yield from repeat(word, REPEATS)
