"""Turn prompts into conversations, and render these with the model's chat template up to the label.

The column `spans` of schemas.PROMPTS gives the positions of a prompt's demonstrations and their labels. By these
positions a prompt is split into messages, which the template renders as text. A label is the beginning of the last
answer. To find the text before the label, the whole conversation is rendered with a placeholder as the last answer.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import polars as pl
from jinja2 import TemplateSyntaxError, UndefinedError

from evaluator.config import OWN_TEMPLATE, ChatDemonstrations
from evaluator.errors import LabelError, ModelError, shown
from evaluator.files.digests import fingerprint
from evaluator.process import run_limited
from evaluator.record import ChatRecord

Message = dict[str, str]
"""A message of a conversation: `role` and `content`."""

DATE = datetime(2024, 7, 26, tzinfo=UTC)
"""The date for templates that write today's date: a fixed one, so that prompts do not change from day to day."""

FEWER_TURNS = "Use fewer demonstrations (--shots), or --chat-demonstrations message."
TRY_ANOTHER = "Choose another --chat-template, or none."

_QUESTION = "question one"
_ANSWER = "answer two"  # placeholder for a label; two words, because templates may write <answer> themselves
_THOUGHT = re.compile(r"[<\[]/?(?:think|thinking|thought|reasoning|reason)[>\]]", re.IGNORECASE)
_NO_THINKING = {"enable_thinking": False, "thinking": False}  # templates name the switch differently


_RENDER = """
import datetime, json, re, sys, jinja2.ext, jinja2.sandbox
given = json.load(sys.stdin)
environment = jinja2.sandbox.ImmutableSandboxedEnvironment(extensions=[jinja2.ext.loopcontrols])
environment.globals["strftime_now"] = datetime.datetime.fromisoformat(given.pop("date")).strftime
template = re.sub("{%-?\\s*(end)?generation\\s*-?%}", "", given["template"])
for messages in given["conversations"]:
    try:
        environment.from_string(template).render(given, messages=messages)
    except Exception as error:  # of others, transformers says what is wrong
        if isinstance(error, MemoryError):
            raise
"""
"""Program that renders a template as transformers does, only to see whether rendering ends."""

TEMPLATE_S = 10
"""Maximum processor time, in seconds, for rendering a few short conversations."""


