"""Build the report sections of in-context PVI from its tables, and its section of a comparison page."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import get_args

import polars as pl

from evaluator.compare.report import triangle
from evaluator.compare.runs import ComparedRun
from evaluator.errors import plural
from evaluator.methods import REFERENCE_METHOD
from evaluator.random_baselines.max_random import ASSURANCE, POWER, TAIL_TO_TELL
from evaluator.report.query_rows import NumberColumn, QueryNumbers, cut_text
from evaluator.report.section import (
    Block,
    Group,
    Legend,
    List,
    Matrices,
    Matrix,
    MatrixCell,
    MeasuredRun,
    Panel,
    Panels,
    Section,
    dataset_panels,
    definition_groups,
    texts,
)
from evaluator.report.table import (
    DATASET,
    MAJORITY_TESTED,
    NEEDED,
    POSITION,
    TESTED,
    Column,
    Row,
    Table,
    count,
    dataset_order,
    digits,
    in_order,
    line,
    marked,
    number,
    probability,
    signed,
    signed_interval,
    significant,
    text_column,
)
from evaluator.report.total_error import total_error_sections
from evaluator.suites.in_context_pvi import report_figures as figures
from evaluator.suites.in_context_pvi.correlations import COEFFICIENTS, PviAgreement
from evaluator.suites.in_context_pvi.prompts import PviSource
from evaluator.suites.in_context_pvi.schema import CHOSEN, PVI_DEFINITIONS, PVI_ORDERS, PVI_RUN, PviDefinition

TEXTS = texts("evaluator.suites.in_context_pvi")

MEANINGS: dict[PviDefinition, str] = {
    "paper": "log-likelihoods over the whole vocabulary (Lu et al. 2023, equation 1).",
    "label_space": "the same normalised over the labels, so that the probability of other words is left out.",
    "released": TEXTS["meanings"],
}
"""Definition -> description on the page, in the order of the page's control for definitions."""

DRAWN: PviDefinition = "paper"
"""Definition of PVI in figures, lists and the table of queries. The page's control for definitions changes only the
other tables."""

N_LISTED = 5
"""Number of listed queries of each gold label, and of listed queries of each dataset whose label looks wrong."""

ACROSS = {"sets": "demonstration sets", "shots": "numbers of shots", "models": "models"}
"""Value of the column `across` of PVI_CONSISTENCY -> its name on the page."""

STYLE = "evaluator.suites.in_context_pvi:assets/pvi.css"

V_INFORMATION = Section(
    "v-information", "V-information and accuracy", kind="pvi", navigation="V-information", style=STYLE
)
CHOSEN_BY_PVI = Section(
    "chosen",
    "Demonstrations chosen by PVI",
    subtitle="Lu et al. 2023, section 5.6",
    kind="pvi",
    navigation="Demonstrations",
)
DENSITIES = Section("densities", "Right and wrong predictions by PVI", navigation="Right and wrong")
DECILES = Section("deciles", "Accuracy by PVI deciles", navigation="Deciles")
STABILITY = Section("stability", "Does a query keep its PVI?", kind="pvi", navigation="Stability")
ANNOTATORS = Section("annotators", "PVI and annotators", kind="pvi", navigation="Annotators")
LISTED = Section("listed", "The hardest queries, and labels that look wrong", navigation="Hardest queries")
"""The sections of a run's page, without their content."""

Tables = Mapping[str, pl.DataFrame]

SHOTS = Column("Shots", "n_shots")
SET = text_column("Set", "set_name", style="number")
SOURCE = text_column("Demonstrations", "demonstrations", style="number")


