"""Build the section in which a reader sorts, filters and reads single queries; assets/queries.js draws it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.report.section import PackageFile, Section, core_template

MAX_CHARACTERS = 600
"""Characters of a text that the table shows: a hundred passages of ten kilobytes would be most of the page."""


class NumberColumn(NamedTuple):
    """A column of numbers, before those of the gold label, the predicted label and the text."""

    name: str  # of the values in a run
    title: str
    digits: int  # after the decimal point
    width: float  # rem


class QueriesContext(NamedTuple):
    """Variables of the template queries.html."""

    note: str
    tables: str
    columns: Sequence[NumberColumn]
    max_characters: int
    query_data: Markup


def queries_section(
    data: Sequence[Mapping[str, Any]],
    columns: Sequence[NumberColumn],
    *,
    note: str,
    tables: str,
    is_folded: bool = False,
) -> Section:
    """Return the section of single queries.

    Args:
        data: datasets with `name`, `labels`, the columns `id`, `gold` and `text` of their queries, and `runs`. A run
            has `name`, the column `pred` and those of `columns`, in the same order of queries, null where missing. It
            may have `probabilities`, a list a query in the order of labels, and `asked`, an index into `prompts` of the
            dataset: columns of whole prompts.
        columns: of numbers; the first one sorts.
        note: what the table shows.
        tables: where its data are, for readers without JavaScript.
        is_folded: closed until the reader opens it.
    """
    return Section(
        anchor="queries",
        title="Query by query",
        subtitle="sort, filter and read them" if is_folded else "",
        kind="query-table",
        navigation="Query by query",
        is_folded=is_folded,
        template=core_template("queries.html"),
        context=QueriesContext(note, tables, columns, MAX_CHARACTERS, script_json(data)),
        style=PackageFile("evaluator.report", "assets/queries.css"),
        script=PackageFile("evaluator.report", "assets/queries.js"),
    )


def script_json(data: object) -> Markup:
    """Return data as JSON that is safe within a script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # "</script>" in a text would end the element.
    return Markup(text.replace("<", "\\u003c"))  # noqa: S704


def cut_text(text: pl.Expr) -> pl.Expr:
    """Cut a text to MAX_CHARACTERS."""
    is_long = text.str.len_chars() > MAX_CHARACTERS
    return pl.when(is_long).then(text.str.head(MAX_CHARACTERS) + " …").otherwise(text)
