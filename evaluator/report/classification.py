"""Build the sections of a classification run: for each part methods, results, reliability, coverage and confusion."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

import polars as pl

from evaluator.errors import plural
from evaluator.random_baselines.max_random import ASSURANCE, POWER, TAIL_TO_TELL
from evaluator.report import figures
from evaluator.report.methods import PartResults, by_method, datasets_of, method_summary, methods_section
from evaluator.report.section import (
    Block,
    Filled,
    Group,
    Legend,
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
    BASELINES,
    DATASET,
    DEFINITIONS,
    VERDICT_MARKS,
    Column,
    MetricTexts,
    Row,
    Table,
    by_definition,
    ends_column,
    in_order,
    limit_text,
    lower_is_better,
    mean_items,
    metric_column,
    number,
    p_text,
    percent,
    probability,
    text_column,
    told,
)
from evaluator.schemas import MEAN_OVER_DATASETS

TEXTS = texts("evaluator.report")

INTERVAL_FIGURES = ("accuracy", "true_label_probability")
"""Metrics whose values and intervals are drawn; uniform guessing has the expected value 1 / n_labels in both."""

MAX_LABELS = 100
"""Largest number of labels for which a page has a confusion matrix, which has n_labels x n_labels cells."""

FIGURE_DEFINITION = "paper"
"""Definition of the reliability diagrams and confusion matrices; the reader cannot switch it."""


def classification_sections(
    run: MeasuredRun, *, texts: MetricTexts, without_parts: Collection[str]
) -> Iterator[Section]:
    """Yield the sections of each part: a comparison of its methods, then the first method open, the others folded.

    Args:
        run: measured run with the tables of suites.base.classification_tables.
        texts: titles of metrics.
        without_parts: names of parts to leave out.
    """
    groups = list(by_method(run.table("metrics").filter(~pl.col("part").is_in(without_parts))))
    has_other_parts = len({key[:2] for key, _ in groups}) > 1
    results = [
        PartResults(suite, part, method, f"method-{number}", rows, texts, is_alone=len(groups) == 1)
        for number, ((suite, part, method), rows) in enumerate(groups, 1)
    ]
    # Results are sorted by suite and part, so a run of equal places holds the methods of one part.
    for _, methods in groupby(results, key=lambda result: result.place):
        yield from _part_sections(run, [*methods], has_other_parts=has_other_parts)


def with_head(sections: Sequence[Section], run: MeasuredRun, notes: Sequence[str]) -> list[Section]:
    """Return the sections; the first one also gets the notes, definitions and datasets of the whole page."""
    present = set(run.table("metrics")["definition"])
    definitions = {name: meaning for name, meaning in DEFINITIONS.items() if name in present}
    head = {"notes": tuple(notes), "definitions": definitions, "datasets": tuple(datasets_of(run))}
    return [*(replace(first, **head) for first in sections[:1]), *sections[1:]]  # type: ignore[arg-type]


def _part_sections(run: MeasuredRun, results: Sequence[PartResults], *, has_other_parts: bool) -> Iterator[Section]:
    first, *others = results
    place = f", {first.part}" if has_other_parts else ""
    if others:
        yield methods_section(run, results, INTERVAL_FIGURES, navigation=f"Inference methods{place}")
    yield from _result_sections(run, first, navigation=f"Results{place}")
    if others:
        yield Section(
            f"others-{first.anchor}",
            "Other methods",
            [
                Section(
                    f"folded-{one.anchor}",
                    one.method,
                    [*_result_sections(run, one)],
                    subtitle=method_summary(one.method) or "",
                    kind="method",
                    is_folded=True,
                )
                for one in others
            ],
            subtitle=f"{first.place}: results, reliability and confusion of each",
            kind="other-methods",
        )


def _result_sections(run: MeasuredRun, results: PartResults, *, navigation: str = "") -> Iterator[Section]:
    """Yield the sections of one method.

    Args:
        navigation: entry of the results in the contents of the page; "": the method has no entry, and no figures of
            intervals.
    """
    datasets, spaces = datasets_of(run), run.table("label_spaces").filter(suite=results.suite, part=results.part)
    texts, metrics = results.texts, results.metrics
    headlines, others = texts.headlines(metrics), texts.headlines(metrics, others=True)
    headline, further = list(by_definition(headlines, datasets)), list(by_definition(others, datasets))
    n_labels = spaces.select("dataset", n_labels=pl.col("label_names").list.len())
    sized = [(name, rows.join(n_labels, on="dataset", how="left", maintain_order="left")) for name, rows in headline]
    groups = definition_groups(_results(results, sized, texts.in_order(headlines["metric"])))
    blocks: list[Block] = [*groups] or [TEXTS["no_true_labels"]]
    yield Section(results.anchor, "Results", blocks, subtitle=results.subtitle, kind="results", navigation=navigation)
    if navigation and headline:
        yield _intervals_section(results, headline)
    key = {"suite": results.suite, "part": results.part, "method": results.method}
    names = ("reliability", "coverage", "thresholds", "risk_coverage", "confusion")
    tables = [run.table(name).filter(**key) for name in names]
    bins, coverage, thresholds, curves, confusion = [in_order(rows, datasets) for rows in tables]
    if bins.height:
        yield _reliability_section(results, dict(headline), in_order(bins, datasets, "bin"))
    if coverage.height:  # the method has label probabilities
        yield _coverage_section(results, coverage, thresholds, curves)
    if confusion.height:
        labels = dict(spaces.select("dataset", "label_names").iter_rows())
        matrices = [
            confusion_matrix(str(name), labels[name], counts)
            for (name,), counts in confusion.group_by("dataset", maintain_order=True)
            if len(labels[name]) <= MAX_LABELS
        ]
        note = TEXTS["confusion_note"].format(FIGURE_DEFINITION, MAX_LABELS)
        yield results.section("confusion", "Confusion matrices", [note, Matrices(matrices, absent="")])
    if further:
        yield _further_section(results, texts.in_order(others["metric"]), further)


def _results(
    results: PartResults, headline: Sequence[tuple[str, pl.DataFrame]], names: Sequence[str]
) -> Iterator[tuple[str, Sequence[Block]]]:
    """Yield the blocks of each definition: means over datasets, table of datasets, and tests against guessing."""
    texts, columns = results.texts, [DATASET]
    for name in names:
        columns.append(replace(metric_column(name, texts), bold=True))
        columns += BASELINES if name == "accuracy" else []
    queries = Column("Queries", "n_queries", of="sizes", note="requests", below="n_requests")
    columns += [Column("Labels", "n_labels"), queries]
    about, lower = results.about, lower_is_better(names, texts)
    of_errors = TEXTS["calibration_meaning"] if "expected_calibration_error" in names else ""
    for definition, rows in headline:
        blocks, present = list[Block](), [name for name in names if name in rows.columns]
        mean = rows if rows.height == 1 else rows.filter(dataset=MEAN_OVER_DATASETS)
        if mean.height:
            cells = {name: cell for name in present if (cell := mean[name].item())}
            blocks.append(Filled("summary.html", {"items": mean_items(cells, texts)}))
        accuracies = rows.select("dataset", "accuracy").unnest("accuracy") if "accuracy" in present else None
        is_judged = accuracies is not None and bool(accuracies["verdict"].count())
        # Every metric has numbers of queries and requests: take those of the first metric that was measured.
        sizes = pl.struct(
            pl.coalesce(pl.col(name).struct.field(size) for name in present).alias(size)
            for size in ("n_queries", "n_requests")
        )
        of_verdicts = TEXTS["verdict_meaning"].format(TAIL_TO_TELL) if is_judged else ""
        caption = TEXTS["results_caption"].format(about, definition, lower, of_errors, of_verdicts)
        blocks.append(Table(rows.with_columns(sizes=sizes), columns, is_mean_last=True, caption=caption))
        if accuracies is not None and is_judged:
            blocks += _against_guessing(accuracies)
        yield definition, blocks


def _against_guessing(accuracies: pl.DataFrame) -> Iterator[Block]:
    """Yield a sentence with the number of datasets of each verdict, and the folded table of the tests.

    Args:
        accuracies: rows of schemas.METRICS with metric "accuracy", of one method and definition.
    """
    of_datasets = accuracies.filter(pl.col("dataset") != MEAN_OVER_DATASETS)
    n_datasets = of_datasets.height
    judged = [
        f"{mark} {verdict} on {of_datasets.filter(verdict=verdict).height}" for verdict, mark in VERDICT_MARKS.items()
    ]
    tested = accuracies.filter(pl.col("p_holm").is_not_null())
    n_tests = plural(tested["n_tests"][0], "test")
    text = f"{', '.join(judged)} of {plural(n_datasets, 'dataset')}".capitalize()
    text += f", at the {100 * TAIL_TO_TELL:g}% level after Holm's correction for {n_tests}."
    no_better = of_datasets.filter(pl.col("value") <= pl.col("majority"))["dataset"].to_list()
    if no_better:
        named = ", ".join(no_better) if len(no_better) <= 3 else f"{len(no_better)} of them"
        named = "every dataset" if len(no_better) == n_datasets > 1 else named
        text += f" Always answering with the majority label is at least as accurate on {named}."
    yield Group([text], style="judged")
    caption = TEXTS["tests_table_caption"].format(100 * ASSURANCE, POWER)
    table = Table(tested, TESTS, style="metrics tests", caption=caption)
    yield Group([table], "Tests against guessing, and the queries they need", is_folded=True)


TESTS = [
    DATASET,
    Column("p, uniform", "log10_tail", show=probability),
    Column("after Holm", "p_holm", show=p_text),
    text_column("Better than uniform guessing", "p_holm", show=told),
    Column("p, majority", "p_majority", show=p_text),
    Column("after Holm", "p_majority_holm", show=p_text),
    text_column("Better than majority", "p_majority_holm", show=told),
    Column("Lower bound", "accuracy_lower_bound"),
    Column("Queries needed", "n_needed"),
    ends_column("Bayesian interval", "credible_low", "credible_high"),
]
"""Columns of the table of tests against guessing."""


def _further_section(
    results: PartResults, names: Sequence[str], further: Sequence[tuple[str, pl.DataFrame]]
) -> Section:
    """Build the folded section of the metrics that are not headlines: proper scores, their components, label mass."""
    texts = results.texts
    columns, lower = [DATASET, *[metric_column(name, texts) for name in names]], lower_is_better(names, texts)
    of_scores = TEXTS["score_meaning"] if "brier_score" in names else ""
    of_mass = TEXTS["mass_meaning"] if "label_mass_median" in names else ""
    about, caption = results.about, TEXTS["further_caption"]

    def table(definition: str, rows: pl.DataFrame) -> Table:
        told = caption.format(about, definition, of_scores, of_mass, lower)
        return Table(rows, columns, is_mean_last=True, caption=told)

    groups = definition_groups([(definition, [table(definition, rows)]) for definition, rows in further])
    parts = "Brier score and log loss with their parts, and how much probability the labels have"
    section = results.section("further", "Proper scores and label mass", groups)
    return replace(section, subtitle=f"{about}: {parts}", is_folded=True)


def _intervals_section(results: PartResults, headline: Sequence[tuple[str, pl.DataFrame]]) -> Section:
    """Build the section that draws the metrics of INTERVAL_FIGURES, with intervals, for each definition."""
    keys = {"value": "value and 95% interval", "chance": "chance, 1 / labels", "majority": "majority label (accuracy)"}
    titles = [(name, results.texts.title(name)) for name in INTERVAL_FIGURES]

    def pair(rows: pl.DataFrame) -> Panels:
        drawn = [(title, _interval_rows(name, rows)) for name, title in titles if name in rows]
        return Panels([Panel(title, [figures.interval_rows(values)]) for title, values in drawn], style="pair")

    groups = definition_groups([(definition, [pair(rows)]) for definition, rows in headline])
    return results.section("intervals", "Accuracy and true-label probability", [Legend(keys), *groups])


def _interval_rows(metric: str, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of a figure of intervals (figures.interval_rows); `majority` is null unless accuracy is drawn.

    Args:
        metric: "accuracy" or "true_label_probability".
        rows: table of results of one definition, as table.by_definition yields it.
    """
    shown = ("dataset", "value", "ci_low", "ci_high", "chance", "majority", "verdict")
    values = rows.select("dataset", metric).drop_nulls().unnest(metric).select(shown)
    if metric != "accuracy" and "accuracy" in rows.columns:  # chance, 1 / n_labels, is recorded with accuracy only
        values = values.update(rows.select("dataset", pl.col("accuracy").struct.field("chance")), on="dataset")

    def description(row: Row) -> str:
        text = f"{value_text(row)}; chance {recorded(row['chance'])}"
        if metric == "accuracy":
            text += f", majority label {recorded(row['majority'])}"
        return f"{text}; verdict: {row['verdict']}" if row["verdict"] else text

    return values.drop("verdict").with_columns(described(values, description))


