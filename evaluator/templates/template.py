"""Templates of classification, which turn the texts and label of an example into text, as Polars expressions."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from evaluator.errors import TemplateError


@dataclass(frozen=True, kw_only=True)
class Verbalizer:
    """The label space: the text of each label index, shown in demonstrations and scored after a prompt."""

    label_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.label_names:
            raise TemplateError("A label space needs at least one label name, got none.")
        if "" in self.label_names:
            raise TemplateError(f"A label name cannot be empty, got {list(self.label_names)}.")
        if len(set(self.label_names)) < len(self.label_names):
            raise TemplateError(f"Label names must differ, got {list(self.label_names)}.")

    def text(self, label: pl.Expr) -> pl.Expr:
        """Return the names of label indices; an index outside the label space raises Polars' InvalidOperationError."""
        return label.replace_strict(range(len(self.label_names)), self.label_names, return_dtype=pl.String)


@dataclass(frozen=True, kw_only=True)
class MetaTemplate:
    """The text around inputs and labels. With two text fields and one demonstration, a prompt reads

        instruction
        prefix_0 text_0 affix_0 prefix_1 text_1 affix_1 label_prefix label label_affix      (the demonstration)
        query_prefix prefix_0 text_0 affix_0 prefix_1 text_1 affix_1 label_prefix           (the query)

    with nothing between the parts, the line ends above included (Cho & Inoue 2025, figure 3).
    """

    instruction: str = ""
    input_prefixes: tuple[str, ...]  # one per text field
    input_affixes: tuple[str, ...]
    label_prefix: str
    label_affix: str
    query_prefix: str = ""

    def __post_init__(self) -> None:
        if not self.input_prefixes or len(self.input_prefixes) != len(self.input_affixes):
            raise TemplateError(
                f"A template needs one input prefix and one input affix a text field, got the prefixes "
                f"{list(self.input_prefixes)} and the affixes {list(self.input_affixes)}."
            )

    def require_fields(self, text_fields: Sequence[str]) -> None:
        """Raise TemplateError unless this template has one place for each text field."""
        if len(self.input_prefixes) != len(text_fields):
            raise TemplateError(
                f"The template has {len(self.input_prefixes)} input prefixes {list(self.input_prefixes)}, but examples "
                f"have {len(text_fields)} text fields {list(text_fields)}. Give one prefix and one affix a field."
            )

    def inputs(self, texts: pl.Expr) -> pl.Expr:
        """Render the input part of each example; `texts` is List[String], one per field."""
        fields = enumerate(zip(self.input_prefixes, self.input_affixes, strict=True))
        return pl.concat_str(
            part for field, (prefix, affix) in fields for part in (pl.lit(prefix), texts.list.get(field), pl.lit(affix))
        )

    def before_label(self, texts: pl.Expr) -> pl.Expr:
        """Render each example up to its label."""
        return pl.concat_str(self.inputs(texts), pl.lit(self.label_prefix))

    def demonstration(self, texts: pl.Expr, label_text: pl.Expr) -> pl.Expr:
        """Render each example as a demonstration, with its label."""
        return pl.concat_str(self.before_label(texts), label_text, pl.lit(self.label_affix))

    def query(self, texts: pl.Expr) -> pl.Expr:
        """Render each example as a query, which ends in front of its label."""
        return pl.concat_str(pl.lit(self.query_prefix), self.before_label(texts))
