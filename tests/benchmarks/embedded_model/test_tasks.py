"""The sequences the embedded model learns from: what stands in them and what of it is learned."""

import numpy as np
import pytest
from tokenizers import Tokenizer

from benchmarks.embedded_model import tasks
from benchmarks.embedded_model.rows import LabelledTexts
from benchmarks.embedded_model.tasks import TaskSequences
from benchmarks.embedded_model.tokenized import tokenized
from benchmarks.embedded_model.tokenizer import train_tokenizer
from benchmarks.embedded_model.words import SYMBOLS
from evaluator.datasets import SOURCES
from evaluator.datasets.staicc import load_staicc
from evaluator.models.embedded.llama import BOS_ID, EOS_ID

LENGTH = 256
STEP = 7


@pytest.fixture(scope="module")
def rows() -> list[LabelledTexts]:
    """The first four hundred demonstrations of three datasets."""
    datasets = [load_staicc(name) for name in ("trec", "glue_sst2", "sst5")]
    return [
        LabelledTexts(
            dataset=dataset,
            texts=dataset.demonstration["texts"].list.first().head(400).to_list(),
            gold=dataset.demonstration["gold"].head(400).to_list(),
        )
        for dataset in datasets
    ]


@pytest.fixture(scope="module")
def tokenizer(rows) -> Tokenizer:
    return train_tokenizer(rows)


@pytest.fixture
def sequences(rows, tokenizer) -> TaskSequences:
    return TaskSequences(tokenized(rows, tokenizer), tokenizer, length=LENGTH, seed=5)


def only(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(tasks, "SHARES", {name: float(name == kind) for name in tasks.SHARES})


def label_words(tokenizer: Tokenizer, batch: tasks.Sequences) -> list[list[str]]:
    """The learned labels of each sequence, as text."""
    return [
        [tokenizer.decode([token]) for token in tokens[labels]]
        for tokens, labels in zip(batch.token_ids, batch.is_label, strict=True)
    ]


def test_a_step_is_the_same_whatever_was_drawn_before_it(rows, tokenizer, sequences):
    sequences.batch(1, 4)
    fresh = TaskSequences(tokenized(rows, tokenizer), tokenizer, length=LENGTH, seed=5)
    assert (sequences.batch(STEP, 4).token_ids == fresh.batch(STEP, 4).token_ids).all()
    assert (sequences.batch(STEP, 4).token_ids != sequences.batch(STEP + 1, 4).token_ids).any()


def test_a_sequence_is_full_and_begins_with_bos(sequences):
    batch = sequences.batch(STEP, 32)
    assert (batch.token_ids[:, 0] == BOS_ID).all()
    assert (batch.token_ids[:, 1:] > EOS_ID).all()
    assert not (batch.is_label & batch.is_text).any()
    assert (batch.is_label | batch.is_text)[:, 1:].mean() > 0.9  # the rest are label words nothing can tell yet


@pytest.mark.parametrize("kind", ["natural", "exchanged"])
def test_label_names_are_learned_at_every_position(sequences, tokenizer, monkeypatch, kind):
    only(monkeypatch, kind)
    names = {name for dataset in SOURCES for name in load_staicc(dataset).verbalizer.label_names}
    for words in label_words(tokenizer, sequences.batch(STEP, 16)):
        assert len(words) >= 3
        assert set(words) <= names


@pytest.mark.parametrize("kind", ["symbolic", "mixed"])
def test_a_word_without_meaning_is_learned_only_after_its_first_occurrence(sequences, tokenizer, monkeypatch, kind):
    only(monkeypatch, kind)
    batch = sequences.batch(STEP, 16)
    for tokens, labels in zip(batch.token_ids, batch.is_label, strict=True):
        places = np.flatnonzero(labels)
        assert all(tokens[place] in tokens[:place] for place in places)
        assert {tokenizer.decode([tokens[place]]) for place in places} <= set(SYMBOLS)


def test_natural_labels_are_those_of_the_texts(rows, sequences, tokenizer, monkeypatch):
    only(monkeypatch, "natural")
    monkeypatch.setattr(tasks, "TOKEN_DROPOUTS", (0.0,))
    monkeypatch.setattr(tasks, "OWN_TEMPLATE", 1.0)
    own = {
        " ".join(text.lower().split()): of_dataset.dataset.verbalizer.label_names[gold]
        for of_dataset in rows
        for text, gold in zip(of_dataset.texts, of_dataset.gold, strict=True)
    }
    checked = 0
    for tokens in sequences.batch(STEP, 8).token_ids:
        for line in tokenizer.decode(tokens.tolist()).split("\n")[:-1]:  # the last one is cut
            text, label = line.split(": ", 1)[1].rsplit(": ", 1)
            text = " ".join(text.rsplit(" ", 1)[0].split())  # without the label prefix's word
            assert own[text] == label
            checked += 1
    assert checked > 20


def test_exchanged_labels_are_the_same_for_all_texts_of_a_class(rows, sequences, tokenizer, monkeypatch):
    only(monkeypatch, "exchanged")
    monkeypatch.setattr(tasks, "TOKEN_DROPOUTS", (0.0,))
    monkeypatch.setattr(tasks, "OWN_TEMPLATE", 1.0)
    own = {
        " ".join(text.lower().split()): gold
        for of_dataset in rows
        for text, gold in zip(of_dataset.texts, of_dataset.gold, strict=True)
    }
    exchanged = 0
    for tokens in sequences.batch(STEP, 16).token_ids:
        shown: dict[int, str] = {}
        for line in tokenizer.decode(tokens.tolist()).split("\n")[:-1]:
            text, label = line.split(": ", 1)[1].rsplit(": ", 1)
            gold = own[" ".join(text.rsplit(" ", 1)[0].split())]
            assert shown.setdefault(gold, label) == label
        exchanged += len(set(shown.values())) == len(shown) > 1
    assert exchanged > 8
