"""Templates of multiple choice, which turn an input and its choices into text, as Polars expressions."""

from dataclasses import dataclass

import polars as pl

LABEL_SPACE = " "
"""The space between a prompt and the choice scored after it; it is part of the choice's text."""


@dataclass(frozen=True, kw_only=True)
class ChoiceTemplate:
    """The text around inputs and choices. With one demonstration a prompt reads

        instruction separator                (left out if the instruction is empty)
        inputs " " choice separator          (the demonstration, with its first correct choice)
        inputs                               (the query; " " and a choice are scored after it)

    where `inputs` is input_prefix input output_prefix, with choice_prefix and a choice for each choice before the
    output prefix, stripped of the white space around it. The defaults are those of BIG-bench's json_task format, the
    stripping is that of its published `inputs`, and joining with " " and a line end is what Yauney & Mimno 2024 did.
    """

    instruction: str = ""
    input_prefix: str = "\nQ: "
    output_prefix: str = "\nA: "
    choice_prefix: str | None = "\n  choice: "  # None: choices are not listed in the text
    separator: str = "\n"

    @property
    def opening(self) -> str:
        return self.instruction + self.separator if self.instruction else ""

    def inputs(self, text: pl.Expr, shown_choices: pl.Expr) -> pl.Expr:
        """Render each example as a query, which ends before the space in front of its label.

        Args:
            text: String, the input.
            shown_choices: List[String], its choices in the order in which they are listed.
        """
        listed = [] if self.choice_prefix is None else [_listed(self.choice_prefix, shown_choices)]
        whole = pl.concat_str(pl.lit(self.input_prefix), text, *listed, pl.lit(self.output_prefix))
        return whole.str.strip_chars()

    def demonstration(self, text: pl.Expr, shown_choices: pl.Expr, choice: pl.Expr) -> pl.Expr:
        """Render each example as a demonstration, with its label."""
        return pl.concat_str(self.inputs(text, shown_choices), pl.lit(LABEL_SPACE), choice, pl.lit(self.separator))


def continuations(choices: pl.Expr) -> pl.Expr:
    """Return the texts scored after a prompt: a space and each choice."""
    return choices.list.eval(pl.lit(LABEL_SPACE) + pl.element())


def _listed(prefix: str, choices: pl.Expr) -> pl.Expr:
    return choices.list.eval(pl.lit(prefix) + pl.element()).list.join("")