def pvi_sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield the sections of a run of the suite.

    Args:
        run: has the tables of PVI, label_spaces, and the three tables of total error.
    """
    summary = run.table("pvi_summary")
    datasets, several = dataset_order(summary, run.record.prompts.datasets), has_several(summary)
    names = [name for name in run.record.tables if name.startswith("pvi_")]
    tables = {name: _ordered(run.table(name), datasets, several=several) for name in names}
    labels = dict(run.table("label_spaces").select("dataset", "label_names").iter_rows())
    by_definition: dict[PviDefinition, Tables] = {
        name: {key: table.filter(definition=name) for key, table in tables.items()}
        for name in PVI_DEFINITIONS
        if name in tables["pvi_summary"]["definition"]
    }
    drawn = by_definition[DRAWN]
    sources = {*drawn["pvi_demonstrations"]["demonstrations"]} - {*PVI_ORDERS}
    suite_source = "" if drawn["pvi_chosen"].is_empty() else next(iter(sources))
    summaries = definition_groups(
        (name, [_summary_table(name, of["pvi_summary"]), _means(of["pvi_means"])]) for name, of in by_definition.items()
    )
    controls: dict[str, str] = {name: MEANINGS[name] for name in by_definition}
    content: list[Block] = [TEXTS["v_information_note"], *summaries]
    yield replace(V_INFORMATION, content=content, definitions=controls, datasets=tuple(datasets))
    if suite_source:
        yield replace(CHOSEN_BY_PVI, content=[*_chosen(drawn, labels, suite_source)])
    yield from total_error_sections(run, datasets)
    yield replace(DENSITIES, content=[*_densities(drawn, datasets)])
    yield replace(DECILES, content=[*_deciles(drawn, suite_source)])
    yield replace(STABILITY, content=[*_stability(drawn["pvi_pairs"], by_definition)])
    if tables["pvi_annotators"].height:
        yield replace(ANNOTATORS, content=[*_annotators(by_definition)])
    yield replace(LISTED, content=[*_listed_queries(drawn, datasets, labels, suite_source)])


def pvi_numbers(run: MeasuredRun) -> QueryNumbers:
    """Return the PVI of every query in bits, and its rank: 1 for the lowest PVI of a run; equal PVIs share a rank."""
    methods = {order: method for method, order in CHOSEN.items()}
    pvi = run.scan("pvi").filter(definition=DRAWN)
    method = pl.col("demonstrations").replace_strict(methods, default=REFERENCE_METHOD)
    rank = pl.col("pvi_bits").rank("min").over(PVI_RUN)
    key = ("dataset", "n_shots", "demonstration_set", "query_id")
    columns = (NumberColumn("rank", "Rank", 0, 5), NumberColumn("bits", "PVI", 3, 6.5))
    note = "PVI is in bits, and rank 1 is the lowest of its run, equal PVIs share a rank"
    return QueryNumbers(columns, pvi.select(*key, method=method, rank=rank, bits="pvi_bits"), note=note)


def has_several(rows: pl.DataFrame) -> bool:
    """Return whether the rows have demonstrations of more than one source."""
    return rows["demonstrations"].n_unique() > 1


def _ordered(table: pl.DataFrame, datasets: Sequence[str], *, several: bool) -> pl.DataFrame:
    """Sort a table by dataset and source of demonstrations, and add `set_name` and `run_name`.

    Args:
        datasets: order of the datasets.
        several: whether the names include the source, because the page has demonstrations of several sources.
    """
    if "demonstrations" in table.columns:
        # The suite's sources first, then the sets chosen by PVI, then files with PVI of other programs.
        order = {name: place for place, name in enumerate((*get_args(PviSource), *PVI_ORDERS))}
        table = table.sort(pl.col("demonstrations").replace_strict(order, default=len(order)), maintain_order=True)
    if "demonstration_set" in table.columns:
        if several or has_several(table):
            set_name = in_run = pl.format("{} {}", "demonstrations", "demonstration_set")
        else:
            set_name, in_run = pl.format("{}", "demonstration_set"), pl.format("set {}", "demonstration_set")
        table = table.with_columns(set_name=set_name, run_name=pl.format("{}-shot, {}", "n_shots", in_run))
    return in_order(table, datasets) if "dataset" in table.columns else table


def _means(rows: pl.DataFrame) -> Group:
    """Return a folded group with the table of means over runs; `rows` are PVI_MEANS."""
    values = [name for name in rows.columns if rows.schema[name] == pl.Float64()]
    columns = [DATASET, SHOTS, SOURCE, text_column("Over", "over"), Column("Runs", "n_runs")]
    columns += [Column(name.replace("_", " ").capitalize(), name) for name in values]
    title = "Means over sets, shots and datasets, as in tables 1 and 14"
    return Group([Table(rows, columns, data={"table": "means"})], title, is_folded=True)


def _positive(column: str) -> Callable[[Row], str]:
    """Return a function that writes a count below another value, and nothing for 0."""
    return line(column, lambda n: count(n) if n else "")


def _summary_table(definition: str, rows: pl.DataFrame) -> Table:
    """Return the table of V-information and accuracy, with a row for each run; `rows` are PVI_SUMMARY."""
    is_sampled = definition == "released"  # predictions are drawn, not the most probable labels
    accuracy = TEXTS[f"summary_caption_{'sampled' if is_sampled else 'predicted'}"].format(rows["seed"][0])
    note, below = ("other tokens", "n_other_token") if is_sampled else ("tied labels", "n_tied")

    def threshold(row: Row) -> str:
        value = row["threshold"]
        return number(value) if math.isfinite(value) else "never" if value > 0 else "always"

    return Table(
        rows.with_columns(run=pl.format("{} {}", "n_shots", "set_name")),
        [
            DATASET,
            SHOTS,
            SET,
            Column("V-information", "v_information", note="bits", interval=("ci_low", "ci_high")),
            Column("Accuracy", "accuracy", note=note, below=(_positive(below),)),
            *(
                Column(f"{side} {part}", f"{end}_accuracy", note="tied", below=(_positive(f"{end}_tied"),))
                for part, side in product(("fifth", "half"), ("Lowest", "Highest"))
                for end in [f"{side.lower()}_{part}"]
            ),
            Column("Right", "right_pvi", note="bits"),
            Column("Wrong", "wrong_pvi", note="bits"),
            Column(
                "Threshold",
                "threshold",
                cell=threshold,
                note="right above, wrong below",
                below="threshold_accuracy",
                tip=lambda row: figures.threshold_text(row["threshold"]),
            ),
            Column("Queries", "n_queries", note="without PVI", below="n_missing", data={"missing": "n_missing"}),
        ],
        caption=TEXTS["summary_caption"].format(accuracy),
        row_data={"run": "run"},
        data={"table": "summary"},
    )


def _chosen(drawn: Tables, labels: Mapping[str, Sequence[str]], suite_source: str) -> Iterator[Block]:
    """Yield the comparison of demonstrations chosen by PVI with the suite's demonstrations, and a list of them."""
    yield TEXTS["demonstrations_note"].format(suite_source)
    yield _demonstrations_table(drawn["pvi_demonstrations"], suite_source)
    chosen = drawn["pvi_chosen"].with_columns(cut_text(pl.col("text")))
    for (dataset,), of_dataset in chosen.group_by("dataset", maintain_order=True):
        groups, names = [], labels[str(dataset)]
        for (run,), rows in of_dataset.group_by("run_name", maintain_order=True):
            items = [
                (f"labelled {names[row['gold']]}, {number(row['pvi_bits'])} bits, row {row['row']}", row["text"])
                for row in rows.iter_rows(named=True)
            ]
            groups.append(_listed(str(run), items))
        yield Group(groups, f"{dataset}: chosen demonstrations", dataset=str(dataset), style="found", is_folded=True)


