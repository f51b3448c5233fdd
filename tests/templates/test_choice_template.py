import polars as pl

from evaluator.templates.choice_template import ChoiceTemplate, continuations

EXAMPLES = pl.DataFrame({"input": [" sky? "], "shown": [["blue", "green"]], "choice": ["green"]})


def rendered(template: ChoiceTemplate) -> tuple[str, str]:
    texts, shown = pl.col("input"), pl.col("shown")
    row = EXAMPLES.select(
        template.inputs(texts, shown).alias("query"), template.demonstration(texts, shown, pl.col("choice"))
    )
    return row.row(0)


def test_the_defaults_are_those_of_the_json_task_format():
    query, demonstration = rendered(ChoiceTemplate())
    assert query == "Q:  sky? \n  choice: blue\n  choice: green\nA:"
    assert demonstration == query + " green\n"


def test_choices_are_not_listed_without_a_choice_prefix():
    template = ChoiceTemplate(choice_prefix=None, input_prefix="", output_prefix=" is ", separator="##")
    assert rendered(template) == ("sky?  is", "sky?  is green##")


def test_an_instruction_stands_in_front_with_a_separator_and_none_leaves_nothing():
    assert ChoiceTemplate(instruction="Answer.", separator="\n\n").opening == "Answer.\n\n"
    assert ChoiceTemplate().opening == ""


def test_a_choice_is_scored_with_the_space_before_it():
    assert EXAMPLES.select(continuations(pl.col("shown"))).item().to_list() == [" blue", " green"]
