"""What the embedded model was trained on holds nothing of what it is tested on."""

import re
from collections.abc import Iterator

import pytest

from benchmarks.embedded_model import rows as recipe
from benchmarks.embedded_model.rows import RecipeRows, Texts, recipe_rows, words_of
from evaluator.datasets import SOURCES
from evaluator.datasets.staicc import load_staicc

SHARING = ("glue_sst2", "rotten_tomatoes", "sst5")  # sentences of one are in another


@pytest.fixture(scope="module", params=[(*SHARING, "trec"), pytest.param((*SOURCES,), marks=pytest.mark.exhaustive)])
def rows(request: pytest.FixtureRequest) -> Iterator[RecipeRows]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipe, "SOURCES", request.param)
        yield recipe_rows(seed=0)


def held_out_texts() -> Iterator[str]:
    for name in recipe.SOURCES:
        dataset = load_staicc(name)
        for split in (dataset.calibration, dataset.test):
            yield from split["texts"].list.first()


def letters(text: str) -> str:
    return re.sub(r"[\W_]+", " ", text.lower()).strip()


@pytest.mark.slow
def test_no_training_text_is_a_calibration_or_test_text_of_any_dataset(rows):
    # A test text of one dataset must not be learned through another.
    held_out = {letters(text) for text in held_out_texts()}
    for of_dataset in (*rows.training, *rows.development):
        assert not held_out & {letters(text) for text in of_dataset.texts}, of_dataset.dataset.name


@pytest.mark.slow
def test_no_training_text_is_part_of_a_test_sentence_of_datasets_that_share_sentences(rows):
    tests = " | ".join(letters(text) for name in SHARING for text in load_staicc(name).test["texts"].list.first())
    tests = f" {tests} "
    for of_dataset in rows.training:
        if of_dataset.dataset.name in SHARING:
            long = [letters(text) for text in of_dataset.texts if len(letters(text).split()) >= 4]
            assert long
            assert not [text for text in long if f" {text} " in tests]


@pytest.mark.slow
def test_every_dataset_and_label_has_training_and_development_rows(rows):
    for training, development in zip(*rows, strict=True):
        assert set(training.gold) == set(range(len(training.dataset.verbalizer.label_names)))
        assert len(development.texts) >= 30
        assert len(training.texts) > len(development.texts)


def test_texts_overlap_if_one_contains_the_other():
    held_out = Texts(["A truly funny film, after all.", "short one"])
    assert "a truly FUNNY film after all" in held_out  # case and punctuation aside
    assert "truly funny film, after" in held_out  # four words of it
    assert "I say: a truly funny film after all!" in held_out  # all of it and more
    assert "short one" in held_out


def test_texts_of_few_words_overlap_only_if_equal():
    held_out = Texts(["A truly funny film, after all.", "short one"])
    assert "funny film" not in held_out
    assert "a short one again" not in held_out
    assert "truly sad film after" not in held_out


def test_words_are_letters_and_digits_alone():
    assert words_of("It's -- 3.5 (three_and) a half!") == ("it", "s", "3", "5", "three", "and", "a", "half")