def described(rows: pl.DataFrame, description: Callable[[Row], str]) -> pl.Series:
    """Return the column `description` of a figure: the text of `description` for each row."""
    return pl.Series("description", map(description, rows.iter_rows(named=True)), dtype=pl.String)


def value_text(row: Row) -> str:
    """Describe a value with its interval; the text begins with the dataset, because page.js finds rows by it."""
    ends = f"{recorded(row['ci_low'])} to {recorded(row['ci_high'])}"
    return f"{row['dataset']}: {row['value']:.3f}, 95% interval {ends}"


def recorded(value: float | None) -> str:
    """Return a value with three decimals, "not recorded" for None."""
    return "not recorded" if value is None else f"{value:.3f}"


def _reliability_section(results: PartResults, headline: Mapping[str, pl.DataFrame], bins: pl.DataFrame) -> Section:
    """Build the section with a reliability diagram for each dataset; `bins` is schemas.RELIABILITY, sorted."""
    rows = headline.get(FIGURE_DEFINITION, pl.DataFrame())
    cells = [row for row in rows.iter_rows(named=True) if row.get("expected_calibration_error")]
    errors = {row["dataset"]: f"ECE {number(row['expected_calibration_error']['value'])}" for row in cells}
    panels = dataset_panels(bins, lambda of_dataset: [figures.reliability_figure(of_dataset)], errors)
    note = TEXTS["reliability_note"].format(FIGURE_DEFINITION)
    return results.section("reliability", "Reliability", [note, Panels(panels)])


