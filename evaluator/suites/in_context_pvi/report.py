"""The sections of the report of in-context PVI, from its tables. Nothing is computed here."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl
from markupsafe import Markup

from evaluator.report import tables
from evaluator.report.section import MeasuredRun, PackageFile, Section
from evaluator.suites.in_context_pvi.query_schema import PVI_QUERIES
from evaluator.suites.in_context_pvi.report_demonstrations import DemonstrationsView, demonstrations_view
from evaluator.suites.in_context_pvi.report_figures import decile_figure, density_figure, threshold_text
from evaluator.suites.in_context_pvi.report_queries import MAX_CHARACTERS, query_data
from evaluator.suites.in_context_pvi.report_sources import BY_SOURCE, has_several, run_name, set_name
from evaluator.suites.in_context_pvi.schema import PVI_DEFINITIONS, PVI_ORDERS, PviDefinition

MEANINGS: dict[PviDefinition, str] = {
    "paper": "log-likelihoods over the whole vocabulary, in bits (Lu et al. 2023, equation 1).",
    "label_space": "the same normalised over the labels, so that the probability of other words is left out; in bits.",
    "released": "as in the released notebook: at temperature 0.8, over the 20 most probable tokens, where a label that "
    "is none of these counts as the least probable of them; natural logarithms, so in nats.",
}
"""Definition -> one line for the reader, in the order of the page's choice of definitions."""

UNITS: dict[str, str] = {"paper": "bits", "label_space": "bits", "released": "nats"}

DRAWN = "paper"
"""The definition of figures, lists and the table of queries, whichever one the reader chooses for the other tables."""

N_LISTED = 5
"""Number of queries of each gold label, and of likely mislabelled ones of each dataset, listed on the page."""

TABLES = (
    "pvi",
    "pvi_summary",
    "pvi_deciles",
    "pvi_densities",
    "pvi_pairs",
    "pvi_consistency",
    "pvi_one_way",
    "pvi_repeated_measures",
    "pvi_annotators",
    "pvi_hardest",
    "pvi_mislabelled",
    "pvi_demonstrations",
    "pvi_chosen",
)
"""Names of the tables that the sections show."""

Tables = Mapping[str, pl.DataFrame]


class DensityPanel(NamedTuple):
    """The histogram of one run."""

    name: str  # of the run
    about: str  # its threshold in words
    svg: Markup


class HeatMap(NamedTuple):
    """Pearson correlations between all runs of a dataset and source of demonstrations."""

    title: str
    dataset: str
    names: list[str]
    rows: list[list[dict[str, Any] | None]]  # PVI_PAIRS; None on the diagonal and where two runs share no query


class DensitiesView(NamedTuple):
    """The histograms of one dataset."""

    name: str  # of the dataset
    densities: list[DensityPanel]


class DecilePanel(NamedTuple):
    """The accuracies by decile of one dataset."""

    dataset: str
    svg: Markup


class HardestView(NamedTuple):
    """The hardest queries of one dataset, and those whose label looks wrong."""

    name: str
    labels: Sequence[str]
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


class ViewsContext(NamedTuple):
    """The tables under each definition."""

    views: Sequence[DefinitionView]


class DensitiesContext(NamedTuple):
    """Histograms of right and wrong predictions."""

    drawn: str  # definition, here and below
    views: Sequence[DensitiesView]


class DecilesContext(NamedTuple):
    """Accuracy by PVI deciles."""

    drawn: str
    panels: Sequence[DecilePanel]
    suite_source: str  # of the suite's own demonstrations; "" where nothing was chosen by PVI
    sources: Sequence[str]  # PviOrder of chosen demonstrations, each drawn in another colour


class StabilityContext(NamedTuple):
    """Correlations between runs, and analyses of variance."""

    drawn: str
    heat_maps: Sequence[HeatMap]
    views: Sequence[DefinitionView]
    several: bool  # demonstrations are of several sources


class DemonstrationsContext(NamedTuple):
    """Demonstrations chosen by PVI, compared with the suite's own."""

    drawn: str
    view: DemonstrationsView


class HardestContext(NamedTuple):
    """Lists of hard and likely mislabelled queries."""

    drawn: str
    n_listed: int
    suite_source: str  # of the suite's own demonstrations; "" where nothing was chosen by PVI
    views: Sequence[HardestView]


class QueriesContext(NamedTuple):
    """The table of all queries, drawn by assets/queries.js."""

    drawn: str
    max_characters: int
    query_data: Markup


