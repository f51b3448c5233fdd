"""Nine templates from four attributes with three levels: any two levels of two attributes occur together once."""

import dataclasses

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