def _coverage_section(
    results: PartResults, coverage: pl.DataFrame, thresholds: pl.DataFrame, curves: pl.DataFrame
) -> Section:
    """Build the section of coverage: two tables, and accuracy over the share of used answers for each dataset.

    Args:
        coverage, thresholds, curves: schemas.COVERAGE, THRESHOLDS and RISK_COVERAGE of one part and method.
    """
    area, excess, temperature = (
        Column(title, name, interval=(f"{name}_low", f"{name}_high"))
        for title, name in (("AURC", "aurc"), ("Excess AURC", "excess_aurc"), ("Temperature", "temperature"))
    )
    error = Column("Calibration error", "calibration_error", note="calibrated model", below="calibration_floor")
    p, sets = Column("p", "calibration_p", show=p_text), Column("Set size", "set_size", note="90% coverage")
    columns = [DATASET, Column("Accuracy", "accuracy"), area, excess, error, p, temperature, sets]
    promised = [
        DATASET,
        Column("Target", "target", show=percent),
        Column("Threshold", "threshold", show=limit_text),
        Column("Used", "share", interval=("share_low", "share_high")),
        Column("Accuracy of these", "value", interval=("value_low", "value_high")),
        Column("Could be promised", "largest_target", show=percent),
        Column("Answers", "n", note="needed", below="rows_needed"),
    ]
    blocks: list[Block] = [
        Table(coverage, columns, caption=TEXTS["coverage_caption"]),
        Table(thresholds, promised, caption=TEXTS["thresholds_caption"]),
        Panels(dataset_panels(curves, lambda rows: [figures.risk_coverage_figure(rows)])),
    ]
    return replace(results.section("coverage", "Coverage and thresholds", blocks), subtitle=results.about)


def confusion_matrix(dataset: str, labels: Sequence[str], confusion: pl.DataFrame) -> Matrix:
    """Return the confusion matrix of one dataset, each cell shaded by its share of the row.

    Args:
        labels: label names in label-space order.
        confusion: schemas.CONFUSION of one dataset and method; a missing pair of labels counts 0.
    """
    counts = {(gold, pred): n for gold, pred, n in confusion.select("gold", "pred", "n_requests").iter_rows()}

    def cell(gold: int, pred: int, total: int) -> MatrixCell:
        n = counts.get((gold, pred), 0)
        share = 100 * n / total if total else 0.0
        tip = f"gold {labels[gold]}, predicted {labels[pred]}: {n} of {total} ({share:.1f}%)"
        return MatrixCell(str(n), share, tip, "right" if gold == pred else "")

    places = range(len(labels))
    totals = [sum(counts.get((gold, pred), 0) for pred in places) for gold in places]
    rows = [(labels[gold], [cell(gold, pred, totals[gold]) for pred in places]) for gold in places]
    return Matrix(title=dataset, columns=labels, rows=rows, dataset=dataset)
