"""Templates of classification and of multiple choice, which render examples as text with Polars expressions.

nine_templates varies four attributes of a template with three levels each. Any two levels of two attributes occur
together in exactly one of the nine templates. For datasets without levels of their own there are general levels and
instructions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import polars as pl

from evaluator.errors import TemplateError, shown
from evaluator.redaction import name_fault


@dataclass(frozen=True, kw_only=True)
class Verbalizer:
    """The label space: label index -> label name, which is shown in demonstrations and scored after a prompt."""

    label_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.label_names:
            raise TemplateError("A label space needs at least one label name, got none.")
        if not all(map(str.strip, self.label_names)):
            raise TemplateError(f"A label name cannot be empty or blank, got {list(self.label_names)}.")
        if fault := next(filter(None, map(name_fault, self.label_names)), None):
            raise TemplateError(f"The name of a label {fault}. Change it in the table, or name it with --labels.")
        # "good " continues "good" and so is less probable, whatever the query.
        if len({name.rstrip(" ") for name in self.label_names}) < len(self.label_names):
            raise TemplateError(f"Label names must differ, not only in spaces at the end, got {[*self.label_names]}.")

    def text(self, label: pl.Expr) -> pl.Expr:
        """Return the label names of label indices. Polars raises InvalidOperationError for any other index."""
        return label.replace_strict(range(len(self.label_names)), self.label_names, return_dtype=pl.String)


@dataclass(frozen=True, kw_only=True)
class MetaTemplate:
    """The text around inputs and labels. With two text fields and one demonstration, a prompt reads

        instruction
        prefix_0 text_0 affix_0 prefix_1 text_1 affix_1 label_prefix label label_affix      (the demonstration)
        query_prefix prefix_0 text_0 affix_0 prefix_1 text_1 affix_1 label_prefix           (the query)

    with nothing between the parts; the line ends and spaces above are not part of it (Cho & Inoue 2025, figure 3).
    """

    instruction: str = ""
    input_prefixes: tuple[str, ...]  # one for each text field
    input_affixes: tuple[str, ...]  # one for each text field
    label_prefix: str
    label_affix: str
    query_prefix: str = ""

    def __post_init__(self) -> None:
        for entry in fields(self):
            value, is_several = getattr(self, entry.name), entry.name.startswith("input_")
            texts = value if is_several else [value]
            if not isinstance(texts, tuple | list) or not all(isinstance(text, str) for text in texts):
                kind = "a tuple of texts, one for each text field" if is_several else "a text"
                raise TemplateError(f"{entry.name} of a template is {kind}, got {shown(value)}.")
        if not self.input_prefixes or len(self.input_prefixes) != len(self.input_affixes):
            raise TemplateError(
                f"A template needs one input prefix and one input affix a text field, got the prefixes "
                f"{list(self.input_prefixes)} and the affixes {list(self.input_affixes)}."
            )

    def require_fields(self, text_fields: Sequence[str]) -> None:
        """Raise TemplateError unless the template has one prefix and affix for each text field."""
        if len(self.input_prefixes) != len(text_fields):
            raise TemplateError(
                f"The template has {len(self.input_prefixes)} input prefixes {list(self.input_prefixes)}, but examples "
                f"have {len(text_fields)} text fields {list(text_fields)}. Give one prefix and one affix a field."
            )

    def inputs(self, texts: pl.Expr) -> pl.Expr:
        """Return the input part of each example, String. `texts` is List[String], one text for each field."""
        fields = enumerate(zip(self.input_prefixes, self.input_affixes, strict=True))
        return pl.concat_str(
            part for field, (prefix, affix) in fields for part in (pl.lit(prefix), texts.list.get(field), pl.lit(affix))
        )

    def before_label(self, texts: pl.Expr) -> pl.Expr:
        """Return the text of each example up to its label."""
        return pl.concat_str(self.inputs(texts), pl.lit(self.label_prefix))

    def demonstration(self, texts: pl.Expr, label_text: pl.Expr) -> pl.Expr:
        """Return each example as a demonstration, with its label."""
        return pl.concat_str(self.before_label(texts), label_text, pl.lit(self.label_affix))

    def query(self, texts: pl.Expr) -> pl.Expr:
        """Return each example as a query, which ends in front of its label."""
        return pl.concat_str(pl.lit(self.query_prefix), self.before_label(texts))


LABEL_SPACE = " "
"""The space between a prompt and the choice scored after it; it is part of the choice's text."""


