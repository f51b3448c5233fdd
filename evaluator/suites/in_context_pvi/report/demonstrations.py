"""Collect rows and lists of the section about demonstrations chosen by PVI. Nothing is computed here."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from evaluator.report.query_rows import cut_text
from evaluator.suites.in_context_pvi.report.sources import BY_SOURCE, run_name
from evaluator.suites.in_context_pvi.schema import PVI_ORDERS


class ChosenSet(NamedTuple):
    """The demonstrations of one chosen set."""

    name: str  # of its run
    rows: list[dict[str, Any]]  # PVI_CHOSEN with `label`, in prompt order


class ChosenSets(NamedTuple):
    """The chosen sets of one dataset."""

    dataset: str
    sets: list[ChosenSet]


class DemonstrationsView(NamedTuple):
    """The comparison of chosen demonstrations with those of the suite, and lists of the chosen ones."""

    suite_source: str  # PviSource of the suite's sets
    rows: list[dict[str, Any]]  # PVI_DEMONSTRATIONS, by dataset, shots and source
    chosen: list[ChosenSets]


def demonstrations_view(
    demonstrations: pl.DataFrame,
    chosen: pl.DataFrame,
    label_names: Mapping[str, Sequence[str]],
    datasets: Sequence[str],
) -> DemonstrationsView | None:
    """Collect rows and lists by dataset; return None where nothing was chosen by PVI.

    Args:
        demonstrations: schema.PVI_DEMONSTRATIONS.
        chosen: schema.PVI_CHOSEN.
        label_names: dataset -> its label space.
        datasets: in the order of the page.
    """
    if chosen.is_empty():
        return None
    (suite_source,) = set(demonstrations["demonstrations"]) - {*PVI_ORDERS}
    by_dataset = pl.col("dataset").cast(pl.Enum(datasets))
    rows = demonstrations.sort(by_dataset, "n_shots", BY_SOURCE).to_dicts()
    sets = [_chosen_sets(chosen, name, label_names[name]) for name in datasets]
    return DemonstrationsView(suite_source, rows, sets)


def _chosen_sets(chosen: pl.DataFrame, dataset: str, labels: Sequence[str]) -> ChosenSets:
    label = pl.col("gold").replace_strict(range(len(labels)), labels, return_dtype=pl.String)
    named = chosen.filter(dataset=dataset).with_columns(cut_text(pl.col("text")), label=label)
    runs = named.sort(BY_SOURCE, "n_shots", "demonstration_set", "place").partition_by(
        ["n_shots", "demonstrations", "demonstration_set"], as_dict=True, maintain_order=True
    )
    sets = [
        ChosenSet(run_name(n_shots, str(source), number, several=True), rows.to_dicts())
        for (n_shots, source, number), rows in runs.items()
    ]
    return ChosenSets(dataset, sets)