def _signed_ends(name: str) -> Callable[[Row], str]:
    """Return a function that writes the interval with the columns `name`_low and `name`_high, with signs."""
    return lambda row: signed_interval(row[f"{name}_low"], row[f"{name}_high"])


def _demonstrations_table(rows: pl.DataFrame, suite_source: str) -> Table:
    def difference(name: str) -> Column:
        intervals = (_signed_ends(name), _signed_ends(f"{name}_two_way"))
        title, value = f"Minus {suite_source}", f"{name}_difference"
        return Column(title, value, show=signed, note="two intervals", below=intervals)

    values = (DRAWN, *[suite_source] * 3, TAIL_TO_TELL, f"{100 * ASSURANCE:g}", POWER)
    return Table(
        rows.with_columns(run=pl.format("{} {}", "n_shots", "demonstrations")),
        [
            DATASET,
            text_column("Demonstrations", "demonstrations", style="number", note="sets", below="n_sets"),
            SHOTS,
            Column("Candidates", "n_candidates", note="of training rows", below="n_training"),
            Column("Accuracy", "accuracy", note="queries", below="n_queries"),
            difference("accuracy"),
            Column("Best set", "best_accuracy", note="max random", below="max_random"),
            replace(POSITION, note="tail", below=(line("log10_tail", probability),)),
            Column("Majority", "majority"),
            TESTED,
            MAJORITY_TESTED,
            NEEDED,
            Column("V-information", "v_information", note="bits"),
            difference("v_information"),
        ],
        caption=TEXTS["demonstrations_table_caption"].format(*values),
        data={"table": "demonstrations"},
        row_data={"run": "run"},
    )


