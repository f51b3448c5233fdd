"""The report of in-context PVI: what was measured goes in; one HTML file that needs no network comes out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.report import facts, tables
from evaluator.report.html_page import write_html_page
from evaluator.suites.in_context_pvi.report_demonstrations import demonstrations_view
from evaluator.suites.in_context_pvi.report_figures import SOURCE_COLOURS, decile_figure, density_figure, threshold_text
from evaluator.suites.in_context_pvi.report_queries import MOST_CHARACTERS, query_data
from evaluator.suites.in_context_pvi.report_sources import BY_SOURCE, has_several, run_name, set_name
from evaluator.suites.in_context_pvi.schema import PVI_DEFINITIONS, PVI_ORDERS, PviDefinition

MEANINGS: dict[PviDefinition, str] = {
    "paper": "log-likelihoods over the whole vocabulary, in bits (Lu et al. 2023, equation 1).",
    "label_space": "the same normalised over the labels, so that what a model gives to other words is left out; bits.",
    "released": "as the released notebook: at temperature 0.8, over the 20 most probable tokens, where a label that is "
    "none of these counts as the least of them; natural logarithms, so nats.",
}
"""Definition -> one line for the reader, in the order of the switch."""

UNITS: dict[str, str] = {"paper": "bits", "label_space": "bits", "released": "nats"}

DRAWN = "paper"
"""The definition of figures, lists and the table of queries, whichever one the reader has chosen for the rest."""

N_LISTED = 5
"""Queries of each gold label, and likely mislabelled ones of each dataset, that are listed on the page."""


@dataclass(frozen=True, kw_only=True)
class PviReport:
    """All that the page shows; whatever is measured was measured before."""

    run: Mapping[str, Any]  # run.json
    tables: Mapping[str, pl.DataFrame]  # of pvi.measures.pvi_measures; and `pvi_models`, where several were compared
    queries: pl.DataFrame  # schemas.pvi_queries.PVI_QUERIES
    label_names: Mapping[str, Sequence[str]]  # dataset -> its label space


class DensityPanel(NamedTuple):
    name: str  # of the run
    about: str  # its threshold
    svg: Markup


class HeatMap(NamedTuple):
    """Pearson correlations between all runs of a dataset behind demonstrations of one source, or between models in one
    of its runs."""

    title: str
    dataset: str
    names: list[str]
    rows: list[list[dict[str, Any] | None]]  # PVI_CORRELATIONS; None on the diagonal and where nothing is shared


class DatasetView(NamedTuple):
    """What is drawn and listed of one dataset."""

    name: str
    labels: Sequence[str]
    densities: list[DensityPanel]
    deciles: Markup | None
    hardest: dict[str, list[dict[str, Any]]]  # name of the gold label -> rows of PVI_HARDEST
    mislabelled: list[dict[str, Any]]  # rows of PVI_MISLABELLED
    n_mislabelled: int


class DefinitionView(NamedTuple):
    """The tables under one definition."""

    definition: str
    unit: str
    summary: list[dict[str, Any]]  # PVI_SUMMARY, with `threshold_text` and `set_name`
    consistency: list[dict[str, Any]]  # PVI_CONSISTENCY
    one_way: list[dict[str, Any]]
    repeated_measures: list[dict[str, Any]]
    annotators: list[dict[str, Any]]  # PVI_ANNOTATORS, with `set_name`


def write_pvi_report(report: PviReport, path: Path) -> Path:
    """Write the page to `path` and return it. Equal data give equal bytes."""
    return write_html_page(path, "pvi_page.html", _shown(report), script=("page.js", "pvi_queries.js"))


def _shown(report: PviReport) -> dict[str, Any]:
    run, drawn = report.run, {name: table.filter(definition=DRAWN) for name, table in report.tables.items()}
    datasets = tables.dataset_order(report.tables["pvi_summary"], facts.look_up(run, "store", "datasets") or ())
    present, sources = ({*report.tables["pvi_summary"][name]} for name in ("definition", "demonstrations"))
    chosen = demonstrations_view(drawn["pvi_demonstrations"], drawn["pvi_chosen"], report.label_names, datasets)
    return {
        "model": facts.look_up(run, "model", "name") or "model not recorded",
        "warning": facts.warning(run),
        "headline": facts.headline_facts(run),
        "notes": [
            f"{name}: {'; '.join(noted)}." for name, noted in (facts.look_up(run, "store", "notes") or {}).items()
        ],
        "record": facts.record(run),
        "command": facts.look_up(run, "command"),
        "datasets": datasets,
        "definitions": {name: meaning for name, meaning in MEANINGS.items() if name in present},
        "drawn": DRAWN,
        "views": [_definition_view(report, name, datasets) for name in PVI_DEFINITIONS if name in present],
        "dataset_views": [_dataset_view(name, drawn, report.label_names[name]) for name in datasets],
        "heat_maps": [*_run_maps(drawn["pvi_pairs"], datasets), *_model_maps(drawn.get("pvi_models"), datasets)],
        "chosen": chosen,
        "several": len(sources) > 1,
        "source_colours": {name: SOURCE_COLOURS[name] for name in PVI_ORDERS if name in sources},
        "n_listed": N_LISTED,
        "most_characters": MOST_CHARACTERS,
        "query_data": query_data(drawn["pvi"], report.queries, report.label_names, datasets),
    }


def _definition_view(report: PviReport, definition: str, datasets: Sequence[str]) -> DefinitionView:
    several = has_several(report.tables["pvi"])

    def rows(name: str) -> list[dict[str, Any]]:
        own = report.tables[name].filter(definition=definition).sort(BY_SOURCE, maintain_order=True).to_dicts()
        return sorted(own, key=lambda row: datasets.index(row["dataset"])) if own and "dataset" in own[0] else own

    def named(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"set_name": set_name(row["demonstrations"], row["demonstration_set"], several=several)}

    unit = UNITS[definition]
    summary = [named(row) | {"threshold_text": threshold_text(row["threshold"], unit)} for row in rows("pvi_summary")]
    return DefinitionView(
        definition,
        unit,
        summary,
        consistency=rows("pvi_consistency"),
        one_way=rows("pvi_one_way"),
        repeated_measures=rows("pvi_repeated_measures"),
        annotators=[named(row) for row in rows("pvi_annotators")],
    )


def _dataset_view(name: str, drawn: Mapping[str, pl.DataFrame], labels: Sequence[str]) -> DatasetView:
    own = {table: frame.filter(dataset=name) for table, frame in drawn.items() if "dataset" in frame.columns}
    several = has_several(drawn["pvi"])
    hardest = own["pvi_hardest"].filter(pl.col("rank") <= N_LISTED)
    by_gold = hardest.partition_by("gold", as_dict=True, maintain_order=True)
    return DatasetView(
        name,
        labels,
        densities=list(_density_panels(own["pvi_densities"], own["pvi_summary"], several=several)),
        deciles=None if own["pvi_deciles"].is_empty() else Markup(decile_figure(own["pvi_deciles"], several=several)),
        hardest={labels[int(gold)]: rows.to_dicts() for (gold,), rows in by_gold.items()},
        mislabelled=own["pvi_mislabelled"].filter(pl.col("rank") <= N_LISTED).to_dicts(),
        n_mislabelled=own["pvi_mislabelled"].height,
    )


def _density_panels(densities: pl.DataFrame, summary: pl.DataFrame, *, several: bool) -> Iterator[DensityPanel]:
    unit, in_order = UNITS[DRAWN], densities.sort(BY_SOURCE, maintain_order=True)
    runs = in_order.partition_by("demonstrations", "n_shots", "demonstration_set", as_dict=True, maintain_order=True)
    for (source, n_shots, number), own in runs.items():
        threshold = summary.filter(demonstrations=source, n_shots=n_shots, demonstration_set=number)["threshold"].item()
        svg = Markup(density_figure(own, threshold, unit))
        name = run_name(n_shots, str(source), number, several=several)
        yield DensityPanel(name, threshold_text(threshold, unit), svg)


def _run_maps(pairs: pl.DataFrame, datasets: Sequence[str]) -> Iterator[HeatMap]:
    several = has_several(pairs)
    ends = [
        pl.format("{}-shot, set {}", f"{end}_n_shots", f"{end}_demonstration_set").alias(end)
        for end in ("first", "second")
    ]
    for dataset in datasets:
        own = pairs.filter(dataset=dataset).sort(BY_SOURCE, maintain_order=True).with_columns(ends)
        for (source,), rows in own.partition_by("demonstrations", as_dict=True, maintain_order=True).items():
            yield _heat_map(f"{dataset}, {source}" if several else dataset, dataset, rows)


def _model_maps(models: pl.DataFrame | None, datasets: Sequence[str]) -> Iterator[HeatMap]:
    """Of each dataset's run with the most shots and the first of the suite's own sets, as in figure 3."""
    for dataset in datasets if models is not None else ():
        assert models is not None, "or there is no dataset to draw"
        is_own = ~pl.col("demonstrations").is_in(PVI_ORDERS)
        own = models.filter(is_own, dataset=dataset).sort("demonstration_set", "n_shots")
        if not own.is_empty():
            last = own.filter(demonstration_set=own["demonstration_set"][0]).row(-1, named=True)
            chosen = own.filter(n_shots=last["n_shots"], demonstration_set=last["demonstration_set"])
            title = f"{dataset}, models, {last['n_shots']}-shot, set {last['demonstration_set']}"
            yield _heat_map(title, dataset, chosen)


def _heat_map(title: str, dataset: str, pairs: pl.DataFrame) -> HeatMap:
    names = list(dict.fromkeys([*pairs["first"], *pairs["second"]]))
    found = {frozenset((row["first"], row["second"])): row for row in pairs.iter_rows(named=True)}
    return HeatMap(title, dataset, names, [[found.get(frozenset((row, column))) for column in names] for row in names])
