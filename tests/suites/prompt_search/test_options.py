import json

import pytest

from evaluator.errors import ConfigError, TemplateError
from evaluator.suites.in_context_pvi.prompts import PviOptions
from evaluator.suites.prompt_search.prompts import SearchOptions, read_candidates
from evaluator.templates.template import ChoiceTemplate


def write(folder, content):
    path = folder / "candidates.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_candidates_state_what_differs_from_a_datasets_own_template(tmp_path):
    path = write(
        tmp_path,
        {"instructions": ["Choose.", ""], "templates": [{"output_prefix": " -> "}, {"choice_prefix": None}]},
    )
    own = ChoiceTemplate(input_prefix="Sentence: ")
    assert read_candidates(path, own) == {
        "instructions": [ChoiceTemplate(input_prefix="Sentence: ", instruction="Choose."), own],
        "templates": [
            ChoiceTemplate(input_prefix="Sentence: ", output_prefix=" -> "),
            ChoiceTemplate(input_prefix="Sentence: ", choice_prefix=None),
        ],
    }


def test_a_part_that_is_not_named_is_not_searched(tmp_path):
    assert list(read_candidates(write(tmp_path, {"instructions": ["a"]}), ChoiceTemplate())) == ["instructions"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "cannot be read as JSON"),
        (["a"], "must hold an object"),
        ({}, "has nothing to search"),
        ({"prompts": ["a"]}, "there is no key .*prompts.*instructions, templates"),
        ({"instructions": []}, "has nothing to search"),
        ({"instructions": ["a", 1]}, r"`instructions\[1\]` is a text; found a whole number"),
        ({"templates": ["a"]}, r"`templates\[0\]` is a table; found a text"),
        (
            {"templates": [{}, {"suffix": "a"}]},
            r"template 1 .*there is no key .*suffix.*instruction, input_prefix",
        ),
        ({"templates": [{"separator": None}]}, r"template 0 .*`separator` is a text; found null"),
    ],
)
def test_a_file_that_names_no_candidates_is_refused(tmp_path, content, message):
    path = write(tmp_path, content)
    with pytest.raises(TemplateError, match=message) as refused:
        read_candidates(path, ChoiceTemplate())
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("options", [SearchOptions, PviOptions])
def test_a_seed_below_zero_which_the_draws_of_measures_do_not_take_is_refused(options):
    with pytest.raises(ConfigError, match="--seed must be 0 or more, got -1"):
        options(seed=-1)