def _densities(drawn: Tables, datasets: Sequence[str]) -> Iterator[Block]:
    """Yield the histograms of right and wrong predictions."""
    thresholds = drawn["pvi_summary"].select(*PVI_RUN, "threshold")
    densities = drawn["pvi_densities"].join(thresholds, on=PVI_RUN, how="left", maintain_order="left")
    keys = {"right": "right", "wrong": "wrong", "threshold": "threshold: at least half are right from here up"}
    yield TEXTS["densities_note"].format(DRAWN)
    yield Legend(keys)
    for dataset in datasets:
        panels = [
            Panel(str(name), [figures.density_figure(rows)], figures.threshold_text(rows["threshold"][0]))
            for (name,), rows in densities.filter(dataset=dataset).group_by("run_name", maintain_order=True)
        ]
        yield Group([Panels(panels, style="panels wide", absent="No query has a PVI.")], dataset, dataset=dataset)


def _deciles(drawn: Tables, suite_source: str) -> Iterator[Block]:
    """Yield the figures of accuracy by decile of PVI."""
    yield TEXTS["deciles_note"].format(DRAWN)
    sources = [name for name in PVI_ORDERS if name in drawn["pvi_summary"]["demonstrations"]]
    if sources:
        colours = {f"line {figures.SOURCE_COLOURS[name][1]}": name for name in sources}
        yield Legend({"line": f"{suite_source} demonstrations", **colours})
    panels = dataset_panels(drawn["pvi_deciles"], lambda rows: [figures.decile_figure(rows)])
    yield Panels(panels, style="curves", absent="")


def _stability(pairs: pl.DataFrame, by_definition: Mapping[PviDefinition, Tables]) -> Iterator[Block]:
    """Yield the agreement of PVI between runs: correlations, their strength, and analyses of variance."""
    several = has_several(pairs)
    matrices = [
        run_matrix(f"{dataset}, {source}" if several else str(dataset), str(dataset), rows)
        for (dataset, source), rows in pairs.group_by("dataset", "demonstrations", maintain_order=True)
    ]
    if matrices:
        yield TEXTS["stability_note"].format(" with demonstrations of one source" if several else "", DRAWN)
    yield Matrices(matrices, absent="Each dataset has only one run, so there is nothing to compare.")
    yield from definition_groups((name, _stability_tables(of)) for name, of in by_definition.items())


def run_matrix(title: str, dataset: str, pairs: pl.DataFrame) -> Matrix:
    """Return the matrix of correlations between all runs of a dataset and source of demonstrations.

    Args:
        pairs: PVI_PAIRS of the dataset and source.
    """
    named = pairs.with_columns(
        pl.format("{}-shot, set {}", f"{end}_n_shots", f"{end}_demonstration_set").alias(end)
        for end in ("first", "second")
    )
    names = list(dict.fromkeys([*named["first"], *named["second"]]))
    # The key is the set of both names, because each pair is in both halves of the matrix.
    by_pair = {frozenset((row["first"], row["second"])): row for row in named.iter_rows(named=True)}

    def cell(a: str, b: str) -> MatrixCell:
        row = by_pair.get(frozenset((a, b)))
        if row is None:  # the diagonal, and runs that share no query
            return MatrixCell("", style="self")
        r = row["pearson"]
        tests = (
            f"{name.capitalize()} {number(row[name])} (p {significant(row[f'{name}_p'])})" for name in COEFFICIENTS
        )
        tip = f"{row['first']} and {row['second']}: {', '.join(tests)}, {plural(row['n'], 'query')}"
        share = 0.0 if r is None or math.isnan(r) else 100 * abs(r)
        style = "negative" if r is not None and r < 0 else ""
        return MatrixCell(number(r, 2), share, tip, style, {"value": r})

    rows = [(a, [cell(a, b) for b in names]) for a in names]
    return Matrix(title=title, columns=names, rows=rows, dataset=dataset, data={"table": "heat-map"})


