"""Conversions between labelled datasets and multiple choice, both of which must leave prompts as they are."""

import dataclasses

import polars as pl
import pytest

from evaluator.config import DataOptions
from evaluator.datasets import SOURCES
from evaluator.datasets.base import EXAMPLES, ClassificationDataset, MultipleChoiceDataset
from evaluator.datasets.conversions import as_classification, as_multiple_choice
from evaluator.datasets.multiple_choice import ChoiceRow, choice_examples
from evaluator.datasets.sources import load_datasets
from evaluator.datasets.staicc import load_staicc
from evaluator.errors import DatasetError, TemplateError
from evaluator.templates.template import ChoiceTemplate
from tests.suites.in_context_pvi.pvi_folder import write_folder

YES_NO = ("yes", "no")


def answers(correct=(0, 1) * 10, template=None, inputs=None, **changes) -> MultipleChoiceDataset:
    """Twenty examples with the choices yes and no, listed by every other example the other way round."""
    rows = [
        ChoiceRow(
            n, str(n), f"question {n}" if inputs is None else inputs[n], YES_NO[:: 1 - 2 * (n % 2)], (c ^ (n % 2),)
        )
        for n, c in enumerate(correct)
    ]
    if changes:
        rows[3] = rows[3]._replace(**changes)
    examples, _ = choice_examples(rows, "answers.csv")
    return MultipleChoiceDataset(
        name="answers", examples=examples, template=template or ChoiceTemplate(), source="answers.csv", fingerprint="f"
    )


def labelled_texts(dataset: ClassificationDataset, split: str) -> list[str]:
    """Each example as a demonstration, so with its label."""
    label = dataset.verbalizer.text(pl.col("gold"))
    return getattr(dataset, split).select(dataset.template.demonstration(pl.col("texts"), label)).to_series().to_list()


@pytest.mark.parametrize("name", SOURCES)
def test_there_and_back_again_every_prompt_stays_the_same(name):
    dataset = load_staicc(name)
    again = as_classification(as_multiple_choice(dataset))
    for split in ("demonstration", "test"):
        assert labelled_texts(again, split) == labelled_texts(dataset, split)
        assert getattr(again, split).schema == EXAMPLES
        assert getattr(again, split)["source_row"].equals(getattr(dataset, split)["source_row"])
        assert getattr(again, split)["gold"].equals(getattr(dataset, split)["gold"])
    assert again.verbalizer == dataset.verbalizer
    assert again.calibration.is_empty()


def test_there_and_back_again_no_field_is_lost(tmp_path):
    path = write_folder(tmp_path) / "snli_test.parquet"
    [dataset] = load_datasets((), DataOptions(paths=(path,)))
    assert len(dataset.text_fields) == 2
    assert labelled_texts(as_classification(as_multiple_choice(dataset)), "test") == labelled_texts(dataset, "test")


def test_a_dataset_that_is_already_of_the_kind_is_returned_as_it_is():
    labelled, choices = load_staicc("trec"), answers()
    assert as_classification(labelled) is labelled
    assert as_multiple_choice(choices) is choices


def test_shared_choices_are_the_label_space_in_the_order_of_the_first_example():
    dataset = as_classification(answers(), query_every_row=True)
    assert dataset.verbalizer.label_names == YES_NO
    assert dataset.test["gold"].to_list() == [0, 1] * 10
    assert dataset.test["texts"].list.first().to_list() == [f"question {n}" for n in range(20)]
    assert dataset.demonstration.is_empty()


def test_examples_are_split_as_those_of_a_labelled_table_and_the_record_says_so():
    dataset = as_classification(answers())
    # At least eight of ten rows of a label would be set aside, but never more than half: five.
    assert dataset.demonstration["gold"].value_counts().sort("gold").rows() == [(0, 5), (1, 5)]
    rows = [*dataset.demonstration["source_row"], *dataset.test["source_row"]]
    assert sorted(rows) == list(range(20))
    assert "10 of 20 rows, drawn by label with seed 42" in dataset.notes[0]


@pytest.mark.parametrize(
    "template",
    [
        ChoiceTemplate(),
        ChoiceTemplate(choice_prefix=None),
        ChoiceTemplate(instruction="Answer.", separator="\n\n"),
        ChoiceTemplate(input_prefix="\n", choice_prefix=None, output_prefix=" "),
        ChoiceTemplate(input_prefix="  ", output_prefix="  "),
    ],
)
def test_the_template_gives_the_prompts_of_the_multiple_choice_dataset(template):
    choices = answers(template=template, inputs=[f" question {n}\n" for n in range(20)])
    # The one difference: the choices are listed in the order of the label space.
    examples = choices.examples.with_columns(shown_choices=pl.lit(list(YES_NO)))
    correct = pl.col("choices").list.get(pl.col("correct").list.first())
    expected = examples.select(template.demonstration(pl.col("input"), pl.col("shown_choices"), correct)).to_series()
    dataset = as_classification(choices, query_every_row=True)
    assert labelled_texts(dataset, "test") == expected.to_list()
    assert dataset.template.instruction == template.opening


def test_choices_that_differ_between_examples_are_refused_in_a_sentence_that_says_who_takes_them():
    with pytest.raises(DatasetError) as refused:
        as_classification(answers(choices=("maybe", "no")))
    assert str(refused.value) == (
        "answers: a suite of classification needs the same choices in all examples, but row 0 (from 0) of answers.csv "
        "has ['yes', 'no'] and row 3 has ['maybe', 'no']; use it with a suite of multiple choice."
    )


def test_several_correct_choices_and_a_single_label_are_refused():
    three = ("yes", "no", "maybe")
    rows = [ChoiceRow(n, str(n), "question", three, (0, 1) if n == 2 else (n % 3,)) for n in range(6)]
    examples, _ = choice_examples(rows, "answers.csv")
    with pytest.raises(DatasetError, match=r"needs one correct choice .* but row 2 \(from 0\) of answers\.csv has 2;"):
        as_classification(dataclasses.replace(answers(), examples=examples))
    with pytest.raises(DatasetError, match=r"answers\.csv: all 20 rows have the same label"):
        as_classification(answers(correct=(0,) * 20))


def test_a_template_whose_labels_follow_no_space_is_refused_as_multiple_choice():
    dataset = load_staicc("trec")
    template = dataclasses.replace(dataset.template, label_prefix="label:")
    with pytest.raises(TemplateError, match=r"trec: a suite of multiple choice needs a space before labels"):
        as_multiple_choice(dataclasses.replace(dataset, template=template))


def test_a_dataset_without_demonstrations_takes_them_from_its_examples():
    dataset = load_staicc("trec")
    assert as_multiple_choice(dataset).demonstrations is not None
    bare = dataclasses.replace(dataset, demonstration=dataset.demonstration.clear())
    assert as_multiple_choice(bare).demonstrations is None
