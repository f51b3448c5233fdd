"""Sections about whether a query keeps its PVI across runs, and about annotators."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import polars as pl

from evaluator.report.section import Section
from evaluator.suites.in_context_pvi.report.sources import BY_SOURCE, has_several
from evaluator.suites.in_context_pvi.report.views import DRAWN, DefinitionView, Tables, ViewsContext, template


class HeatMap(NamedTuple):
    """Pearson correlations between all runs of a dataset and source of demonstrations."""

    title: str
    dataset: str
    names: list[str]
    rows: list[list[dict[str, Any] | None]]  # PVI_PAIRS; None on the diagonal and where two runs share no query


class StabilityContext(NamedTuple):
    """Correlations between runs, and analyses of variance."""

    drawn: str  # definition
    heat_maps: Sequence[HeatMap]
    views: Sequence[DefinitionView]
    several: bool  # demonstrations are of several sources


def stability_sections(drawn: Tables, datasets: Sequence[str], views: Sequence[DefinitionView]) -> Iterator[Section]:
    """Yield the agreement between runs, and between PVI and annotators if there are any."""
    heat_maps, several = list(_run_maps(drawn["pvi_pairs"], datasets)), has_several(drawn["pvi_summary"])
    yield Section(
        anchor="stability",
        title="Does a query keep its PVI?",
        kind="pvi",
        navigation="Stability",
        template=template("stability"),
        context=StabilityContext(DRAWN, heat_maps, views, several),
    )
    if any(view.annotators for view in views):
        yield Section(
            anchor="annotators",
            title="PVI and annotators",
            kind="pvi",
            navigation="Annotators",
            template=template("annotators"),
            context=ViewsContext(views),
        )


def _run_maps(pairs: pl.DataFrame, datasets: Sequence[str]) -> Iterator[HeatMap]:
    several = has_several(pairs)
    ends = [
        pl.format("{}-shot, set {}", f"{end}_n_shots", f"{end}_demonstration_set").alias(end)
        for end in ("first", "second")
    ]
    for dataset in datasets:
        dataset_pairs = pairs.filter(dataset=dataset).sort(BY_SOURCE, maintain_order=True).with_columns(ends)
        for (source,), rows in dataset_pairs.partition_by("demonstrations", as_dict=True, maintain_order=True).items():
            yield _heat_map(f"{dataset}, {source}" if several else dataset, dataset, rows)


def _heat_map(title: str, dataset: str, pairs: pl.DataFrame) -> HeatMap:
    names = list(dict.fromkeys([*pairs["first"], *pairs["second"]]))
    # Keyed by the set of the two names, because each pair is drawn in both halves of the square.
    by_pair = {frozenset((row["first"], row["second"])): row for row in pairs.iter_rows(named=True)}
    cells = [[by_pair.get(frozenset((row, column))) for column in names] for row in names]
    return HeatMap(title, dataset, names, cells)
