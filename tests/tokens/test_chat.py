"""Prompts as conversations, against what transformers makes of whole conversations written by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from evaluator.datasets.base import EXAMPLES, Labelled
from evaluator.errors import LabelError, ModelError
from evaluator.prompts.rows import NO_SPANS, classification_prompts
from evaluator.store import with_prompt_ids
from evaluator.templates.template import MetaTemplate, Verbalizer
from evaluator.tokens.chat import ChatForm
from evaluator.tokens.table import chat_example, tokenise
from evaluator.tokens.tokenizer import FastTokenizer
from tests.chat_models import ANY_ROLE, DATED, NO_SYSTEM, SPACED, THINKING, chat_tokenizer

TEMPLATE = MetaTemplate(
    instruction="Classify. ",
    input_prefixes=("Text: ",),
    input_affixes=("\n",),
    label_prefix="Label: ",
    label_affix="\n",
)
LABELS = ["wet", "dry"]
DEMONSTRATIONS = pl.DataFrame({"source_row": [0, 1], "texts": [["rain"], ["sun"]], "gold": [0, 1]}, schema=EXAMPLES)
TURNS = [
    {"role": "user", "content": "Classify. Text: rain\nLabel:"},
    {"role": "assistant", "content": "wet"},
    {"role": "user", "content": "Text: sun\nLabel:"},
    {"role": "assistant", "content": "dry"},
    {"role": "user", "content": "Text: fog\nLabel:"},
]
MESSAGE = [
    {
        "role": "user",
        "content": "Classify. Text: rain\nLabel: wet\nText: sun\nLabel: dry\nText: fog\nLabel:",
    }
]


def prompts(*queries: str, ask: str = "labels", continuations: list[str] | None = None) -> pl.DataFrame:
    """Rows of PROMPTS that show both demonstrations before each query."""
    rows = classification_prompts(
        Labelled(name="weather", template=TEMPLATE, verbalizer=Verbalizer(label_names=tuple(LABELS))),
        queries=pl.Series([[query] for query in queries], dtype=pl.List(pl.String)),
        demonstrations=DEMONSTRATIONS,
        demonstration_ids=np.array([[0, 1]] * len(queries)),
    )
    asked = LABELS if continuations is None else continuations
    return with_prompt_ids(rows.with_columns(ask=pl.lit(ask), continuations=pl.lit(asked, pl.List(pl.String)))).sort(
        "prompt"
    )


def form(template: str, *, demonstrations: Any = "turns", system: str | None = None) -> ChatForm:
    return ChatForm(
        model="org/chat",
        tokenizer=chat_tokenizer(template),
        template=template,
        source="auto",
        demonstrations=demonstrations,
        system_instruction=system,
    )


def whole_conversation(template: str, messages: list[dict[str, str]], answer: str) -> list[int]:
    """The tokens of a conversation that ends in an answer, as transformers makes them."""
    tokenizer = chat_tokenizer(template)
    conversation = [*messages, {"role": "assistant", "content": answer}]
    ids: list[int] = tokenizer.apply_chat_template(conversation, return_dict=False, enable_thinking=False)
    return ids


def tokens(chat: ChatForm, rows: pl.DataFrame, boundary: Any = "merged") -> pl.DataFrame:
    return tokenise(FastTokenizer(chat.tokenizer.backend_tokenizer), rows, boundary, chat)


@pytest.mark.parametrize("boundary", ["merged", "separate"])
@pytest.mark.parametrize(("demonstrations", "messages"), [("turns", TURNS), ("message", MESSAGE)])
@pytest.mark.parametrize("template", [ANY_ROLE, SPACED, THINKING, NO_SYSTEM])
def test_a_label_has_the_tokens_that_it_has_in_the_whole_conversation(template, demonstrations, messages, boundary):
    (row,) = tokens(form(template, demonstrations=demonstrations), prompts("fog"), boundary).to_dicts()
    for label, continuation in zip(LABELS, row["continuations"], strict=True):
        expected = whole_conversation(template, messages, label)
        asked = [*row["context"], *continuation]
        assert asked == expected[: len(asked)]
        assert chat_tokenizer(template).decode(continuation).strip() == label
        assert asked.count(0) == 1, "one BOS"


def test_a_space_that_the_template_writes_before_an_answer_belongs_to_the_label():
    chat = form(SPACED)
    (row,) = tokens(chat, prompts("fog", continuations=[" wet", " dry"])).to_dicts()
    assert chat.tokenizer.decode(row["context"]).endswith("[/INST]")
    assert [chat.tokenizer.decode(label) for label in row["continuations"]] == [" wet", " dry"]


def test_a_space_of_the_plain_prompt_is_left_out_where_the_template_writes_none():
    chat = form(ANY_ROLE)
    spaced, bare = (tokens(chat, prompts("fog", continuations=labels)) for labels in ([" wet", " dry"], LABELS))
    assert spaced["token_id"].equals(bare["token_id"])


def test_a_system_instruction_comes_first():
    chat = form(ANY_ROLE, system="Be brief.")
    chat.check()
    (row,) = tokens(chat, prompts("fog")).to_dicts()
    expected = whole_conversation(ANY_ROLE, [{"role": "system", "content": "Be brief."}, *TURNS], "wet")
    asked = [*row["context"], *row["continuations"][0]]
    assert asked == expected[: len(asked)]


def test_thinking_is_off():
    chat = form(THINKING)
    text = chat.before_answer(TURNS)
    assert text.endswith("assistant\n<think>\n\n</think>\n\n")
    assert chat.record.thinking == "off"
    assert form(ANY_ROLE).record.thinking == "not a setting of this template"


def test_a_template_that_writes_the_date_gets_the_same_one_every_day():
    assert "Today is 26 July 2024, or 26 Jul 2024." in form(DATED).before_answer(TURNS)


@pytest.mark.parametrize("demonstrations", ["turns", "message"])
def test_prompts_with_the_same_demonstrations_share_all_tokens_up_to_the_query(demonstrations):
    chat = form(ANY_ROLE, demonstrations=demonstrations)
    first, second = tokens(chat, prompts("fog", "hail"))["context"].to_list()
    shared = next(place for place, (one, other) in enumerate(zip(first, second, strict=False)) if one != other)
    assert chat.tokenizer.decode(first[:shared]).endswith("Text:")


def test_texts_that_ask_nothing_stay_plain():
    chat = form(ANY_ROLE)
    plain = prompts("fog", ask="text", continuations=[]).with_columns(spans=NO_SPANS)
    both = pl.concat([plain, prompts("fog")])
    rows = tokens(chat, both)
    assert rows["prompt_id"].equals(both["prompt_id"])
    assert (
        rows["token_id"][0] == tokenise(FastTokenizer(chat.tokenizer.backend_tokenizer), plain, "merged")["token_id"][0]
    )


def test_the_example_of_a_conversation_is_one_of_middling_length_up_to_its_label():
    chat = form(ANY_ROLE)
    middling = [*TURNS[:-1], {"role": "user", "content": "Text: bbb\nLabel:"}, {"role": "assistant", "content": "wet"}]
    whole = chat.tokenizer.apply_chat_template(middling, tokenize=False)
    assert chat_example(chat, prompts("aaaa", "bbb", "cc", "d").lazy()) == whole[: whole.rindex("wet") + 3]


def test_the_state_of_a_prompt_is_that_where_the_answer_begins():
    chat = form(SPACED)
    (state,) = tokens(chat, prompts("fog", ask="state", continuations=[]))["context"].to_list()
    assert state == chat.tokenizer.encode(chat.before_answer(TURNS).rstrip(), add_special_tokens=False)


def test_the_likelihood_of_a_text_with_its_answer_is_that_of_the_conversation():
    # As in the noisy channel: the last span has an answer, which is part of the text.
    chat = form(ANY_ROLE)
    row = prompts("fog", ask="text", continuations=[]).row(0, named=True)
    spans = [*row["spans"][:-1], row["spans"][-1] | {"end": len(row["prompt"]) + 3}]
    answered = pl.DataFrame([row | {"prompt": row["prompt"] + "wet", "spans": spans}], schema=prompts("fog").schema)
    (scored,) = tokens(chat, answered).to_dicts()
    text = [*scored["context"], *scored["continuations"][0]]
    assert text == whole_conversation(ANY_ROLE, TURNS, "wet")[: len(text)]
    assert chat.tokenizer.decode(text).endswith("wet")


def test_a_template_that_refuses_a_system_message_is_one_sentence():
    sentence = (
        "The chat template of org/chat refuses a conversation: System role not supported. Leave out "
        "--system-instruction, or choose another --chat-template."
    )
    with pytest.raises(ModelError) as error:
        form(NO_SYSTEM, system="Be brief.").check()
    assert str(error.value) == sentence
    form(NO_SYSTEM).check()


def test_a_template_that_drops_a_message_is_refused():
    last = "{% set m = messages[-2] %}{{ bos_token }}{{ m.content }}\n{{ messages[-1].content }}"
    form(last, demonstrations="message").check()
    with pytest.raises(ModelError, match=r"leaves out a message of the user .* message 1 of 3.* Choose --chat-dem"):
        form(last).check()
    no_system = ANY_ROLE.replace("in messages", "in messages if m.role != 'system'")
    with pytest.raises(ModelError, match=r"leaves out a message of the system .* Leave out --system-instruction"):
        form(no_system, system="Be brief.").check()


def test_a_template_that_refuses_several_turns_is_refused_with_what_it_takes():
    one_turn = "{% if messages | length > 2 %}{{ raise_exception('One question only!') }}{% endif %}" + ANY_ROLE
    form(one_turn, demonstrations="message").check()
    with pytest.raises(ModelError, match=r"One question only!\. Choose --chat-demonstrations message\."):
        form(one_turn).check()


@pytest.mark.parametrize("template", ["{% for", "{{ messages.nothing.at_all }}", "{{ 1 / 0 }}", "{{ ''.__class__ }}"])
def test_a_template_that_is_no_template_of_conversations_is_one_sentence(template):
    with pytest.raises(ModelError, match=r"^The chat template of org/chat [^\n]* Choose another --chat-template"):
        form(template).check()


def test_a_template_that_changes_an_answer_is_refused():
    loud = ANY_ROLE.replace("m.content | trim", "m.content | replace('wet', 'WET') | trim")
    with pytest.raises(LabelError, match="changes the answer 'wet'"):
        tokens(form(loud), prompts("fog"))


def test_labels_follow_the_beginning_of_an_answer_that_a_template_marks_with_the_word_itself():
    marked = ANY_ROLE.replace("{{ m.content | trim }}", "<answer>{{ m.content | trim }}</answer>")
    (context,) = tokens(form(marked), prompts("fog"))["context"].to_list()
    assert context == whole_conversation(marked, TURNS, "wet")[: len(context)]
    (read,) = FastTokenizer(chat_tokenizer(marked).backend_tokenizer).texts([context])
    assert read.endswith("assistant\n<answer>")


def test_every_part_of_the_form_is_in_its_fingerprint():
    forms = [
        form(ANY_ROLE),
        form(SPACED),
        form(ANY_ROLE, demonstrations="message"),
        form(ANY_ROLE, system="Be brief."),
    ]
    assert len({each.fingerprint for each in forms}) == len(forms)
    assert form(ANY_ROLE).fingerprint == forms[0].fingerprint


NEEDS_SYSTEM = "{% if messages[0].role != 'system' %}{{ raise_exception('System first') }}{% endif %}" + ANY_ROLE
SYSTEM_IN_LAST_QUESTION = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'user' %}[INST] {{ messages[0].content + '\n\n' if loop.last and messages[0].role == 'system' }}"
    "{{ m.content }} [/INST]{% elif m.role == 'assistant' %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
"""As Mistral's version 3: the system message is written while the last message is a question."""
DEFAULT_SYSTEM = "{% if messages[0].role != 'system' %}<|start|>system\nYou are kind.<|end|>\n{% endif %}" + ANY_ROLE
"""As SmolLM2's and Qwen2.5's."""
FIXED_SYSTEM = "<|start|>system\nYou are kind.<|end|>\n" + ANY_ROLE.replace(
    "in messages", "in messages if m.role != 'system' or m.content"
)