@dataclass(frozen=True, kw_only=True)
class ChatForm:
    """A model's chat template, and the settings that turn prompts into conversations."""

    model: str  # name of the model, for error messages about its own template
    tokenizer: Any  # tokenizer of transformers, whose special tokens the template writes
    template: str  # Jinja source
    source: str  # "auto" for the model's own template, or the path of the template file
    demonstrations: ChatDemonstrations
    system_instruction: str | None = None  # "": an empty system message instead of the template's default message
    bos: str = ""  # text to put before conversations that do not begin with it
    _in_place: set[str] = field(default_factory=set)  # labels already checked, which the template leaves unchanged

    @property
    def record(self) -> ChatRecord:
        """Return the chat settings as the record of a run stores them."""
        can_think = any(name in self.template for name in _NO_THINKING)
        return ChatRecord(
            template=self.source,
            sha256=hashlib.sha256(self.template.encode()).hexdigest(),
            demonstrations=self.demonstrations,
            system_instruction=self.system_instruction,
            thinking="off" if can_think else "not a setting of this template",
            date=DATE.date().isoformat(),
        )

    @property
    def fingerprint(self) -> str:
        """Return the digest of everything that determines the rendered texts."""
        special = {name: str(token) for name, token in self.tokenizer.special_tokens_map.items()}
        return fingerprint(self.record.template, self.record.sha256, self.demonstrations, self.system_instruction,
                           self.record.date, sorted(special.items()), self.bos, version("transformers"))  # fmt: skip

    @property
    def system(self) -> list[Message]:
        """Return the messages at the beginning of every conversation."""
        return [] if self.system_instruction is None else [_message("system", self.system_instruction)]

    def messages(self, prompt: str, spans: Sequence[dict[str, int]]) -> list[Message]:
        """Return the messages of a prompt up to the question whose answer is the last label.

        With demonstrations "turns", each demonstration is a user message and an assistant message, and the instruction
        is part of the first user message. With "message", all text before the last label is one user message. White
        space at the ends of messages is removed, because templates write their own between messages.

        Args:
            prompt: complete text of the prompt.
            spans: `spans` of schemas.PROMPTS: character positions of the demonstrations and, last, of the query.
        """
        turns: list[Message] = []
        asked_from = 0
        for span in spans[:-1] if self.demonstrations == "turns" else ():
            turns.append(_message("user", prompt[asked_from : span["label"]]))
            turns.append(_message("assistant", prompt[span["label"] : span["end"]]))
            asked_from = span["end"]
        return [*self.system, *turns, _message("user", prompt[asked_from : spans[-1]["label"]])]

    def text(self, messages: Sequence[Message], *, opens_answer: bool = False) -> str:
        """Render a conversation; with opens_answer, append the beginning of the answer that a model is to continue.

        Raises ModelError if the template refuses the conversation.
        """
        from transformers.utils.chat_template_utils import _compile_jinja_template

        try:
            # Not apply_chat_template: since transformers 5.24 it passes no function to a template, as strftime_now.
            text: str = _compile_jinja_template(self.template).render(
                **self.tokenizer.special_tokens_map,
                **_NO_THINKING,
                messages=list(messages),
                tools=None,
                documents=None,
                add_generation_prompt=opens_answer,
                date_string=DATE.strftime("%d %b %Y"),
                strftime_now=DATE.strftime,
            )
        except TemplateSyntaxError as error:
            raise self._fault(f"is no Jinja template: line {error.lineno}, {error.message}") from error
        except (UndefinedError, TypeError) as error:  # TypeError: the template uses a variable that is None, as tools
            raise self._fault(f"needs more than messages with a role and a text ({error}).") from error
        except Exception as error:  # templates are third-party programs, and can raise anything
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise self._fault(f"refuses a conversation: {reason}") from error
        return text if text.startswith(self.bos) else self.bos + text

    def before_answer(self, messages: Sequence[Message]) -> str:
        """Render a conversation up to the place where the answer to its last message begins.

        Raises ModelError if the template leaves out or changes a message, which the error names, or the answer.
        """
        whole = self.text([*messages, _message("assistant", _ANSWER)])
        before, answer, _ = whole.rpartition(_ANSWER)
        if not answer:
            raise self._fault("does not write an answer as it is given, so that no label can be scored.")
        lost = _first_lost(messages, before)
        if lost is not None:
            # Some templates write, for example, the system message only where a conversation ends with a question. So
            # render without an answer; the spaces before the answer are taken from the text with an answer.
            opened = self.text(messages, opens_answer=True)
            if _first_lost(messages, opened) is None:
                return opened.rstrip(" ") + before[len(before.rstrip(" ")) :]
            role, place = messages[lost]["role"], f"message {lost + 1} of {len(messages)}"
            content = shown(messages[lost]["content"])
            raise self._fault(f"leaves out a message of the {role} or changes it: {place}, {content}")
        return before

    def check(self) -> None:
        """Raise ModelError unless rendering ends soon and the template writes every message that prompts will need."""
        plain = [_message("user", _QUESTION)]
        one, hint = [*self.system, *plain], "Leave out --system-instruction, or choose another --chat-template."
        more = [_message("assistant", "answer one"), _message("user", "question two")]
        self._require_end([plain, one, *([[*one, *more]] if self.demonstrations == "turns" else [])])
        if not self.system:
            # If the template accepts a system message, an error below suggests to give one.
            hint = TRY_ANOTHER
            with suppress(ModelError):
                self.before_answer([_message("system", "Be brief."), *plain])
                hint = "It takes conversations that begin with a system message: give a --system-instruction."
        _require(self, one, hint)
        if self.system_instruction == "":
            # The text before the question must change; otherwise the template's default system message is still there.
            opening, without = (self.before_answer(messages).rpartition(_QUESTION)[0] for messages in (one, plain))
            if "system" in opening and opening == without:
                raise self._fault(f"writes its own system message also where an empty one is given. {hint}")
        if self.demonstrations == "turns":
            _require(self, [*one, *more], "Choose --chat-demonstrations message.")

    def _require_end(self, conversations: Sequence[Sequence[Message]]) -> None:
        """Raise ModelError if rendering short conversations takes too much time or memory."""
        answered = [[*messages, _message("assistant", _ANSWER)] for messages in conversations]
        given = {"template": self.template, "conversations": answered, "date": DATE.isoformat(), **_NO_THINKING}
        special = {name: str(token) for name, token in self.tokenizer.special_tokens_map.items()}
        try:
            run_limited(_RENDER, json.dumps(special | given).encode(), seconds=TEMPLATE_S)
        except ValueError as error:
            raise self._fault(f"does not end: for a short conversation {error}. {TRY_ANOTHER}") from error

    @property
    def _title(self) -> str:
        return f"of {self.model}" if self.source == OWN_TEMPLATE else self.source

    def _fault(self, what: str) -> ModelError:
        return ModelError(f"The chat template {self._title} {what}")

    def unwritten_thought(self) -> str | None:
        """Return text by which the context of a label differs from what the model expects before an answer, or None.

        This is the opening tag, such as <think>, of a thought that is still open where labels begin; or else the text
        that the template writes to open an answer of the model but does not write before a label.
        """
        messages = [*self.system, _message("user", _QUESTION)]
        before = self.before_answer(messages).rpartition(_QUESTION)[2]
        opened = self.text(messages, opens_answer=True).rpartition(_QUESTION)[2].rstrip()
        thoughts = _THOUGHT.findall(before)
        if thoughts and not thoughts[-1].startswith(("</", "[/")):
            return str(thoughts[-1])
        # Leave out the part of the opening that the text before a label begins with as well.
        n_common = next((n for n in range(len(opened), 0, -1) if before.startswith(opened[:n])), 0)
        return opened[n_common:] or None

    def require_labels_in_place(self, labels: Iterable[str]) -> None:
        """Raise LabelError if the template changes the text of a label, so that another text would be scored."""
        new = dict.fromkeys(label for label in labels if label not in self._in_place)
        question = [*self.system, _message("user", _QUESTION)]
        asked = "".join(self.before_answer(question).rpartition(_QUESTION)[1:]) if new else ""
        for label in new:
            if asked + label.rstrip() not in self.text([*question, _message("assistant", label)]):
                raise LabelError(
                    f"The chat template {self._title} changes the answer {label!r}, so that it cannot be scored. "
                    "Choose other label names, or another --chat-template.",
                    [label],
                )
            self._in_place.add(label)


