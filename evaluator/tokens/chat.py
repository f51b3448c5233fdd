"""Put prompts to a model as conversations: the text that a chat template makes of them, up to the label.

A prompt knows where its demonstrations and their labels are (`spans` of schemas.PROMPTS). Here it becomes messages, and
the model's template makes text of these. The label is the beginning of the last answer: what stands before it is what
the template writes when it is given the whole conversation, with the label as the assistant's answer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, NamedTuple

import polars as pl

from evaluator.config import ChatDemonstrations
from evaluator.errors import LabelError, ModelError
from evaluator.files.digests import bytes_digest, fingerprint
from evaluator.record import ChatRecord

Message = dict[str, str]
"""A message of a conversation: `role` and `content`."""

DATE = datetime(2024, 7, 26, tzinfo=UTC)
"""What templates that write today's date are given, so that prompts do not change from day to day."""

_ANSWER = "answer"  # stands for a label whose place is looked for
_NO_THINKING = {"enable_thinking": False, "thinking": False}  # templates name the switch differently


class ChatTexts(NamedTuple):
    """Prompts as the texts of conversations, one entry per prompt."""

    prompts: list[str]
    continuations: list[list[str]]


@dataclass(frozen=True, kw_only=True)
class ChatForm:
    """A model's chat template, and how prompts become conversations."""

    model: str  # for messages
    tokenizer: Any  # of transformers, whose apply_chat_template is the only way to the template
    template: str  # Jinja
    source: str  # "auto", or the file of the template
    demonstrations: ChatDemonstrations
    system_instruction: str | None = None
    _in_place: set[str] = field(default_factory=set)  # labels that the template does not change

    @property
    def record(self) -> ChatRecord:
        """Describe the form of prompts, for the record of a run."""
        can_think = any(name in self.template for name in _NO_THINKING)
        return ChatRecord(
            template=self.source,
            sha256=bytes_digest(self.template.encode()),
            demonstrations=self.demonstrations,
            system_instruction=self.system_instruction,
            thinking="off" if can_think else "not a setting of this template",
            date=DATE.date().isoformat(),
        )

    @property
    def fingerprint(self) -> str:
        """Digest of everything that determines the texts."""
        special = {name: str(token) for name, token in self.tokenizer.special_tokens_map.items()}
        return fingerprint(self.record.template, self.record.sha256, self.demonstrations, self.system_instruction,
                           self.record.date, sorted(special.items()), version("transformers"))  # fmt: skip

    def messages(self, prompt: str, spans: Sequence[dict[str, int]]) -> list[Message]:
        """Return the conversation that asks for the last label, without the answer.

        With turns, each demonstration is a question and its answer; the instruction is part of the first question. With
        a message, everything before the last label is one question. White space at the ends of a message is left out:
        a template has its own between messages.
        """
        system = [] if self.system_instruction is None else [_message("system", self.system_instruction)]
        if self.demonstrations == "message":
            return [*system, _message("user", prompt[: spans[-1]["label"]])]
        turns: list[Message] = []
        asked_from = 0
        for span in spans[:-1]:
            turns.append(_message("user", prompt[asked_from : span["label"]]))
            turns.append(_message("assistant", prompt[span["label"] : span["end"]]))
            asked_from = span["end"]
        return [*system, *turns, _message("user", prompt[asked_from : spans[-1]["label"]])]

    def text(self, messages: Sequence[Message], *, closed: bool = True) -> str:
        """Return the text of a conversation, or if it is not closed, up to the end of its last message.

        Raises ModelError if the template refuses it.
        """
        try:
            text: str = self.tokenizer.apply_chat_template(
                list(messages),
                chat_template=self.template,
                tokenize=False,
                continue_final_message=not closed,
                date_string=DATE.strftime("%d %b %Y"),
                strftime_now=DATE.strftime,
                **_NO_THINKING,
            )
        except Exception as error:  # templates are programs of others, and can raise anything
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ModelError(f"The chat template of {self.model} refuses a conversation: {reason}") from error
        return text

    def before_answer(self, messages: Sequence[Message]) -> str:
        """Return the text of a conversation up to the answer to its last message."""
        text = self.text([*messages, _message("assistant", _ANSWER)], closed=False)
        if not text.endswith(_ANSWER):
            raise ModelError(
                f"The chat template of {self.model} does not write an answer as it is given, so that no label can be "
                "scored. Choose another --chat-template."
            )
        return text.removesuffix(_ANSWER)

    def check(self) -> None:
        """Raise ModelError unless the template writes all that conversations will hold."""
        one = [_message("user", "question one")]
        _require(self, one, "Choose another --chat-template, or none.")
        if self.system_instruction is not None:
            hint = "Leave out --system-instruction, or choose another --chat-template."
            one = [_message("system", self.system_instruction), *one]
            _require(self, one, hint)
        if self.demonstrations == "turns":
            more = [_message("assistant", "answer one"), _message("user", "question two")]
            _require(self, [*one, *more], "Choose --chat-demonstrations message.")

    def require_labels_in_place(self, labels: Iterable[str]) -> None:
        """Raise LabelError for a label that the template changes, so that what is scored is not what it writes."""
        new = dict.fromkeys(label for label in labels if label not in self._in_place)
        question = [_message("user", "question")]
        before = self.before_answer(question) if new else ""
        for label in new:
            if not self.text([*question, _message("assistant", label)]).startswith(before + label.rstrip()):
                raise LabelError(
                    f"The chat template of {self.model} changes the answer {label!r}, so that it cannot be scored. "
                    "Choose other label names, or another --chat-template.",
                    [label],
                )
            self._in_place.add(label)


def chat_texts(form: ChatForm, prompts: pl.DataFrame) -> ChatTexts:
    """Return the texts of prompts with `spans`, and their continuations.

    A text ends where the model's answer begins. Spaces that the template writes there belong to the continuations, as
    the one in "[/INST] positive" does, whose first token holds it; the space with which a continuation begins is the
    plain prompt's and is left out. With ask "text" the answer is part of the text.

    Args:
        form: of the conversations.
        prompts: schemas.PROMPTS, all with spans.

    Raises ModelError for a conversation that the template refuses, LabelError for labels that it changes.
    """
    texts, continuations = [], []
    rows = prompts.select("prompt", "ask", "spans", "continuations").iter_rows()
    for prompt, ask, spans, asked in rows:
        before = form.before_answer(form.messages(prompt, spans))
        context = before.rstrip(" ")
        answers = [answer.lstrip(" ") for answer in asked]
        if len(answers) > 1:  # one alone is a text, and no label
            form.require_labels_in_place(answers)
        texts.append(before + prompt[spans[-1]["label"] :].lstrip(" ") if ask == "text" else context)
        continuations.append([before[len(context) :] + answer for answer in answers])
    return ChatTexts(texts, continuations)


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content.strip()}


def _require(form: ChatForm, messages: Sequence[Message], hint: str) -> None:
    """Raise ModelError, ending in `hint`, unless the template takes these messages and writes each of them."""
    try:
        text = form.before_answer(messages)
    except ModelError as error:
        raise ModelError(f"{str(error).rstrip('.')}. {hint}") from error
    lost = [message["role"] for message in messages if message["content"] not in text]
    if lost:
        raise ModelError(f"The chat template of {form.model} leaves out a message of the {lost[0]}. {hint}")
