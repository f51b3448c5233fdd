"""Files of questions, and the text of questions against vLLM's own."""

import random

import pytest

from evaluator.decisions.forms import asked, require_form
from evaluator.decisions.questions import Option, Question, read_questions
from evaluator.decisions.requests import questions_limit, require_fit
from evaluator.errors import DatasetError

WORDS = ["billing", "technical", "spam", "refund", "payments", "invoices", "a11y", "ümlaut", "数"]


@pytest.mark.parametrize("seed", range(60))
def test_the_form_of_vllm_is_the_text_of_its_server(seed):
    from vllm.entrypoints.generate.structured_decisions.question_types import build_question  # takes seconds

    draw = random.Random(seed)
    kind = draw.choice(["choice", "yes-no", "score"])
    instructions = draw.choice(["Which team?", "", "Is it urgent?\nSay so."])
    n = 2 if kind == "yes-no" else draw.randint(2, 9)
    names = ["no", "yes"] if kind == "yes-no" else [f"{draw.choice(WORDS)} {i}" for i in range(n)]
    texts = [draw.choice(["", *WORDS]) for _ in names] if kind != "score" else [""] * n
    order = [1, 0] if kind == "yes-no" else list(range(n))
    put = asked("vllm", kind, instructions, names, texts, order)
    if kind == "choice":
        shuffled = draw.sample(order, n)
        put = asked("vllm", kind, instructions, names, texts, shuffled)
        criteria = {names[i]: texts[i] or None for i in shuffled}
    elif kind == "score":
        criteria, shuffled = names, order
    else:
        criteria, shuffled = (
            {key: text for key, text in zip(("false", "true"), texts, strict=True) if text} or None,
            order,
        )
    theirs = build_question("q", {"yes-no": "noul"}.get(kind, kind), instructions, criteria, 26)
    assert put.text == theirs.type.prompt(theirs) + "\n"
    by_option = {option.name: label for option, label in zip(theirs.options, theirs.labels, strict=True)}
    assert put.answers == [by_option[name] for name in names]


@pytest.mark.parametrize("form", ["letters", "names", "vllm", "vllm-decisions"])
@pytest.mark.parametrize("kind", ["choice", "score"])
def test_every_option_is_listed_once_and_has_an_answer_of_its_own(form, kind):
    names = [f"option number {i}" for i in range(8)]
    for order in (list(range(8)), [3, 1, 0, 2, 7, 6, 5, 4]):
        put = asked(form, kind, "Which?", names, [""] * 8, order)
        assert [put.text.count(name) for name in names] == [1] * 8
        assert len({*put.answers}) == 8


def test_many_options_have_numbers_and_a_server_refuses_them():
    names = [str(i) for i in range(255)]
    assert len({*asked("letters", "choice", "", names, [""] * 255, range(255)).answers}) == 255
    require_form("letters", "choice", 255, "q.toml")
    with pytest.raises(DatasetError, match=r"q.toml: 255 options; the form vllm takes 26 at most"):
        require_form("vllm", "choice", 255, "q.toml")


GOOD = '[q]\ntype = "choice"\ninstructions = "Which?"\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "has no question"),
        ("q = 1", "a table with a name was expected"),
        ('[q]\ninstructions = "x"', "type"),
        ('[q]\ntype = "choise"\ninstructions = ""', "`type` is one of choice, yes-no, score; found 'choise'"),
        (GOOD + 'options = ["a", "b"]\nnone = ""', "may not be blank"),
        (GOOD + "optoins = []", "optoins"),
        (GOOD + 'options = ["a"]', "two or more"),
        (GOOD + 'options = ["a", "a"]', "all different"),
        (GOOD + 'options = ["a", "A "]', "found ['a', 'A']. Case and white space make no difference."),
        (GOOD + 'options = ["not sure", "Not  sure"]', "all different"),
        (GOOD + 'options = ["caf\\u00e9", "cafe\\u0301"]', "all different"),
        (GOOD + 'options = ["a", "b"]\nnone = "A"', "all different and none blank; found ['a', 'b', 'A']"),
        (GOOD, "`options` are two or more"),
        (
            GOOD + 'options = ["a", "b"]\n["Q "]\ntype = "yes-no"\ninstructions = ""',
            "names of questions are all different; found ['q', 'Q ']",
        ),
        (GOOD + 'options = "a,b"', "`options` is a table or a list; found a text"),
        (
            GOOD + "options = {a = 1, b = 2}",
            "`options[...]` is a text; found a whole number",
        ),
        (GOOD + 'options = ["a", "b"]\nwordings = "x"', "`wordings` is a list; found a text"),
        (GOOD + 'options = ["a", "b"]\nwordings = [""]', "`wordings` and `negated` differ"),
        (GOOD + 'options = ["a", "b"]\nwordings = ["Which?"]', "`wordings` and `negated` differ"),
        ('[q]\ntype = "yes-no"\ninstructions = "Is it?"\nnegated = "is  it?"', "`wordings` and `negated` differ"),
        ('[q]\ntype = "yes-no"\ninstructions = ""\nnone = "other"', "`none` is for questions of the type choice"),
        ('[q]\ntype = "score"\ninstructions = ""\noptions_column = "c"', "is for questions of the type choice"),
        (GOOD + 'options = ["a", "b"]\ngold = 3', "`gold` is a text; found a whole number"),
        (GOOD + 'options = ["a", "b"]\ngold = ""', "`gold` may not be blank"),
        (GOOD + 'options_column = " "', "`options_column` may not be blank"),
        ('[q]\ntype = "score"\nlevels = ["a", "b"]', "the key `instructions` is missing"),
        ('[q]\ntype = "score"\ninstructions = ["x"]', "`instructions` is a text; found a list"),
        (
            '[q]\ntype = "yes-no"\ninstructions = ""\ncriteria = {yes = 3}',
            "`criteria[...]` is a text; found a whole number",
        ),
        (GOOD + 'options = ["a", " "]', "none blank"),
        (GOOD + 'options = ["a", "b"]\noptions_column = "c"', "exclude each other"),
        (GOOD + 'options = ["a", "b"]\nnegated = "x"', "for questions of the type yes-no"),
        (GOOD + 'options = ["a", "b"]\nlevels = ["a", "b"]', "`levels` is for questions of the type score"),
        ('[q]\ntype = "yes-no"\ninstructions = ""\ncriteria = {maybe = "x"}', "says what yes and no mean"),
    ],
)
def test_a_file_that_does_not_fit_is_named_with_its_question(tmp_path, content, said):
    path = tmp_path / "q.toml"
    path.write_text(content)
    with pytest.raises(DatasetError) as error:
        read_questions(path)
    assert said in str(error.value)
    assert str(path) in str(error.value)


def test_a_choice_that_an_answer_names_is_its_most_probable_option_up_to_rounding():
    question = Question(name="q", kind="choice", instructions="Which?", options=tuple(map(Option, "abc")))
    require_fit(question, {"choice": "a", "probabilities": {"a": 0.33, "b": 0.34, "c": 0.33}})  # 1/3, by hundredths
    with pytest.raises(DatasetError, match="the choice 'a' is not the most probable option"):
        require_fit(question, {"choice": "a", "probabilities": {"a": 0.32, "b": 0.34, "c": 0.34}})


def test_a_limit_of_questions_is_one_that_fewer_questions_keep():
    assert questions_limit("at most 5 questions are allowed", 6) == 5
    assert questions_limit("at most 5 questions are allowed", 5) is None
    assert questions_limit("at most 5 options of a question are allowed", 6) is None
