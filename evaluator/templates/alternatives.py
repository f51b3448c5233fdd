"""Choose the nine templates and the instructions of a dataset that states none, from its default template."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from evaluator.templates.orthogonal_array import orthogonal_templates
from evaluator.templates.template import MetaTemplate

T = TypeVar("T")

INSTRUCTIONS = (
    "Which label fits this text? ",
    "How should this text be classified? ",
    "What is the right label of this text? ",
    "Which of the labels describes this text? ",
    "What class does this text belong to? ",
)
"""Five wordings of one question, which suit any task. (StaICC has five for each of its datasets.)"""

_TEMPLATE_INSTRUCTIONS = ("Classify the following text. ", *INSTRUCTIONS[:2])
_FIELDS = ("text", "input", "sentence")
_LABEL_PREFIXES = ("label: ", "Label: ", "answer: ")
_LABEL_AFFIXES = (" ", "\t", "\n")


@dataclass(frozen=True, kw_only=True)
class Alternatives:
    """Two levels of each attribute that templates differ in; None: levels that suit any task."""

    instructions: tuple[str, str] | None = None
    input_prefixes: tuple[tuple[str, ...], tuple[str, ...]] | None = None  # one per text field
    label_prefixes: tuple[str, str] | None = None
    label_affixes: tuple[str, str] | None = None


def nine_templates(default: MetaTemplate, stated: Alternatives) -> tuple[MetaTemplate, ...]:
    """Return orthogonal_templates, with levels that differ from those of `default` where none are stated.

    The levels for any task are those that most StaICC datasets have, without their words for the task.
    """
    n_fields = len(default.input_prefixes)
    fields = [(name,) if n_fields == 1 else tuple(f"{name} {n + 1}" for n in range(n_fields)) for name in _FIELDS]
    prefixes = [tuple(f"{name}: " for name in names) for names in fields]
    return orthogonal_templates(
        default,
        instructions=stated.instructions or _two(_TEMPLATE_INSTRUCTIONS, default.instruction),
        input_prefixes=stated.input_prefixes or _two(prefixes, default.input_prefixes),
        label_prefixes=stated.label_prefixes or _two(_LABEL_PREFIXES, default.label_prefix),
        label_affixes=stated.label_affixes or _two(_LABEL_AFFIXES, default.label_affix),
    )


def _two(levels: Sequence[T], default: T) -> tuple[T, T]:
    """Return the first two levels that are not the default."""
    first, second, *_ = (level for level in levels if level != default)
    return first, second
