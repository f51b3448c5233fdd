import polars as pl
import pytest

from evaluator.errors import TemplateError
from evaluator.templates.template import ChoiceTemplate, MetaTemplate, Verbalizer, continuations

ONE_FIELD = MetaTemplate(
    input_prefixes=("review: ",), input_affixes=(" ",), label_prefix="sentiment: ", label_affix="\n"
)
TWO_FIELDS = MetaTemplate(
    instruction="Compare.\n",
    input_prefixes=("premise: ", "claim: "),
    input_affixes=(" | ", " -> "),
    label_prefix="[",
    label_affix="]\n",
    query_prefix="Now: ",
)


def test_a_demonstration_shows_its_label_and_a_query_stops_where_it_would_stand():
    examples = pl.DataFrame({"texts": [["good film"], ["bad { film"]], "gold": [1, 0]})
    label = Verbalizer(label_names=("negative", "positive")).text(pl.col("gold"))
    shown = examples.select(
        demonstration=ONE_FIELD.demonstration(pl.col("texts"), label), query=ONE_FIELD.query(pl.col("texts"))
    )
    assert shown["demonstration"].to_list() == [
        "review: good film sentiment: positive\n",
        "review: bad { film sentiment: negative\n",
    ]
    assert shown["query"].to_list() == ["review: good film sentiment: ", "review: bad { film sentiment: "]


def test_every_text_field_has_its_own_prefix_and_affix():
    examples = pl.DataFrame({"texts": [["it rains", "it is wet"]]})
    shown = examples.select(
        demonstration=TWO_FIELDS.demonstration(pl.col("texts"), pl.lit("yes")), query=TWO_FIELDS.query(pl.col("texts"))
    )
    assert shown.row(0) == (
        "premise: it rains | claim: it is wet -> [yes]\n",
        "Now: premise: it rains | claim: it is wet -> [",
    )


def test_an_empty_text_is_shown_as_nothing():
    examples = pl.DataFrame({"texts": [[""]]})
    assert examples.select(ONE_FIELD.query(pl.col("texts"))).item() == "review:  sentiment: "


@pytest.mark.parametrize(("prefixes", "affixes"), [((), ()), (("a", "b"), (" ",)), (("a",), (" ", " "))])
def test_prefixes_and_affixes_that_do_not_pair_are_refused(prefixes: tuple[str, ...], affixes: tuple[str, ...]):
    with pytest.raises(TemplateError, match="one input prefix and one input affix a text field"):
        MetaTemplate(input_prefixes=prefixes, input_affixes=affixes, label_prefix="", label_affix="")


def test_a_template_for_another_number_of_text_fields_is_refused():
    ONE_FIELD.require_fields(["text"])
    with pytest.raises(TemplateError, match=r"1 input prefixes \['review: '\].* 2 text fields \['premise', 'claim'\]"):
        ONE_FIELD.require_fields(["premise", "claim"])


@pytest.mark.parametrize(
    ("label_names", "complaint"),
    [
        ((), "at least one"),
        (("yes", ""), "cannot be empty"),
        (("yes", " "), "or blank"),
        (("yes", "no", "yes"), "must differ"),
        (("yes", "yes "), "must differ, not only in spaces at the end"),
        ((" yes ", "no", " yes"), "must differ, not only in spaces at the end"),
    ],
)
def test_label_names_that_cannot_be_told_apart_are_refused(label_names: tuple[str, ...], complaint: str):
    with pytest.raises(TemplateError, match=complaint):
        Verbalizer(label_names=label_names)


def test_a_label_outside_the_label_space_has_no_text():
    with pytest.raises(pl.exceptions.InvalidOperationError):
        pl.select(Verbalizer(label_names=("a", "b")).text(pl.lit(2)))


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
