"""Tables of demonstrations that were chosen by PVI to the rows and lists a reader sees. Nothing is computed here."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from evaluator.suites.in_context_pvi.report_queries import cut_text
from evaluator.suites.in_context_pvi.report_sources import BY_SOURCE, run_name
from evaluator.suites.in_context_pvi.schema import PVI_ORDERS


class ChosenSet(NamedTuple):
    name: str  # of its run
    rows: list[dict[str, Any]]  # PVI_CHOSEN with `label`, in prompt order


class ChosenSets(NamedTuple):
    """What was chosen of one dataset."""

    dataset: str
    sets: list[ChosenSet]


class DemonstrationsView(NamedTuple):
    own: str  # source of the suite's own sets
    rows: list[dict[str, Any]]  # PVI_DEMONSTRATIONS, by dataset, shots and source
    chosen: list[ChosenSets]


def demonstrations_view(
    demonstrations: pl.DataFrame,
    chosen: pl.DataFrame,
    label_names: Mapping[str, Sequence[str]],
    datasets: Sequence[str],
) -> DemonstrationsView | None:
    """None where nothing was chosen by PVI.

    Args:
        demonstrations: schemas.pvi.PVI_DEMONSTRATIONS.
        chosen: schemas.pvi.PVI_CHOSEN.
        label_names: dataset -> its label space.
        datasets: in the order in which they are shown.
    """
    if chosen.is_empty():
        return None
    (own,) = set(demonstrations["demonstrations"]) - {*PVI_ORDERS}
    place = pl.col("dataset").cast(pl.Enum(datasets))
    rows = demonstrations.sort(place, "n_shots", BY_SOURCE).to_dicts()
    return DemonstrationsView(own, rows, [_chosen_sets(chosen, name, label_names[name]) for name in datasets])


def _chosen_sets(chosen: pl.DataFrame, dataset: str, labels: Sequence[str]) -> ChosenSets:
    own = chosen.filter(dataset=dataset).with_columns(cut_text(pl.col("text")))
    named = own.with_columns(label=pl.col("gold").replace_strict(range(len(labels)), labels, return_dtype=pl.String))
    runs = named.sort(BY_SOURCE, "n_shots", "demonstration_set", "place").partition_by(
        ["n_shots", "demonstrations", "demonstration_set"], as_dict=True, maintain_order=True
    )
    sets = [
        ChosenSet(run_name(n_shots, str(source), number, several=True), rows.to_dicts())
        for (n_shots, source, number), rows in runs.items()
    ]
    return ChosenSets(dataset, sets)