@dataclass(frozen=True, kw_only=True)
class ChoiceTemplate:
    """The text around inputs and choices of multiple choice. With one demonstration, a prompt reads

        instruction separator                (left out if the instruction is empty)
        inputs " " choice separator          (the demonstration, with its first correct choice)
        inputs                               (the query; " " and a choice are scored after it)

    `inputs` is input_prefix, the input, choice_prefix and choice for each listed choice, and output_prefix, without
    white space at its ends. The defaults are those of BIG-bench's json_task format; white space is removed as in its
    published `inputs`; demonstrations are joined with " " and a line end as in Yauney & Mimno 2024.
    """

    instruction: str = ""
    input_prefix: str = "\nQ: "
    output_prefix: str = "\nA: "
    choice_prefix: str | None = "\n  choice: "  # None: the choices are not listed in the prompt
    separator: str = "\n"

    @property
    def opening(self) -> str:
        return self.instruction + self.separator if self.instruction else ""

    def inputs(self, text: pl.Expr, shown_choices: pl.Expr) -> pl.Expr:
        """Return each example as a query, which ends before the space in front of its choice.

        Args:
            text: String, the input.
            shown_choices: List[String], the choices in the order of the prompt.
        """
        parts = [pl.lit(self.input_prefix), text]
        if self.choice_prefix is not None:
            parts.append(shown_choices.list.eval(pl.lit(self.choice_prefix) + pl.element()).list.join(""))
        return pl.concat_str(*parts, pl.lit(self.output_prefix)).str.strip_chars()

    def demonstration(self, text: pl.Expr, shown_choices: pl.Expr, choice: pl.Expr) -> pl.Expr:
        """Return each example as a demonstration, with its correct choice."""
        return pl.concat_str(self.inputs(text, shown_choices), pl.lit(LABEL_SPACE), choice, pl.lit(self.separator))


def continuations(choices: pl.Expr) -> pl.Expr:
    """Return the texts that are scored after a prompt, List[String]: each choice with a space in front."""
    return choices.list.eval(pl.lit(LABEL_SPACE) + pl.element())


ORTHOGONAL_ARRAY = (
    # Taguchi & Konishi 1987, L9(3^4): levels of instruction, input prefixes, label prefix and label affix.
    (0, 0, 0, 0),
    (0, 1, 1, 1),
    (0, 2, 2, 2),
    (1, 0, 1, 2),
    (1, 1, 2, 0),
    (1, 2, 0, 1),
    (2, 0, 2, 1),
    (2, 1, 0, 2),
    (2, 2, 1, 0),
)


INSTRUCTIONS = (
    "Which label fits this text? ",
    "How should this text be classified? ",
    "What is the right label of this text? ",
    "Which of the labels describes this text? ",
    "What class does this text belong to? ",
)
"""Five wordings of the same instruction, for any task. (StaICC has five for each of its datasets.)"""


@dataclass(frozen=True, kw_only=True)
class Alternatives:
    """Levels 1 and 2 of each attribute in which templates differ; None: general levels."""

    instructions: tuple[str, str] | None = None
    input_prefixes: tuple[tuple[str, ...], tuple[str, ...]] | None = None  # in each level one for each text field
    label_prefixes: tuple[str, str] | None = None
    label_affixes: tuple[str, str] | None = None


def nine_templates(default: MetaTemplate, stated: Alternatives) -> tuple[MetaTemplate, ...]:
    """Return the nine templates of ORTHOGONAL_ARRAY; the first is `default`, which has level 0 of all attributes.

    Levels 1 and 2 are those of `stated`, or general levels that differ from `default`: the levels of most StaICC
    datasets, without words for a task. Source: Cho & Inoue 2025, appendix B.1 ("Candidate template").

    Raises TemplateError if two levels of an attribute are equal.
    """
    n_fields = len(default.input_prefixes)
    numbers = [""] if n_fields == 1 else [f" {number}" for number in range(1, n_fields + 1)]
    prefixes = [tuple(f"{name}{number}: " for number in numbers) for name in ("text", "input", "sentence")]
    others: dict[str, Sequence[object]] = {  # in the order of ORTHOGONAL_ARRAY's columns
        "instruction": stated.instructions or ("Classify the following text. ", *INSTRUCTIONS[:2]),
        "input_prefixes": stated.input_prefixes or prefixes,
        "label_prefix": stated.label_prefixes or ("label: ", "Label: ", "answer: "),
        "label_affix": stated.label_affixes or (" ", "\t", "\n"),
    }
    levels: dict[str, list[Any]] = {}
    for part, texts in others.items():
        levels[part] = list(dict.fromkeys([getattr(default, part), *texts]))[:3]
        if len(levels[part]) < 3:
            raise TemplateError(
                f"`alternatives` has one level of `{part}` twice, or the template's own, which compares a text with "
                "itself. Write two others."
            )
    return tuple(
        replace(default, **{part: texts[level] for (part, texts), level in zip(levels.items(), row, strict=True)})
        for row in ORTHOGONAL_ARRAY
    )
