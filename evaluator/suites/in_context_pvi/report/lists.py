"""Lists of the hardest queries, and of those whose label looks wrong."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from evaluator.report.section import Section
from evaluator.suites.in_context_pvi.report.views import DRAWN, Tables, template

N_LISTED = 5
"""Number of queries of each gold label, and of likely mislabelled ones of each dataset, listed on the page."""


class HardestView(NamedTuple):
    """The hardest queries of one dataset, and those whose label looks wrong."""

    name: str
    labels: Sequence[str]
    hardest: dict[str, list[dict[str, Any]]]  # name of the gold label -> rows of PVI_HARDEST
    mislabelled: list[dict[str, Any]]  # rows of PVI_MISLABELLED
    n_mislabelled: int


class HardestContext(NamedTuple):
    """Lists of hard and likely mislabelled queries."""

    drawn: str  # definition
    n_listed: int
    suite_source: str  # PviSource of the suite's demonstrations; "" if nothing was chosen by PVI
    views: Sequence[HardestView]


def listed_section(
    drawn: Tables, datasets: Sequence[str], label_names: Mapping[str, Sequence[str]], suite_source: str
) -> Section:
    """Build the section with the lists of hard and likely mislabelled queries."""
    hardest = [_hardest_view(name, drawn, label_names[name]) for name in datasets]
    return Section(
        anchor="listed",
        title="The hardest queries, and labels that look wrong",
        navigation="Hardest queries",
        template=template("hardest"),
        context=HardestContext(DRAWN, N_LISTED, suite_source, hardest),
    )


def _hardest_view(name: str, drawn: Tables, labels: Sequence[str]) -> HardestView:
    hardest, mislabelled = (drawn[table].filter(dataset=name) for table in ("pvi_hardest", "pvi_mislabelled"))
    listed = hardest.filter(pl.col("rank") <= N_LISTED).partition_by("gold", as_dict=True, maintain_order=True)
    return HardestView(
        name,
        labels,
        hardest={labels[int(gold)]: rows.to_dicts() for (gold,), rows in listed.items()},
        mislabelled=mislabelled.filter(pl.col("rank") <= N_LISTED).to_dicts(),
        n_mislabelled=mislabelled.height,
    )