STRENGTHS = {"Mean": "mean", "Median": "median", "r > 0.6": "strong_share", "r < 0.3": "weak_share"}
STRENGTH_COLUMNS = [Column(title, name) for title, name in STRENGTHS.items()]
"""Columns of PVI_STRENGTHS other than the numbers of cases."""

CONSISTENCY = [
    text_column("Across", "across", cell=lambda row: ACROSS[row["across"]]),
    SOURCE,
    text_column("Coefficient", "coefficient", show=str.capitalize, style="number"),
    Column("Cases", "n", note="undefined", below=[_positive("n_undefined")]),
    *STRENGTH_COLUMNS,
]


def _f_column(between: str, within: str) -> Column:
    """Return the column of F, with its degrees of freedom below; both arguments are names of their columns."""
    freedom = lambda row: f"{row[between]:,} and {row[within]:,}"  # noqa: E731
    return Column("F", "f", show=digits(2), note="degrees of freedom", below=[freedom])


P_VALUE = Column("p", "p", show=significant)

REPEATED_MEASURES = [
    DATASET,
    SOURCE,
    SHOTS,
    _f_column("df_condition", "df_residual"),
    P_VALUE,
    Column("Corrected p", "corrected_p", show=significant, note="epsilon", below="epsilon"),
    Column("Queries", "n_queries", note="left out", below=[_positive("n_left_out")]),
]

ONE_WAY = [DATASET, SOURCE, _f_column("df_between", "df_within"), P_VALUE]


def _stability_tables(tables: Tables) -> Iterator[Block]:
    """Yield the tables of the strength of correlations and of the analyses of variance, under one definition."""
    several = has_several(tables["pvi_summary"])

    def shown(name: str, columns: Sequence[Column]) -> list[Table]:
        rows, caption = tables[f"pvi_{name}"], TEXTS[f"{name}_caption"]
        kept = [column for column in columns if several or column is not SOURCE]
        return [Table(rows, kept, caption=caption, data={"table": name.replace("_", "-")})] if rows.height else []

    if consistency := shown("consistency", CONSISTENCY):
        yield Group(consistency, "How strong the correlations are")
    if analyses := [*shown("repeated_measures", REPEATED_MEASURES), *shown("one_way", ONE_WAY)]:
        yield Group(analyses, "Does PVI depend on the demonstration set?")


def _annotators(by_definition: Mapping[PviDefinition, Tables]) -> Iterator[Block]:
    """Yield the correlations between PVI and annotators."""
    yield TEXTS["annotators_note"]
    columns = [
        DATASET,
        SHOTS,
        SET,
        text_column("Annotations", "annotations", style="number"),
        text_column("Measure", "measure", show=lambda name: name.replace("_", " "), style="number"),
        *(
            Column(name.capitalize(), name, note=("p", "mean over sets"), below=below)
            for name in COEFFICIENTS
            for below in [(line(f"{name}_p", significant), line(f"{name}_over_sets"))]
        ),
        Column("Queries", "n", note="annotated", below="n_annotated"),
    ]
    yield from definition_groups(
        (name, [Table(of["pvi_annotators"], columns, data={"table": "annotators"})])
        for name, of in by_definition.items()
    )


def _listed_queries(
    drawn: Tables, datasets: Sequence[str], labels: Mapping[str, Sequence[str]], suite_source: str
) -> Iterator[Block]:
    """Yield the lists of the hardest queries and of queries whose label looks wrong, a group for each dataset."""
    with_source = f" with {suite_source} demonstrations" if suite_source else ""
    yield TEXTS["listed_note"].format(with_source, DRAWN, N_LISTED)
    for name in datasets:
        hardest, mislabelled = (drawn[table].filter(dataset=name) for table in ("pvi_hardest", "pvi_mislabelled"))
        title = f"{name}: {plural(mislabelled.height, 'label')} that look{'s' * (mislabelled.height == 1)} wrong"
        lists, is_open = [*_query_lists(hardest, mislabelled, labels[name])], name == datasets[0]
        yield Group(lists, title, dataset=name, style="found", is_folded=True, is_open=is_open)


