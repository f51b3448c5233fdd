"""What the sections of in-context PVI share: the definition that figures show, and the tables under each definition."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from evaluator.report.section import PackageFile
from evaluator.suites.in_context_pvi.report.figures import threshold_text
from evaluator.suites.in_context_pvi.report.sources import BY_SOURCE, has_several, set_name

UNIT = "bits"  # of PVI, under every definition

DRAWN = "paper"
"""The definition of figures, lists and the table of queries, whichever one the reader chooses for the other tables."""

Tables = Mapping[str, pl.DataFrame]


class DefinitionView(NamedTuple):
    """The tables under one definition."""

    definition: str
    is_drawn: bool  # predictions are drawn, not the most probable labels
    summary: list[dict[str, Any]]  # PVI_SUMMARY, with `threshold_text` and `set_name`
    consistency: list[dict[str, Any]]  # PVI_CONSISTENCY
    one_way: list[dict[str, Any]]
    repeated_measures: list[dict[str, Any]]
    annotators: list[dict[str, Any]]  # PVI_ANNOTATORS, with `set_name`


class ViewsContext(NamedTuple):
    """The tables under each definition."""

    views: Sequence[DefinitionView]


def definition_view(all_tables: Tables, definition: str, datasets: Sequence[str]) -> DefinitionView:
    """Return the tables under one definition, in order of dataset and source of demonstrations."""
    several = has_several(all_tables["pvi"])

    def rows(name: str) -> list[dict[str, Any]]:
        table = all_tables[name].filter(definition=definition).sort(BY_SOURCE, maintain_order=True)
        if "dataset" not in table.columns:
            return table.to_dicts()
        return sorted(table.to_dicts(), key=lambda row: datasets.index(row["dataset"]))

    def with_set_name(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"set_name": set_name(row["demonstrations"], row["demonstration_set"], several=several)}

    summary = [
        with_set_name(row) | {"threshold_text": threshold_text(row["threshold"], UNIT)} for row in rows("pvi_summary")
    ]
    return DefinitionView(
        definition,
        definition == "released",
        summary,
        consistency=rows("pvi_consistency"),
        one_way=rows("pvi_one_way"),
        repeated_measures=rows("pvi_repeated_measures"),
        annotators=[with_set_name(row) for row in rows("pvi_annotators")],
    )


def template(name: str) -> PackageFile:
    """Return a template of this suite by name."""
    return PackageFile("evaluator.suites.in_context_pvi", f"templates/{name}.html")
