"""Nine templates from four attributes with three levels: any two levels of two attributes occur together once.

For a dataset that states no levels, levels and instructions that suit any task.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from evaluator.templates.template import MetaTemplate

ORTHOGONAL_ARRAY = (
    # Taguchi & Konishi 1987, L9(3^4): the level of instruction, input prefixes, label prefix and label affix.
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


def orthogonal_templates(
    default: MetaTemplate,
    *,
    instructions: tuple[str, str],
    input_prefixes: tuple[tuple[str, ...], tuple[str, ...]],
    label_prefixes: tuple[str, str],
    label_affixes: tuple[str, str],
) -> tuple[MetaTemplate, ...]:
    """Return the templates of ORTHOGONAL_ARRAY, `default` first: level 0 of each attribute is that of `default`.

    Each pair holds levels 1 and 2; a level of input prefixes has one text per field. Source: Cho & Inoue 2025,
    appendix B.1 ("Candidate template").
    """
    return tuple(
        dataclasses.replace(
            default,
            instruction=(default.instruction, *instructions)[instruction],
            input_prefixes=(default.input_prefixes, *input_prefixes)[prefixes],
            label_prefix=(default.label_prefix, *label_prefixes)[label_prefix],
            label_affix=(default.label_affix, *label_affixes)[label_affix],
        )
        for instruction, prefixes, label_prefix, label_affix in ORTHOGONAL_ARRAY
    )


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
