"""Build the report sections of in-context PVI, and its section of a comparison. Nothing is computed here."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import polars as pl

from evaluator.compare.report import triangle
from evaluator.compare.runs import ComparedRun
from evaluator.methods import REFERENCE_METHOD
from evaluator.random_baselines.significance import ASSURANCE, POWER, TAIL_TO_TELL
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
    PackageFile,
    Panel,
    Panels,
    Section,
)
from evaluator.report.table import (
    DATASET,
    Column,
    Row,
    Table,
    count,
    count_column,
    digits,
    line,
    marked,
    number,
    probability,
    signed,
    signed_interval,
    significant,
    text_column,
)
from evaluator.report.tables import NEEDED, TESTED, VERDICT, dataset_order, in_order
from evaluator.report.total_error import total_error_sections
from evaluator.suites.in_context_pvi.correlations import PviAgreement
from evaluator.suites.in_context_pvi.report_figures import (
    BY_SOURCE,
    RUN,
    decile_figure,
    density_figure,
    has_several,
    run_name,
    threshold_text,
)
from evaluator.suites.in_context_pvi.schema import CHOSEN, PVI_DEFINITIONS, PVI_ORDERS, PVI_RUN, PviDefinition

MEANINGS: dict[PviDefinition, str] = {
    "paper": "log-likelihoods over the whole vocabulary (Lu et al. 2023, equation 1).",
    "label_space": "the same normalised over the labels, so that the probability of other words is left out.",
    "released": "as in the released notebook: at temperature 0.8, over the 20 most probable tokens, where a label that "
    "is none of these counts as the least probable of them; predictions are drawn from these tokens. The notebook has "
    "nats; here they are bits, as under the other definitions, and the columns of the tables that end in _nats have "
    "its numbers.",
}
"""Definition -> one line for the reader, in the order of the page's choice of definitions."""

DRAWN = "paper"
"""The definition of figures, lists and the table of queries, whichever one the reader chooses for the other tables."""

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

N_LISTED = 5
"""Number of queries of each gold label, and of likely mislabelled ones of each dataset, listed on the page."""

ACROSS = {"sets": "demonstration sets", "shots": "numbers of shots", "models": "models"}
"""Value of the column `across` of PVI_CONSISTENCY -> its name on the page."""

STYLE = PackageFile("evaluator.suites.in_context_pvi", "assets/pvi.css")

Tables = Mapping[str, pl.DataFrame]

SHOTS = count_column("Shots", "n_shots")
SET = text_column("Set", "set_name", style="number")
SOURCE = text_column("Demonstrations", "demonstrations", style="number")