def test_a_template_that_needs_a_system_message_is_tried_with_the_runs_own():
    with pytest.raises(ModelError, match=r"begin with a system message: give a --system-instruction\.$"):
        form(NEEDS_SYSTEM).check()
    chat = form(NEEDS_SYSTEM, system="Be brief.")
    chat.check()
    (row,) = tokens(chat, prompts("fog")).to_dicts()
    expected = whole_conversation(NEEDS_SYSTEM, [{"role": "system", "content": "Be brief."}, *TURNS], "wet")
    asked = [*row["context"], *row["continuations"][0]]
    assert asked == expected[: len(asked)]


def test_a_system_message_in_the_last_question_is_written_before_the_answer():
    chat = form(SYSTEM_IN_LAST_QUESTION, system="Be brief.")
    chat.check()
    (row,) = tokens(chat, prompts("fog")).to_dicts()
    conversation = [{"role": "system", "content": "Be brief."}, *TURNS]
    expected = chat.tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True) + " wet"
    assert chat.tokenizer.decode([*row["context"], *row["continuations"][0]]) == expected


def test_an_empty_system_instruction_removes_the_templates_own():
    chat = form(DEFAULT_SYSTEM, system="")
    chat.check()
    assert "You are kind." in form(DEFAULT_SYSTEM).before_answer(TURNS)
    assert "You are kind." not in chat.before_answer([*chat.system, *TURNS])
    with pytest.raises(ModelError, match="writes its own system message also where an empty one is given"):
        form(FIXED_SYSTEM, system="").check()


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        (ANY_ROLE.replace("m.content | trim", "m.content | upper"), "does not write an answer as it is given"),
        (
            ANY_ROLE.replace("m.content | trim", "m.content | selectattr('text') | join"),
            "does not write an answer as it is given",
        ),
        ("{% for m in messages %}\n{{ m.content }", "is no Jinja template: line 2,"),
        ("{% for m in messages %}{{ m.content.parts.first }}{% endfor %}", "needs more than messages with a role"),
        ("{% for t in tools %}{{ t.name }}{% endfor %}" + ANY_ROLE, "needs more than messages with a role"),
    ],
)
def test_a_template_for_something_else_is_refused_in_words_of_conversations(template, sentence):
    with pytest.raises(ModelError, match=sentence) as error:
        form(template).check()
    assert "continue_final_message" not in str(error.value)


def test_a_conversation_begins_with_bos_where_it_is_added():
    chat = replace(form(ANY_ROLE.replace("{{ bos_token }}", "")), bos="<s>")
    for template in (chat, replace(form(ANY_ROLE), bos="<s>")):
        (row,) = tokens(template, prompts("fog")).to_dicts()
        assert row["context"] == tokens(form(ANY_ROLE), prompts("fog"))["context"][0].to_list()
    assert chat.fingerprint != replace(chat, bos="").fingerprint


@pytest.mark.parametrize(
    ("opening", "in_answer", "thought"),
    [
        ("<think>\n", "", "<think>"),
        ("", "<think>\n", "<think>"),
        ("<think>\n\n</think>\n\n", "<think>\n\n</think>\n\n", None),
        ("", "<think></think>", None),
        ("", "", None),
    ],
)
def test_a_thought_is_found_whether_it_is_missing_before_the_label_or_open(opening, in_answer, thought):
    template = (
        "{% for m in messages %}<|start|>{{ m.role }}\n{% if m.role == 'assistant' %}" + in_answer + "{% endif %}"
        "{{ m.content }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|start|>assistant\n"
        + opening
        + "{% endif %}"
    )
    assert form(template).unwritten_thought() == thought