def _query_lists(hardest: pl.DataFrame, mislabelled: pl.DataFrame, labels: Sequence[str]) -> Iterator[Block]:
    """Yield the hardest queries of each gold label, then those whose label looks wrong."""

    def item(row: Row, about: str) -> tuple[str, str]:
        place = "" if row["row"] is None else f", row {row['row']}"
        told = f"{number(row['mean_pvi'])} bits, {about}, query {row['query_id']}{place}"
        return told, "text not recorded" if row["text"] is None else row["text"]

    for (gold,), rows in hardest.filter(pl.col("rank") <= N_LISTED).group_by("gold", maintain_order=True):
        items = [item(row, f"right in {row['n_right']} of {row['n_runs']} runs") for row in rows.iter_rows(named=True)]
        yield _listed(f"Hardest of {labels[int(gold)]}", items)
    items = [
        item(row, f"labelled {labels[row['gold']]}, predicted {labels[row['predicted']]} in all {row['n_runs']} runs")
        for row in mislabelled.filter(pl.col("rank") <= N_LISTED).iter_rows(named=True)
    ]
    if items:
        yield _listed("Labels that look wrong", items)


def _listed(title: str, items: Sequence[tuple[str, str]]) -> Group:
    """Return a group with a list of texts; an item is a line about the text, then the text."""
    item = '<span class="interval">{}</span> <q>{}</q>'
    return Group([List([marked(item, about, text) for about, text in items], style="listed")], title)


def pvi_comparison_sections(agreement: PviAgreement, runs: Sequence[ComparedRun]) -> Iterator[Section]:
    """Yield the section of a comparison page about the agreement of PVI between models."""
    titles = {run.model: f"{run.number} {run.model}" for run in runs}
    datasets = dataset_order(agreement.models, runs[0].record.prompts.datasets)
    present = [name for name in PVI_DEFINITIONS if name in agreement.models["definition"]]
    groups = [Group([*_agreement(agreement, name, titles, datasets)], name) for name in present]
    title, subtitle = "Does PVI agree between models?", "Lu et al. 2023, section 5.1"
    content: list[Block] = [TEXTS["pvi_comparison_note"], *groups]
    yield Section("pvi-models", title, content, subtitle=subtitle, navigation="PVI", datasets=tuple(datasets))


def _agreement(
    agreement: PviAgreement, definition: PviDefinition, titles: Mapping[str, str], datasets: Sequence[str]
) -> Iterator[Block]:
    """Yield the agreement between models under one definition of PVI: a matrix of models, and a table by dataset."""
    tables = (agreement.by_pair, agreement.by_dataset, agreement.over_all)
    by_pair, by_dataset, over_all = (table.filter(definition=definition) for table in tables)
    pairs = by_pair.rename({"first": "a", "second": "b", "mean": "rho", "n": "n_points"})
    pairs = pairs.with_columns(p_value=pl.lit(None), reason=pl.lit("undefined in every run"))
    about, data = "Mean Pearson correlation over all runs", {"definition": definition, "over": "runs"}
    matrix = triangle(pairs, titles, about, data, coefficient="mean Pearson", points="runs")
    yield MEANINGS[definition]
    reason = "they share no queries" if pairs.is_empty() else pairs["reason"][0]
    yield Matrices([matrix], absent="") if matrix else f"No correlation between models: {reason}."

    def wide(rows: pl.DataFrame) -> pl.DataFrame:
        cells = rows.select("dataset", "coefficient", cell=pl.struct(pl.exclude("dataset", "coefficient")))
        return cells.pivot(on="coefficient", index="dataset", values="cell")

    titles_of = {"mean": ("", "mean"), "strong_share": ("r > 0.6", ""), "weak_share": ("r < 0.3", "")}
    columns = [
        Column(title or name.capitalize(), value, of=name, note=note or name.capitalize())
        for name in COEFFICIENTS
        for value, (title, note) in titles_of.items()
    ]
    undefined = line("n_undefined", lambda n: f"{n} undefined" if n else "")
    yield Table(
        in_order(wide(by_dataset), datasets),
        [DATASET, *columns, Column("Cases", "n", of="pearson", below=(undefined,))],
        foot=wide(over_all.with_columns(dataset=pl.lit("All datasets"))),
        caption=TEXTS["agreement_caption"],
        style="metrics pvi-models",
        data={"definition": definition},
    )
