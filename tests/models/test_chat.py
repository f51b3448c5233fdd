"""Which chat template a run applies: the model's own, that of a file, or none."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from evaluator.config import ChatConfig
from evaluator.errors import ConfigError, ModelError
from evaluator.models.source import ModelSource
from evaluator.run.resolved_models import chat_form
from evaluator.tokens.chat import ChatForm
from tests.chat_models import ANY_ROLE, DATED, NO_SYSTEM, SPACED, THINKING, chat_tokenizer

AUTO = ChatConfig(template="auto")


@pytest.fixture
def source(tiny_source: ModelSource, tmp_path: Path) -> ModelSource:
    """A model with a chat template; its weights are never read."""
    chat_tokenizer(ANY_ROLE).save_pretrained(tmp_path / "chat")
    return replace(tiny_source, name="org/chat", folder=tmp_path / "chat")


def test_the_models_own_template_is_found_in_a_file_of_its_own_and_among_the_tokenizers_settings(source):
    assert source.has_chat_template
    form = chat_form(source, AUTO)
    assert form is not None
    assert (form.template, form.source, form.demonstrations) == (ANY_ROLE, "auto", "turns")
    # The older place of a template:
    (source.folder / "chat_template.jinja").unlink()
    settings = json.loads((source.folder / "tokenizer_config.json").read_text())
    (source.folder / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": NO_SYSTEM}))
    older = replace(source)
    assert older.has_chat_template
    found = chat_form(older, AUTO)
    assert found is not None
    assert found.template == NO_SYSTEM


def test_a_template_that_is_not_applied_is_one_warning_unless_that_was_asked_for(source, caplog):
    with caplog.at_level(logging.WARNING):
        assert chat_form(source, ChatConfig(template="none")) is None
        assert not caplog.messages
        assert chat_form(source, None) is None
    (message,) = caplog.messages
    assert message == (
        "org/chat has a chat template, and its prompts are plain, as those of published numbers are. Apply it with "
        "--chat-template auto, or compare both with --chat-template none,auto."
    )


def test_a_model_without_a_template_gets_plain_prompts_and_says_so(tiny_source, caplog):
    with caplog.at_level(logging.WARNING):
        assert chat_form(tiny_source, None) is None
        assert not caplog.messages
        assert chat_form(tiny_source, AUTO) is None
    (message,) = caplog.messages
    assert message.endswith("has no chat template, so that its prompts are plain.")


def test_a_file_is_taken_in_place_of_the_models_own(source, tmp_path):
    file = tmp_path / "mine.jinja"
    file.write_text(NO_SYSTEM)
    form = chat_form(source, ChatConfig(template=str(file), demonstrations="message"))
    assert form is not None
    assert (form.template, form.source) == (NO_SYSTEM, str(file))
    with pytest.raises(ModelError, match="System role not supported"):
        chat_form(source, ChatConfig(template=str(file), system_instruction="Be brief."))


def test_a_file_that_is_not_there_or_no_text_is_one_sentence(source, tmp_path):
    with pytest.raises(ConfigError, match=r"--chat-template no.jinja: the file cannot be read .* Give auto, none"):
        chat_form(source, ChatConfig(template="no.jinja"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not a text in UTF-8"):
        chat_form(source, ChatConfig(template=str(tmp_path / "bytes")))


def test_several_named_templates_without_a_default_are_refused(source):
    source.transformers_tokenizer.chat_template = {"tool_use": ANY_ROLE, "rag": ANY_ROLE}
    with pytest.raises(ModelError, match=r"org/chat has chat templates, and transformers finds no default .* Save"):
        chat_form(source, AUTO)


@pytest.mark.parametrize("settings", [{"demonstrations": "message"}, {"system_instruction": "Be brief."}])
def test_what_is_about_conversations_needs_a_template(settings):
    with pytest.raises(ConfigError, match="Add --chat-template auto, or leave them out"):
        ChatConfig(**settings)


def test_a_byte_order_mark_is_no_part_of_a_template(source, tmp_path):
    file = tmp_path / "mine.jinja"
    file.write_bytes(b"\xef\xbb\xbf" + ANY_ROLE.encode())
    form = chat_form(source, ChatConfig(template=str(file)))
    assert form is not None
    assert form.template == ANY_ROLE


def test_the_template_of_chat_template_json_is_the_models_own(source):
    (source.folder / "chat_template.jinja").unlink()
    (source.folder / "chat_template.json").write_text(json.dumps({"chat_template": NO_SYSTEM}))
    assert AutoTokenizer.from_pretrained(source.folder).chat_template is None
    older = replace(source)
    assert older.has_chat_template
    form = chat_form(older, AUTO)
    assert form is not None
    assert form.template == NO_SYSTEM


ENDLESS = {
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a loop that writes": "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
    "a wide number": "{{ '%99999999999d' % 1 }}",
    "a long text": "{{ 'x' * 99999999999 }}",
    "a text that doubles": "{% set n = namespace(t='x') %}"
    "{% for a in range(60) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
    "a long date": "{% for a in range(999) %}{{ strftime_now('%Y' * 100000) }}{% endfor %}",
    "a macro that calls itself": "{% macro f(n) %}"
    "{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "a block of the assistant": "{% generation %}{{ 'x' * 99999999999 }}{% endgeneration %}",
    "the second question": "{% if messages | length > 3 %}{{ 'x' * 99999999999 }}{% endif %}{% for m in messages %}"
    "{{ m.content }}{% endfor %}",
    "any message": "{% for m in messages %}"
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    "{{ m.content }}{% endfor %}",
}


@pytest.mark.parametrize("template", ENDLESS.values(), ids=ENDLESS)
def test_a_template_that_does_not_end_or_takes_all_memory_is_refused(source, tmp_path, monkeypatch, template):
    monkeypatch.setattr("evaluator.tokens.chat.TEMPLATE_S", 1)
    (tmp_path / "endless.jinja").write_text(template)
    with pytest.raises(
        ModelError, match=r"endless.jinja does not end: for a short conversation it takes more than .* none"
    ):
        chat_form(source, ChatConfig(template=str(tmp_path / "endless.jinja")))


@pytest.mark.parametrize("system_instruction", [None, "Be brief."])
@pytest.mark.parametrize(
    "template", [ANY_ROLE, SPACED, THINKING, NO_SYSTEM, DATED, "{{ messages[7].content }}", "{% x %}"]
)
def test_the_limit_changes_no_answer(source, tmp_path, monkeypatch, template, system_instruction):
    (tmp_path / "template.jinja").write_text(template)
    config = ChatConfig(template=str(tmp_path / "template.jinja"), system_instruction=system_instruction)

    def answer() -> str:
        try:
            form = chat_form(source, config)
            return form.before_answer([{"role": "user", "content": "x"}]) if form else ""
        except ModelError as error:
            return str(error)

    limited = answer()
    monkeypatch.setattr(ChatForm, "_require_end", lambda *_arguments: None)
    assert answer() == limited
