"""Read typed questions about the rows of a table.

The answer to a question is one of several options, yes or no, or a level of a scale.

A file of questions is a TOML file with a table for each question:

    [queue]
    type = "choice"
    instructions = "Which team should read this?"
    options = {billing = "payments and invoices", technical = ""}
    gold = "team"
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from evaluator.errors import DatasetError, shown
from evaluator.files.toml_files import converted, read_toml
from evaluator.redaction import folded

QuestionKind = Literal["choice", "yes-no", "score"]

NO, YES = "no", "yes"
"""Options of a yes-or-no question, in this order."""

REPEAT, FORM, ORDER, WORDING = "repeat", "form", "order", "wording"
NEGATION, SPACING, AMONG = "negation", "spacing", "among"
VARIED = (REPEAT, FORM, ORDER, WORDING, NEGATION, SPACING, AMONG)
"""Parts in which a question is asked again with a change that should not matter. REPEAT changes nothing and exists only
for services; FORM changes whether options have letters and exists only for prompts."""

NONE_OF_THESE = "none of the other options"
"""Description of the option `none` of a question, for inputs that no other option fits."""


class Option(NamedTuple):
    """An option of a question, or a level of its scale."""

    name: str
    description: str = ""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A typed question about each row of a table."""

    name: str
    kind: QuestionKind
    instructions: str
    options: tuple[Option, ...]  # options, or levels from the lowest; without those of `options_column`
    options_column: str | None = None  # column with the options of each row
    gold: str | None = None  # column with the true option, level, or distribution over options
    none: str | None = None  # option that is the true one for rows without a gold value
    wordings: tuple[str, ...] = ()  # other instructions with the same meaning
    negated: str | None = None  # instructions with the opposite meaning, for a yes-or-no question


@dataclass(frozen=True, kw_only=True)
class _Stated:
    """The entries of a question's table in a file; read_questions has an example, Question the meanings."""

    type: QuestionKind
    instructions: str
    options: dict[str, str] | list[str] = field(default_factory=dict)
    levels: list[str] = field(default_factory=list)
    criteria: dict[str, str] = field(default_factory=dict)
    options_column: str | None = None
    gold: str | None = None
    none: str | None = None
    wordings: list[str] = field(default_factory=list)
    negated: str | None = None


def read_questions(path: Path) -> tuple[Question, ...]:
    """Return the questions of a TOML file, in order.

    Raises DatasetError, naming file and question, for a file without questions and for entries that do not fit.
    """
    content = read_toml(path, DatasetError)
    if not content:
        raise DatasetError(f'{path} has no question. Write a table for each, as in [queue] with type = "choice".')
    questions = tuple(_question(path, name, stated) for name, stated in content.items())
    if len(questions) > 1 and not are_different([*content]):
        raise DatasetError(
            f"{path}: names of questions are all different; found {shown([*content])}. Case and white space make no "
            "difference."
        )
    return questions


def _question(path: Path, name: str, stated: object) -> Question:
    where = f"{path}, question {name!r}"
    if not isinstance(stated, dict) or not name.strip():
        raise DatasetError(f"{where}: a table with a name was expected, as in [queue].")
    if stated.get("type") not in (kinds := get_args(QuestionKind)):
        raise DatasetError(f"{where}: `type` is one of {', '.join(kinds)}; found {shown(stated.get('type'))}.")
    read = converted(stated, _Stated, DatasetError, where)
    for key, value in stated.items():
        if key != "instructions" and isinstance(value, str) and not value.strip():
            raise DatasetError(f"{where}: `{key}` may not be blank.")
    others = [*read.wordings, *([read.negated] if read.negated else [])]
    if others and not are_different([read.instructions, *others]):
        raise DatasetError(
            f"{where}: `wordings` and `negated` differ from `instructions` and from each other, and none is blank."
        )
    none = read.none and read.none.strip()
    same: dict[str, Any] = {key: getattr(read, key) for key in ("instructions", "options_column", "gold", "negated")}
    options = _options(where, read, none)
    return Question(name=name, kind=read.type, options=options, wordings=tuple(read.wordings), none=none, **same)


OF_TYPE = {"choice": ("options", "options_column", "none"), "yes-no": ("criteria", "negated"), "score": ("levels",)}
"""Type of a question -> keys that only this type allows; the first key has its options."""


def _options(where: str, read: _Stated, none: str | None) -> tuple[Option, ...]:
    """Return the options of a question, with `none`. Raises DatasetError for entries that do not fit its type."""
    for kind, keys in OF_TYPE.items():
        if wrong := [key for key in keys if kind != read.type and getattr(read, key)]:
            raise DatasetError(f"{where}: `{wrong[0]}` is for questions of the type {kind}; this one is {read.type}.")
    if read.type == "yes-no":
        if unknown := read.criteria.keys() - {YES, NO}:
            raise DatasetError(
                f"{where}: `criteria` says what {YES} and {NO} mean, found {', '.join(sorted(unknown))}."
            )
        return tuple(Option(name, read.criteria.get(name, "")) for name in (NO, YES))
    stated = read.levels if read.type == "score" else read.options
    if read.options_column is not None and stated:
        raise DatasetError(f"{where}: `options_column` and a list of options exclude each other. Drop one.")
    options = listed_options(stated, none)
    names = [option.name for option in options]
    if read.options_column is None and not are_different(names):
        raise DatasetError(
            f"{where}: `{OF_TYPE[read.type][0]}` are two or more, all different and none blank; found {shown(names)}. "
            "Case and white space make no difference."
        )
    return tuple(options)


def listed_options(stated: Mapping[Any, object] | Sequence[object], none: str | None) -> list[Option]:
    """Return options from a list of names or a map of name -> description; `none` is added last if it is missing."""
    pairs = stated.items() if isinstance(stated, Mapping) else ((name, "") for name in stated)
    options = [Option(option_text(name).strip(), str(description or "")) for name, description in pairs]
    if none is not None and none not in {option.name for option in options}:
        options.append(Option(none, NONE_OF_THESE))
    return options


def option_text(option: object) -> str:
    """Return an option as a text; a value that is not a text, such as true, is written as JSON."""
    return option if isinstance(option, str) else json.dumps(option)


def are_different(texts: Sequence[str]) -> bool:
    """Return whether there are two or more texts, none of them blank, and no two equal once they are folded."""
    different = set(map(folded, texts))
    return len(texts) > 1 and len(different) == len(texts) and "" not in different