def pvi_sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield the sections of a run of the suite.

    Args:
        run: has TABLES and label_spaces.
    """
    every = {name: run.table(name) for name in TABLES}
    datasets = dataset_order(every["pvi_summary"], run.record.prompts.datasets)
    several = has_several(every["pvi"])
    tables = {name: _ordered(table, datasets) for name, table in every.items()}
    named = pl.format("{} {}" if several else "{}", *(["demonstrations"] if several else []), "demonstration_set")
    for name in ("pvi_summary", "pvi_annotators"):
        tables[name] = tables[name].with_columns(set_name=named)
    drawn = {name: table.filter(definition=DRAWN) for name, table in tables.items()}
    labels = dict(run.table("label_spaces").select("dataset", "label_names").iter_rows())
    present = {*every["pvi_summary"]["definition"]}
    by_definition = {
        name: {key: table.filter(definition=name) for key, table in tables.items()}
        for name in PVI_DEFINITIONS
        if name in present
    }
    sources = {*drawn["pvi_demonstrations"]["demonstrations"]} - {*PVI_ORDERS}
    suite_source = "" if drawn["pvi_chosen"].is_empty() else next(iter(sources))
    yield Section(
        anchor="v-information",
        title="V-information and accuracy",
        kind="pvi",
        navigation="V-information",
        content=[
            "How many bits the input of each query gives the model about its label (Lu et al. 2023).",
            *(_definition(name, _summary_table(name, of["pvi_summary"])) for name, of in by_definition.items()),
        ],
        definitions={name: MEANINGS[name] for name in by_definition},
        datasets=tuple(datasets),
        style=STYLE,
    )
    if suite_source:
        yield _demonstrations_section(drawn, labels, suite_source)
    yield from total_error_sections(run, datasets)
    yield _densities_section(drawn, datasets, several=several)
    yield _deciles_section(drawn, suite_source, several=several)
    yield _stability_section(drawn["pvi_pairs"], by_definition)
    if tables["pvi_annotators"].height:
        yield _annotators_section(by_definition)
    yield _listed_section(drawn, datasets, labels, suite_source)


def pvi_numbers(run: MeasuredRun) -> QueryNumbers:
    """Return PVI in bits and its rank; rank 1 is the lowest PVI of a run, and equal ones share a rank."""
    methods = {order: method for method, order in CHOSEN.items()}
    pvi = run.scan("pvi").filter(definition=DRAWN)
    method = pl.col("demonstrations").replace_strict(methods, default=REFERENCE_METHOD)
    rank = pl.col("pvi_bits").rank("min").over(PVI_RUN)
    key = ("dataset", "n_shots", "demonstration_set", "query_id")
    columns = (NumberColumn("rank", "Rank", 0, 5), NumberColumn("bits", "PVI", 3, 6.5))
    note = "PVI is in bits, and rank 1 is the lowest of its run, equal PVIs share a rank"
    return QueryNumbers(columns, pvi.select(*key, method=method, rank=rank, bits="pvi_bits"), note=note)


def _ordered(table: pl.DataFrame, datasets: Sequence[str]) -> pl.DataFrame:
    """Return a table by dataset and source of demonstrations."""
    if "demonstrations" in table.columns:
        table = table.sort(BY_SOURCE, maintain_order=True)
    return in_order(table, datasets) if "dataset" in table.columns else table


def _definition(name: str, *content: Block) -> Group:
    return Group(content=content, definition=name, style="definition")


def _positive(column: str) -> Callable[[Row], str]:
    """Return a line below another value: a count, none for 0."""
    return lambda row: count(row[column]) if row[column] else ""


def _summary_table(definition: str, rows: pl.DataFrame) -> Table:
    """Return the table of mean PVI and accuracy, one row for each demonstration set; `rows` are PVI_SUMMARY."""
    is_sampled = definition == "released"  # predictions are drawn, not the most probable labels
    ends = {
        f"{side}_{part}": f"{side.capitalize()} {part}" for part in ("fifth", "half") for side in ("lowest", "highest")
    }

    def threshold(row: Row) -> str:
        value = row["threshold"]
        return number(value) if math.isfinite(value) else "never" if value > 0 else "always"

    return Table(
        rows=rows.with_columns(run=pl.format("{} {}", "n_shots", "set_name")),
        columns=[
            DATASET,
            SHOTS,
            SET,
            Column(title="V-information", value="v_information", note="bits", interval=("ci_low", "ci_high")),
            Column(
                title="Accuracy",
                value="accuracy",
                note="other tokens" if is_sampled else "tied labels",
                below=(_positive("n_other_token" if is_sampled else "n_tied"),),
            ),
            *(
                Column(title=title, value=f"{end}_accuracy", note="tied", below=(_positive(f"{end}_tied"),))
                for end, title in ends.items()
            ),
            Column(title="Right", value="right_pvi", note="bits"),
            Column(title="Wrong", value="wrong_pvi", note="bits"),
            Column(
                title="Threshold",
                value="threshold",
                cell=threshold,
                note="right above, wrong below",
                below=(line("threshold_accuracy"),),
                tip=lambda row: threshold_text(row["threshold"]),
            ),
            count_column(
                "Queries",
                "n_queries",
                note="without PVI",
                below=(line("n_missing", count),),
                data={"missing": "n_missing"},
            ),
        ],
        label=f"V-information, {definition}",
        caption=_summary_caption(rows, is_sampled=is_sampled),
        data={"table": "summary", "definition": definition},
        row_data={"run": "run"},
    )


def _summary_caption(rows: pl.DataFrame, *, is_sampled: bool) -> str:
    seed = rows["seed"][0] if rows.height else ""
    accuracy = (
        "they are strictly below or above a quantile, and those equal to it (their number is below) are in neither. "
        f"Accuracy is that of drawn tokens (seed {seed}); below it, the number of queries for which the token drawn is "
        "no label, which counts as wrong."
        if is_sampled
        else "where more queries tie at the border than fit in (their number is below), each counts in part. Below the "
        "accuracy, the number of queries with several labels of the highest score, of which the first counts as "
        "predicted."
    )
    return (
        "One row for each demonstration set. V-information is the mean PVI, in bits, and below it its 95% interval "
        "over queries. Lowest and highest: accuracy in the fifth and in the half of queries with the lowest and the "
        f"highest PVI; {accuracy} Right and wrong: mean PVI of right and of wrong predictions. Threshold: the PVI from "
        "which at least half of the predictions are right, if accuracy is fitted as a non-decreasing function of PVI; "
        "below it, the share of queries that are right above and wrong below the threshold."
    )


def _demonstrations_section(drawn: Tables, labels: Mapping[str, Sequence[str]], suite_source: str) -> Section:
    """Build the section that compares demonstrations chosen by PVI with those of the suite, and lists them."""
    chosen = drawn["pvi_chosen"].with_columns(cut_text(pl.col("text")))
    lists = []
    for (dataset,), of_dataset in chosen.partition_by("dataset", as_dict=True, maintain_order=True).items():
        in_runs = of_dataset.sort(BY_SOURCE, "n_shots", "demonstration_set", "place")
        runs = in_runs.partition_by(RUN, as_dict=True, maintain_order=True)
        names = labels[str(dataset)]
        groups = [
            _listed(
                run_name(n_shots, source, place, several=True),
                [
                    (f"labelled {names[row['gold']]}, {number(row['pvi_bits'])} bits, row {row['row']}", row["text"])
                    for row in rows.iter_rows(named=True)
                ],
            )
            for (source, n_shots, place), rows in runs.items()
        ]
        title = f"{dataset}: chosen demonstrations"
        lists.append(Group(content=groups, title=title, dataset=str(dataset), style="found", is_folded=True))
    note = (
        f"The PVI of training rows was measured after the {suite_source} set 0 of as many shots. For each label, the "
        "hardest are those of the lowest PVI, the easiest those of the highest, and the middle ones those around the "
        "median. Set 0 has the first of them, set 1 the next, and so on."
    )
    return Section(
        anchor="chosen",
        title="Demonstrations chosen by PVI",
        subtitle="Lu et al. 2023, section 5.6",
        kind="pvi",
        navigation="Demonstrations",
        content=[note, _demonstrations_table(drawn["pvi_demonstrations"], suite_source), *lists],
    )


def _demonstrations_table(rows: pl.DataFrame, suite_source: str) -> Table:
    def difference(name: str) -> Column:
        def ends(kind: str) -> Callable[[Row], str]:
            return lambda row: signed_interval(row[f"{name}_{kind}low"], row[f"{name}_{kind}high"])

        return Column(
            title=f"Minus {suite_source}",
            value=f"{name}_difference",
            show=signed,
            note="two intervals",
            below=(ends(""), ends("two_way_")),
        )

    caption = (
        "One row for each source of demonstrations, under the definition <em>{}</em>: means over its sets. Minus {}: "
        "the paired difference to the {} sets on the same queries, and below it two 95% intervals. The first is over "
        "queries, for these sets as they are; in the second the {} sets are a random sample too, and the choice counts "
        "as one more of them: it holds at least as often as 95% if choices vary no more than sets do, and few sets "
        "make it wide. The best set is compared with guessing: max random, below it, is the expected accuracy of the "
        "best of as many random classifiers as there are different sets, and the tail the probability that this best "
        "classifier is at least as accurate. The verdict compares with expected accuracies and is no test; the best "
        "set is better than guessing where the tail is at most {} after Holm's correction for all rows. On the queries "
        "needed, as many sets tell the lower bound of the best set's true accuracy ({}% confidence for all sets at "
        "once) from guessing with probability {}. The best set is one of several tries, and so is the best source."
    )
    sources = (DRAWN, *[suite_source] * 3, TAIL_TO_TELL, f"{100 * ASSURANCE:g}", POWER)
    return Table(
        rows=rows.with_columns(run=pl.format("{} {}", "n_shots", "demonstrations")),
        columns=[
            DATASET,
            text_column(
                "Demonstrations", "demonstrations", style="number", note="sets", below=(line("n_sets", count),)
            ),
            SHOTS,
            count_column("Candidates", "n_candidates", note="of training rows", below=(line("n_training", count),)),
            Column(title="Accuracy", value="accuracy", note="queries", below=(line("n_queries", count),)),
            difference("accuracy"),
            Column(title="Best set", value="best_accuracy", note="max random", below=(line("max_random"),)),
            replace(VERDICT, note="tail", below=(line("log10_tail", probability),)),
            TESTED,
            NEEDED,
            Column(title="V-information", value="v_information", note="bits"),
            difference("v_information"),
        ],
        label="Demonstrations chosen by PVI",
        caption=marked(caption, *sources),
        data={"table": "demonstrations"},
        row_data={"run": "run"},
    )


def _densities_section(drawn: Tables, datasets: Sequence[str], *, several: bool) -> Section:
    """Build the section of the histograms of right and wrong predictions."""
    ends = drawn["pvi_summary"].select("dataset", *RUN, "threshold").iter_rows()
    thresholds = {tuple(key): threshold for *key, threshold in ends}
    groups = []
    for dataset in datasets:
        rows = drawn["pvi_densities"].filter(dataset=dataset)
        panels = []
        for (source, n_shots, place), densities in rows.partition_by(RUN, as_dict=True, maintain_order=True).items():
            threshold = thresholds[dataset, source, n_shots, place]
            name = run_name(n_shots, source, place, several=several)
            panels.append(Panel(name, [density_figure(densities, threshold)], threshold_text(threshold)))
        content = [Panels(panels, style="panels wide", absent="No query has a PVI.")]
        groups.append(Group(content=content, title=dataset, dataset=dataset))
    keys = {"right": "right", "wrong": "wrong", "threshold": "threshold: at least half are right from here up"}
    note = (
        "Histograms of PVI under the definition <em>{}</em>, each with area one; the lowest and the highest 0.5% of "
        "queries are in the two outer bins. All runs of a dataset have the same axis."
    )
    return Section(
        anchor="densities",
        title="Right and wrong predictions by PVI",
        navigation="Right and wrong",
        content=[marked(note, DRAWN), Legend(keys), *groups],
    )


def _deciles_section(drawn: Tables, suite_source: str, *, several: bool) -> Section:
    """Build the section of the accuracies by decile."""
    present = {*drawn["pvi_summary"]["demonstrations"]}
    sources = [name for name in PVI_ORDERS if name in present]
    keys = {"line": f"{suite_source} demonstrations", **{f"line {name}": name for name in sources}}
    by_dataset = drawn["pvi_deciles"].partition_by("dataset", as_dict=True, maintain_order=True)
    panels = [
        Panel(str(name), [decile_figure(rows, several=several)], dataset=str(name))
        for (name,), rows in by_dataset.items()
    ]
    note = (
        "One line for each demonstration set, dashed for more shots, under the definition <em>{}</em>; queries of "
        "equal PVI are in one decile. Intervals are in <code>tables/pvi_deciles.parquet</code>."
    )
    return Section(
        anchor="deciles",
        title="Accuracy by PVI deciles",
        navigation="Deciles",
        content=[marked(note, DRAWN), *([Legend(keys)] if sources else []), Panels(panels, style="curves", absent="")],
    )


def _stability_section(pairs: pl.DataFrame, by_definition: Mapping[PviDefinition, Tables]) -> Section:
    """Build the section of the agreement between runs: correlations, their strength, and analyses of variance."""
    several = has_several(pairs)
    matrices = [
        run_matrix(f"{dataset}, {source}" if several else str(dataset), str(dataset), rows)
        for (dataset, source), rows in pairs.partition_by(
            "dataset", "demonstrations", as_dict=True, maintain_order=True
        ).items()
    ]
    of_one = " with demonstrations of one source" if several else ""
    note = marked(
        "Pearson's correlation of PVI between runs{}, over the queries that have a PVI in both, under the definition "
        "<em>{}</em>.",
        of_one,
        DRAWN,
    )
    absent = "Each dataset has only one run, so there is nothing to compare."
    return Section(
        anchor="stability",
        title="Does a query keep its PVI?",
        kind="pvi",
        navigation="Stability",
        content=[
            *([note] if matrices else []),
            Matrices(matrices, absent),
            *(
                Group(content=[*_stability_tables(name, tables)], definition=name)
                for name, tables in by_definition.items()
            ),
        ],
    )


def run_matrix(title: str, dataset: str, pairs: pl.DataFrame) -> Matrix:
    """Return the correlations between all runs of a dataset and source of demonstrations; `pairs` are PVI_PAIRS."""
    ends = [
        pl.format("{}-shot, set {}", f"{end}_n_shots", f"{end}_demonstration_set").alias(end)
        for end in ("first", "second")
    ]
    named = pairs.with_columns(ends)
    names = list(dict.fromkeys([*named["first"], *named["second"]]))
    # Keyed by the set of the two names, because each pair is drawn in both halves of the square.
    by_pair = {frozenset((row["first"], row["second"])): row for row in named.iter_rows(named=True)}

    def cell(a: str, b: str) -> MatrixCell:
        row = by_pair.get(frozenset((a, b)))
        if row is None:  # the diagonal, and runs that share no query
            return MatrixCell("", style="self")
        r = row["pearson"]
        tests = (
            f"{name.capitalize()} {number(row[name])} (p {significant(row[f'{name}_p'])})"
            for name in ("pearson", "spearman")
        )
        tip = f"{row['first']} and {row['second']}: {', '.join(tests)}, {row['n']:,} queries"
        share = 0.0 if r is None or math.isnan(r) else 100 * abs(r)
        style = "negative" if r is not None and r < 0 else ""
        return MatrixCell(number(r, 2), share, tip, style, {"value": r})

    rows = [(a, [cell(a, b) for b in names]) for a in names]
    label = f"Correlations, {title}"
    return Matrix(title=title, label=label, columns=names, rows=rows, dataset=dataset, data={"table": "heat-map"})


def _stability_tables(definition: str, tables: Tables) -> Iterator[Block]:
    """Yield the strength of correlations, and the analyses of variance, under one definition."""
    several = has_several(tables["pvi_summary"])
    source = [SOURCE] if several else []

    def table(rows: pl.DataFrame, columns: Sequence[Column], label: str, name: str, caption: str) -> Table:
        data = {"table": name, "definition": definition}
        return Table(rows=rows, columns=columns, label=f"{label}, {definition}", caption=caption, data=data)

    consistency, repeated, one_way = (
        tables[name] for name in ("pvi_consistency", "pvi_repeated_measures", "pvi_one_way")
    )
    if consistency.height:
        columns = [
            text_column("Across", "across", cell=lambda row: ACROSS[row["across"]]),
            *source,
            text_column("Coefficient", "coefficient", show=str.capitalize, style="number"),
            count_column("Cases", "n", note="undefined", below=(_positive("n_undefined"),)),
            Column(title="Mean", value="mean"),
            Column(title="Median", value="median"),
            Column(title="r > 0.6", value="strong_share"),
            Column(title="r < 0.3", value="weak_share"),
        ]
        caption = (
            "A case is a dataset and number of shots across demonstration sets, a dataset and set across numbers of "
            "shots, or a run across models; its pairs are averaged first."
        )
        strengths = table(consistency, columns, "Strength of correlations", "consistency", caption)
        yield Group(content=[strengths], title="How strong the correlations are")
    analyses = []
    if repeated.height:
        columns = [
            DATASET,
            *source,
            SHOTS,
            Column(
                title="F",
                value="f",
                show=digits(2),
                note="degrees of freedom",
                below=(lambda row: f"{row['df_condition']:,} and {row['df_residual']:,}",),
            ),
            Column(title="p", value="p", show=significant),
            Column(
                title="Corrected p", value="corrected_p", show=significant, note="epsilon", below=(line("epsilon"),)
            ),
            count_column("Queries", "n_queries", note="left out", below=(_positive("n_left_out"),)),
        ]
        caption = (
            "Analysis of variance over demonstration sets with repeated measures: the same queries with every set. The "
            "corrected p does not assume that the differences between any two sets vary equally (Greenhouse and "
            "Geisser)."
        )
        analyses.append(table(repeated, columns, "Repeated measures", "repeated-measures", caption))
    if one_way.height:
        columns = [
            DATASET,
            *source,
            Column(
                title="F",
                value="f",
                show=digits(2),
                note="degrees of freedom",
                below=(lambda row: f"{row['df_between']} and {row['df_within']}",),
            ),
            Column(title="p", value="p", show=significant),
        ]
        caption = (
            "As published: one-way analysis of variance of mean PVIs of right predictions, one for each run. With so "
            "few numbers only a large difference is significant."
        )
        analyses.append(table(one_way, columns, "One-way analysis", "one-way", caption))
    if analyses:
        yield Group(content=analyses, title="Does PVI depend on the demonstration set?")


def _annotators_section(by_definition: Mapping[PviDefinition, Tables]) -> Section:
    """Build the section of correlations between PVI and annotators."""
    columns = [
        DATASET,
        SHOTS,
        SET,
        text_column("Annotations", "annotations", style="number"),
        text_column("Measure", "measure", show=lambda name: name.replace("_", " "), style="number"),
        *(
            Column(title=name.capitalize(), value=name, note="p", below=(line(f"{name}_p", significant),))
            for name in ("pearson", "spearman")
        ),
        count_column("Queries", "n", note="annotated", below=(line("n_annotated", count),)),
    ]
    note = (
        "Correlation of PVI with the agreement of annotators about the same queries. Agreement is the share of the "
        "most frequent annotation, which the paper calls variation ratio. The variation ratio here is one minus that "
        "share, and entropy is in bits; correlations with these two have the opposite sign."
    )
    tables = [
        Group(
            content=[
                Table(
                    rows=of["pvi_annotators"],
                    columns=columns,
                    label=f"Annotators, {name}",
                    data={"table": "annotators", "definition": name},
                )
            ],
            definition=name,
        )
        for name, of in by_definition.items()
    ]
    return Section(
        anchor="annotators", title="PVI and annotators", kind="pvi", navigation="Annotators", content=[note, *tables]
    )


def _listed_section(
    drawn: Tables, datasets: Sequence[str], labels: Mapping[str, Sequence[str]], suite_source: str
) -> Section:
    """Build the section with the lists of hard and likely mislabelled queries."""
    with_source = f" with {suite_source} demonstrations" if suite_source else ""
    note = (
        "By the mean PVI over all runs{}, under the definition <em>{}</em>: up to {} for each gold label. A label "
        "looks wrong if in every run the PVI is below 0 and the same other label is predicted. This list is for "
        "inspection: a model can be wrong about one kind of query in every run. The complete lists are in "
        "<code>tables/</code>."
    )
    groups = []
    for name in datasets:
        hardest, mislabelled = (drawn[table].filter(dataset=name) for table in ("pvi_hardest", "pvi_mislabelled"))
        n_wrong = mislabelled.height
        groups.append(
            Group(
                content=[*_query_lists(hardest, mislabelled, labels[name])],
                title=f"{name}: {n_wrong:,} label{'s' * (n_wrong != 1)} that look{'s' * (n_wrong == 1)} wrong",
                dataset=name,
                style="found",
                is_folded=True,
                is_open=name == datasets[0],
            )
        )
    return Section(
        anchor="listed",
        title="The hardest queries, and labels that look wrong",
        navigation="Hardest queries",
        content=[marked(note, with_source, DRAWN, N_LISTED), *groups],
    )


def _query_lists(hardest: pl.DataFrame, mislabelled: pl.DataFrame, labels: Sequence[str]) -> Iterator[Block]:
    """Yield the hardest queries of each gold label, then those whose label looks wrong."""

    def item(row: Row, about: str) -> tuple[str, str]:
        place = "" if row["row"] is None else f", row {row['row']}"
        told = f"{number(row['mean_pvi'])} bits, {about}, query {row['query_id']}{place}"
        return told, "text not recorded" if row["text"] is None else row["text"]

    listed = hardest.filter(pl.col("rank") <= N_LISTED).partition_by("gold", as_dict=True, maintain_order=True)
    for (gold,), rows in listed.items():
        items = [item(row, f"right in {row['n_right']} of {row['n_runs']} runs") for row in rows.iter_rows(named=True)]
        yield _listed(f"Hardest of {labels[int(gold)]}", items)
    items = [
        item(row, f"labelled {labels[row['gold']]}, predicted {labels[row['predicted']]} in all {row['n_runs']} runs")
        for row in mislabelled.filter(pl.col("rank") <= N_LISTED).iter_rows(named=True)
    ]
    if items:
        yield _listed("Labels that look wrong", items)


def _listed(title: str, items: Sequence[tuple[str, str]]) -> Group:
    """Return a list of texts, each below a line about it."""
    item = '<span class="interval">{}</span> <q>{}</q>'
    return Group(content=[List([marked(item, about, text) for about, text in items], style="listed")], title=title)


def pvi_comparison_sections(agreement: PviAgreement, runs: Sequence[ComparedRun]) -> Iterator[Section]:
    """Yield the section of a comparison page about the agreement of models on PVI."""
    titles = {run.model: f"{run.number} {run.model}" for run in runs}
    datasets = dataset_order(agreement.models, runs[0].record.prompts.datasets)
    present = set(agreement.models["definition"])
    groups = [
        Group(content=[*_agreement(agreement, name, titles, datasets)], title=name)
        for name in PVI_DEFINITIONS
        if name in present
    ]
    note = (
        "Correlations over the queries of a run, which is a dataset with a number of shots and a demonstration set. "
        "All definitions of PVI are shown, one below the other: the choice at the top of the page is between "
        "definitions of accuracy."
    )
    yield Section(
        anchor="pvi-models",
        title="Does PVI agree between models?",
        subtitle="Lu et al. 2023, section 5.1",
        navigation="PVI",
        content=[note, *groups],
        datasets=tuple(datasets),
    )


def _agreement(
    agreement: PviAgreement, definition: PviDefinition, titles: Mapping[str, str], datasets: Sequence[str]
) -> Iterator[Block]:
    """Yield the agreement between models under one definition of PVI: by pair of models, and by dataset."""
    by_pair, by_dataset, over_all = (
        table.filter(definition=definition) for table in (agreement.by_pair, agreement.by_dataset, agreement.over_all)
    )
    pairs = by_pair.rename({"first": "a", "second": "b", "mean": "rho", "n": "n_points"}).with_columns(
        p_value=pl.lit(None), reason=pl.lit("undefined in every run")
    )
    about = "Mean Pearson correlation over all runs"
    data = {"definition": definition, "over": "runs"}
    label = f"{about}, {definition}"
    matrix = triangle(pairs, titles, about, label, data, coefficient="mean Pearson", points="runs")
    yield MEANINGS[definition]
    reason = "they share no queries" if pairs.is_empty() else pairs["reason"][0]
    yield Matrices([matrix], absent="") if matrix else f"No correlation between models: {reason}."

    def wide(rows: pl.DataFrame) -> pl.DataFrame:
        cells = rows.select("dataset", "coefficient", cell=pl.struct(pl.exclude("dataset", "coefficient")))
        return cells.pivot(on="coefficient", index="dataset", values="cell")

    all_datasets = wide(over_all.with_columns(dataset=pl.lit("All datasets")))
    titles_of = {"mean": ("", "mean"), "strong_share": ("r > 0.6", ""), "weak_share": ("r < 0.3", "")}
    columns = [
        Column(title=title or name.capitalize(), value=value, of=name, note=note or name.capitalize())
        for name in ("pearson", "spearman")
        for value, (title, note) in titles_of.items()
    ]
    undefined = line("n_undefined", lambda n: f"{n} undefined" if n else "")
    yield Table(
        rows=in_order(wide(by_dataset), datasets),
        columns=[DATASET, *columns, count_column("Cases", "n", of="pearson", below=(undefined,))],
        foot=all_datasets,
        label=f"PVI between models by dataset, {definition}",
        caption="A case is a run: the mean of its correlations over all pairs of models. Next to the mean over cases "
        "are the shares of cases with r > 0.6 and with r < 0.3.",
        style="metrics pvi-models",
        data={"definition": definition},
    )
