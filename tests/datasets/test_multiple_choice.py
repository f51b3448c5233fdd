import numpy as np
import polars as pl
import pytest

from evaluator.datasets import SOURCES
from evaluator.datasets.base import CHOICE_EXAMPLES
from evaluator.datasets.conversions import as_multiple_choice
from evaluator.datasets.multiple_choice import ChoiceRow, choice_examples, correct_of_scores
from evaluator.datasets.staicc import load_staicc
from evaluator.errors import DatasetError
from evaluator.prompts.rows import PromptPlan, requests


def row(number=0, **changes):
    fields = {"row": number, "example_id": f"e{number}", "input": "2 + 2?", "choices": ["4", "5"], "correct": [0]}
    return ChoiceRow(**(fields | changes))


def test_examples_keep_their_own_numbers_of_choices_and_their_order():
    rows = [row(0), row(1, choices=["a", "b", "c"], correct=[1, 2])]
    examples, notes = choice_examples(rows, "file")
    assert examples.schema == CHOICE_EXAMPLES
    assert examples["choices"].to_list() == [["4", "5"], ["a", "b", "c"]]
    assert examples["correct"].to_list() == [[0], [1, 2]]
    assert notes == []


def test_the_shown_order_is_a_permutation_that_depends_on_the_example_alone():
    choices = [f"choice {n}" for n in range(8)]
    alone, _ = choice_examples([row(0, choices=choices)], "file")
    reversed_list, _ = choice_examples([row(0), row(1, choices=choices[::-1])], "file")
    assert sorted(alone["shown_choices"][0]) == choices
    assert alone["shown_choices"][0].to_list() == reversed_list["shown_choices"][1].to_list()
    assert alone["shown_choices"][0].to_list() != choices


def test_the_correct_choice_is_shown_at_every_place_about_equally_often():
    # 400 examples whose first choice is right; 4 places of expected count 100, and a binomial of deviation 8.7.
    rows = [row(n, input=f"question {n}", choices=["w", "x", "y", "z"]) for n in range(400)]
    examples, _ = choice_examples(rows, "file")
    places = [shown.index("w") for shown in examples["shown_choices"].to_list()]
    assert np.bincount(places, minlength=4).min() > 100 - 4 * 8.7
    assert np.bincount(places, minlength=4).max() < 100 + 4 * 8.7


def test_a_repeated_choice_counts_once_and_is_noted():
    examples, notes = choice_examples([row(0, choices=["5", "4", "5"], correct=[1]), row(1)], "file")
    assert examples["choices"][0].to_list() == ["5", "4"]
    assert examples["correct"][0].to_list() == [1]
    assert notes == ["examples that repeat a choice, which counts once: 1"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row(0), row(1, example_id="e0")], r"file, row 1 .*'e0' is used in row 0 as well"),
        ([row(3, example_id="")], "file, row 3 .*has no id"),
        ([row(3, input=None)], "file, row 3 .*input is missing"),
        ([row(3, choices=["4", " "])], "file, row 3 .*choice 1 .*missing or blank"),
        ([row(3, choices=["4", None])], "file, row 3 .*choice 1 .*missing or blank"),
        ([row(3, choices=["4"])], "file, row 3 .*needs two choices or more"),
        ([row(3, choices=["4", "4"], correct=[0, 1])], "file, row 3 .*needs two choices or more"),
        ([row(3, correct=[])], r"file, row 3 .*no choice of \['4', '5'\] is correct"),
        ([row(3, correct=[2])], "file, row 3 .*number 2, but there are 2 choices"),
        ([row(3, correct=[0, 1])], "file, row 3 .*every one of the choices"),
        ([row(3, choices=["4", "5", "4"], correct=[0])], "'4' occurs twice, once as correct and once as wrong"),
        ([], "file holds no examples"),
    ],
)
def test_what_cannot_be_scored_is_refused_with_its_file_and_row(rows, message):
    with pytest.raises(DatasetError, match=message):
        choice_examples(rows, "file")


@pytest.mark.parametrize(
    ("scores", "correct"),
    [([0, 1, 0], [1]), ([1, 1, 0], [0, 1]), ([0.5, 1, 0], [1]), ([0.5, 0], [0]), ([0, 0], []), ([-1, -2], [])],
)
def test_the_choices_of_the_highest_score_above_0_are_correct(scores, correct):
    assert correct_of_scores(scores, len(scores), "file, row 0") == correct


def test_a_classification_dataset_reads_the_same_as_in_its_own_suite():
    dataset = load_staicc("trec")
    choices = as_multiple_choice(dataset)
    demonstrations, queries = choices.demonstrations, choices.examples
    template = choices.template
    ids = np.array([[7, 3]])
    shown = demonstrations[ids[0]].select(
        template.demonstration(
            pl.col("input"), pl.col("shown_choices"), pl.col("choices").list.get(pl.col("correct").list.first())
        )
    )
    asked = queries[:1].select(template.inputs(pl.col("input"), pl.col("shown_choices"))).item()
    ours = "".join(shown.to_series().to_list()) + asked + " "
    # The toolkit's prompt ends in the space that belongs to the choice here.
    query = np.array([0])
    plan = PromptPlan(demonstration_set=query, query_id=query, demonstration_ids=ids)
    assert ours == next(requests(dataset, plan))["prompt"][0]
    assert queries["choices"][0].to_list() == list(dataset.verbalizer.label_names)


@pytest.mark.parametrize("name", list(SOURCES))
def test_every_named_dataset_can_be_searched(name):
    choices = as_multiple_choice(load_staicc(name))
    assert choices.examples.schema == CHOICE_EXAMPLES
    assert choices.examples["correct"].list.len().unique().to_list() == [1]