def chat_texts(form: ChatForm, prompts: pl.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Render prompts as conversations; return one text and one list of continuations for each prompt.

    A text ends where the model's answer begins. Spaces that the template writes before the answer are moved to the
    continuations: in "[/INST] positive" the space is part of the answer's first token. Spaces at the beginning of a
    continuation separate it from the plain prompt, and are removed. With ask "text" the answer is part of the text.

    Args:
        form: chat template and settings.
        prompts: schemas.PROMPTS, all with spans.

    Raises ModelError for a conversation that the template refuses, LabelError for labels that it changes.
    """
    texts, continuations = [], []
    rows = prompts.select("prompt", "ask", "spans", "continuations").iter_rows()
    for prompt, ask, spans, asked in rows:
        answers = [answer.lstrip(" ") for answer in asked]
        if len(answers) > 1:  # a single continuation is a text to score, not a label
            form.require_labels_in_place(answers)
        before = _require(form, form.messages(prompt, spans), FEWER_TURNS if len(spans) > 1 else TRY_ANOTHER)
        context = before.rstrip(" ")
        texts.append(before + prompt[spans[-1]["label"] :].lstrip(" ") if ask == "text" else context)
        continuations.append([before[len(context) :] + answer for answer in answers])
    return texts, continuations


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content.strip()}


def _require(form: ChatForm, messages: Sequence[Message], hint: str) -> str:
    """Return form.before_answer(messages). Raises ModelError as before_answer does, with `hint` as last sentence."""
    try:
        return form.before_answer(messages)
    except ModelError as error:
        raise ModelError(f"{str(error).rstrip('.')}. {hint}") from error


def _first_lost(messages: Sequence[Message], text: str) -> int | None:
    """Return the index of the first message whose content is missing from a text, or not after earlier messages."""
    place = 0
    for number, message in enumerate(messages):
        content = message["content"]
        # A template may put the system message anywhere.
        found = text.find(content, 0 if message["role"] == "system" else place)
        if found < 0:
            return number
        place = place if message["role"] == "system" else found + len(content)
    return None
