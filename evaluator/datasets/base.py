"""A loaded classification dataset: three disjoint splits, a label space and a template."""

from dataclasses import dataclass

import polars as pl

from evaluator.templates.template import MetaTemplate, Verbalizer

EXAMPLES = pl.Schema(
    {
        "source_row": pl.Int64(),  # row of the table that the splits are drawn from
        "texts": pl.List(pl.String()),  # one per text field, in the order of the template's prefixes
        "gold": pl.Int64(),  # index into the label space
    }
)


@dataclass(frozen=True, kw_only=True, eq=False)
class ClassificationDataset:
    """A labelled dataset, split. Row numbers within a split are the ids of its queries and demonstrations."""

    name: str
    calibration: pl.DataFrame  # EXAMPLES, as are the other two
    demonstration: pl.DataFrame
    test: pl.DataFrame
    text_fields: tuple[str, ...]  # names of an example's texts
    template: MetaTemplate
    verbalizer: Verbalizer
    alternative_templates: tuple[MetaTemplate, ...] = ()  # to compare with `template`; may include it
    instructions: tuple[str, ...] = ()  # alternative instructions, for methods that choose among them
    notes: tuple[str, ...] = ()  # decisions about the data, for the record
    fingerprint: str  # hex; changes with the source's bytes, the splits, the templates and the label names