def pvi_sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield the sections of a run of the suite.

    Args:
        run: has TABLES and label_spaces; its side table pvi_queries has the texts of queries.
    """
    all_tables = {name: run.table(name) for name in TABLES}
    drawn = {name: table.filter(definition=DRAWN) for name, table in all_tables.items()}
    summary = all_tables["pvi_summary"]
    datasets = tables.dataset_order(summary, run.record.prompts.datasets)
    label_names = dict(run.table("label_spaces").select("dataset", "label_names").iter_rows())
    present, sources = {*summary["definition"]}, {*summary["demonstrations"]}
    views = [_definition_view(all_tables, name, datasets) for name in PVI_DEFINITIONS if name in present]
    chosen = demonstrations_view(drawn["pvi_demonstrations"], drawn["pvi_chosen"], label_names, datasets)
    suite_source = chosen.suite_source if chosen else ""
    yield Section(
        anchor="v-information",
        title="V-information and accuracy",
        kind="pvi",
        navigation="V-information",
        template=_template("v_information"),
        context=ViewsContext(views),
        definitions={name: meaning for name, meaning in MEANINGS.items() if name in present},
        datasets=tuple(datasets),
        style=PackageFile("evaluator.suites.in_context_pvi", "assets/pvi.css"),
    )
    if chosen:
        yield Section(
            anchor="chosen",
            title="Demonstrations chosen by PVI",
            subtitle="Lu et al. 2023, section 5.6",
            kind="pvi",
            navigation="Demonstrations",
            template=_template("demonstrations"),
            context=DemonstrationsContext(DRAWN, chosen),
        )
    yield Section(
        anchor="densities",
        title="Right and wrong predictions by PVI",
        navigation="Right and wrong",
        template=_template("densities"),
        context=DensitiesContext(DRAWN, [_densities_view(name, drawn) for name in datasets]),
    )
    chosen_sources = [name for name in PVI_ORDERS if name in sources]
    yield Section(
        anchor="deciles",
        title="Accuracy by PVI deciles",
        navigation="Deciles",
        template=_template("deciles"),
        context=DecilesContext(DRAWN, list(_decile_panels(drawn, datasets)), suite_source, chosen_sources),
    )
    yield Section(
        anchor="stability",
        title="Does a query keep its PVI?",
        kind="pvi",
        navigation="Stability",
        template=_template("stability"),
        context=StabilityContext(DRAWN, list(_run_maps(drawn["pvi_pairs"], datasets)), views, len(sources) > 1),
    )
    if any(view.annotators for view in views):
        yield Section(
            anchor="annotators",
            title="PVI and annotators",
            kind="pvi",
            navigation="Annotators",
            template=_template("annotators"),
            context=ViewsContext(views),
        )
    yield Section(
        anchor="listed",
        title="The hardest queries, and labels that look wrong",
        navigation="Hardest queries",
        template=_template("hardest"),
        context=HardestContext(
            DRAWN, N_LISTED, suite_source, [_hardest_view(name, drawn, label_names[name]) for name in datasets]
        ),
    )
    queries = run.side_table("pvi_queries", PVI_QUERIES)
    yield Section(
        anchor="queries",
        title="Query by query",
        kind="query-table",
        navigation="Query by query",
        template=_template("queries"),
        context=QueriesContext(DRAWN, MAX_CHARACTERS, query_data(drawn["pvi"], queries, label_names, datasets)),
        script=PackageFile("evaluator.suites.in_context_pvi", "assets/queries.js"),
    )


def _template(name: str) -> PackageFile:
    return PackageFile("evaluator.suites.in_context_pvi", f"templates/{name}.html")


def _definition_view(all_tables: Tables, definition: str, datasets: Sequence[str]) -> DefinitionView:
    several = has_several(all_tables["pvi"])

    def rows(name: str) -> list[dict[str, Any]]:
        table = all_tables[name].filter(definition=definition).sort(BY_SOURCE, maintain_order=True)
        if "dataset" not in table.columns:
            return table.to_dicts()
        return sorted(table.to_dicts(), key=lambda row: datasets.index(row["dataset"]))

    def with_set_name(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"set_name": set_name(row["demonstrations"], row["demonstration_set"], several=several)}

    unit = UNITS[definition]
    summary = [
        with_set_name(row) | {"threshold_text": threshold_text(row["threshold"], unit)} for row in rows("pvi_summary")
    ]
    return DefinitionView(
        definition,
        unit,
        summary,
        consistency=rows("pvi_consistency"),
        one_way=rows("pvi_one_way"),
        repeated_measures=rows("pvi_repeated_measures"),
        annotators=[with_set_name(row) for row in rows("pvi_annotators")],
    )


def _densities_view(name: str, drawn: Tables) -> DensitiesView:
    densities, summary = (drawn[table].filter(dataset=name) for table in ("pvi_densities", "pvi_summary"))
    return DensitiesView(name, list(_density_panels(densities, summary, several=has_several(drawn["pvi"]))))


def _decile_panels(drawn: Tables, datasets: Sequence[str]) -> Iterator[DecilePanel]:
    several = has_several(drawn["pvi"])
    for name in datasets:
        deciles = drawn["pvi_deciles"].filter(dataset=name)
        if not deciles.is_empty():
            yield DecilePanel(name, Markup(decile_figure(deciles, several=several)))


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


def _density_panels(densities: pl.DataFrame, summary: pl.DataFrame, *, several: bool) -> Iterator[DensityPanel]:
    unit, in_order = UNITS[DRAWN], densities.sort(BY_SOURCE, maintain_order=True)
    runs = in_order.partition_by("demonstrations", "n_shots", "demonstration_set", as_dict=True, maintain_order=True)
    for (source, n_shots, number), rows in runs.items():
        threshold = summary.filter(demonstrations=source, n_shots=n_shots, demonstration_set=number)["threshold"].item()
        svg = Markup(density_figure(rows, threshold, unit))
        name = run_name(n_shots, str(source), number, several=several)
        yield DensityPanel(name, threshold_text(threshold, unit), svg)


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
