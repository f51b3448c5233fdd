"""Build the section that compares the methods of a part: a table for each metric, with differences to vanilla."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import polars as pl
from markupsafe import Markup

from evaluator.errors import plural
from evaluator.methods import METHODS
from evaluator.report.section import Block, Group, MeasuredRun, Section, texts
from evaluator.report.table import (
    DEFINITIONS,
    GROUP,
    VERDICT_MARKS,
    Column,
    MetricTexts,
    Row,
    Table,
    dataset_order,
    interval,
    marked,
    number,
    p_text,
    signed,
    signed_interval,
    text_column,
)
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.statistics.paired import LEVEL

TEXTS = texts("evaluator.report")


MAX_LEVEL_TITLES = 6
"""Largest number of datasets whose names fit horizontally above their columns; more names are set vertically."""

MEAN = f"on {MEAN_OVER_DATASETS}"
"""Column with the means over datasets in the frame of method_rows."""


@dataclass(frozen=True)
class PartResults:
    """The metrics of one part and method, with what the sections about them need."""

    suite: str
    part: str
    method: str
    anchor: str  # id of the results on the page; anchors of sections begin with it
    metrics: pl.DataFrame  # schemas.METRICS
    texts: MetricTexts  # titles of metrics
    is_alone: bool  # whether the page has no other results

    @property
    def place(self) -> str:
        """Return the suite and part, as a title."""
        return f"{self.suite} / {self.part}" if self.part else self.suite

    @property
    def about(self) -> str:
        """Return the suite, part and method, as a title."""
        return f"{self.place}, {self.method}"

    @property
    def subtitle(self) -> str:
        """Return the subtitle of the sections: suite, part and method, or nothing if the page has no other results."""
        return "" if self.is_alone else self.about

    def section(self, kind: str, title: str, content: Sequence[Block]) -> Section:
        """Return a section about the results; `kind` is the end of its anchor and its CSS class."""
        return Section(f"{self.anchor}-{kind}", title, content, subtitle=self.subtitle, kind=kind)


def datasets_of(run: MeasuredRun) -> list[str]:
    """Return the names of the measured datasets, in the order of the benchmark."""
    return dataset_order(run.table("metrics"), run.record.prompts.datasets)


def method_order(method: str) -> tuple[int, str]:
    """Return a sort key: methods in the order of METHODS, then others by name."""
    return [*METHODS, method].index(method), method


def by_method(metrics: pl.DataFrame) -> Iterator[tuple[tuple[Any, ...], pl.DataFrame]]:
    """Yield (suite, part, method) and the rows of each group, sorted by suite, part and method_order.

    Args:
        metrics: schemas.METRICS.
    """
    groups = metrics.group_by(GROUP, maintain_order=True)
    yield from sorted(groups, key=lambda group: (*group[0][:2], method_order(group[0][2])))


def method_summary(method: str) -> str | None:
    """Return the summary of a method of METHODS, None for any other method."""
    return METHODS[method].summary if method in METHODS else None


def difference_column(title: str, of: str, between: Callable[[Row], str] | None = None) -> Column:
    """Return a table column of paired differences with interval and p-values, shaded by the sign of the difference.

    Args:
        title, of: title, and column of the frame, whose structs have the fields of compare.schema.DIFFERENCES.
        between: returns a text with the names of both sides of a difference, for the tooltip; None: no names.
    """

    def tip(row: Row) -> str:
        sides = "" if between is None else f"{between(row)}: {row['difference']}, {plural(row['n_queries'], 'query')}; "
        return sides + test_tip(row)

    def p_values(row: Row) -> str:
        return f"p {p_text(row['p_value'])}, after Holm {p_text(row['p_holm'])}"

    return Column(
        title,
        "difference",
        show=signed,
        of=of,
        below=(lambda row: signed_interval(row["ci_low"], row["ci_high"]), p_values),
        tip=tip,
        style=lambda row: f"number difference sign-{sign(row)}",
        data={"low": "ci_low", "high": "ci_high", "p": "p_value", "holm": "p_holm", "detectable": "min_detectable"},
    )


def sign(row: Row) -> str:
    """Return "positive", "negative", or "unclear": not significant at the 5% level after Holm's correction."""
    if row["p_holm"] > LEVEL:
        return "unclear"
    return "positive" if row["difference"] > 0 else "negative"


def test_tip(row: Row) -> str:
    """Describe the test of a difference: both p-values, test, number of tests, smallest detectable difference."""
    return (
        f"p {row['p_value']} ({row['test']}), {row['p_holm']} after Holm's correction for "
        f"{plural(row['n_tests'], 'test')}; smallest detectable difference {number(row['min_detectable'])}"
    )


def methods_section(
    run: MeasuredRun, results: Sequence[PartResults], names: Sequence[str], *, navigation: str
) -> Section:
    """Build the section that compares the methods of a part.

    Args:
        run: measured run with the table method_differences.
        results: results of all methods of the part, in the order of the rows.
        names: metrics to compare, in the order of the tables; each is a mean over queries.
        navigation: entry of the section in the contents of the page.
    """
    first, n_shots = results[0], run.record.prompts.n_shots
    metrics = pl.concat([one.metrics for one in results])
    differences = run.table("method_differences").filter(suite=first.suite, part=first.part)
    groups = []
    for definition in DEFINITIONS:
        cells = _cells(metrics.filter(definition=definition), differences.filter(definition=definition))
        tables: list[Block] = []
        for metric in names:
            if (chosen := cells.filter(metric=metric)).height:
                title = first.texts.title(metric)
                rows, has_best = method_rows(chosen, results, n_shots), chosen["cell"].struct.field("is_best").any()
                caption, columns = _caption(metric, title, not tables, has_best), _columns(rows, datasets_of(run))
                style, row_data = "metrics methods", {"method": "method"}
                table = Table(rows, columns, caption=caption, style=style, row_data=row_data, data={"metric": metric})
                tables.append(Group([table], f"The same of {title.lower()}", is_folded=True) if tables else table)
        if tables:
            groups.append(Group(tables, definition=definition, style="definition"))
    anchor, kind = f"methods-{first.anchor}", "compared-methods"
    return Section(anchor, "Inference methods", groups, subtitle=first.place, kind=kind, navigation=navigation)


def _cells(metrics: pl.DataFrame, differences: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each metric, method and dataset, with a struct `cell` of all that a table cell shows.

    Returns:
        metric, method, dataset, and `cell`: the columns of schemas.METRICS, `against` (the row of DIFFERENCES between
        the method and vanilla), `difference`, and `is_best`: the value is the highest on its dataset, and the
        difference to vanilla is significantly positive after Holm's correction.
    """
    against = differences.select(
        "metric", "dataset", method="method_a", against=pl.struct(pl.exclude("metric", "dataset", "method_a"))
    )
    key = ["metric", "method", "dataset"]
    joined = metrics.join(against, on=key, how="left", maintain_order="left")
    difference = pl.col("against").struct
    is_positive = (difference.field("p_holm") <= LEVEL) & (difference.field("difference") > 0)
    is_best = is_positive & (pl.col("value") == pl.col("value").fill_nan(None).max().over("metric", "dataset"))
    cells = joined.with_columns(difference=difference.field("difference"), is_best=is_best.fill_null(False))
    return cells.select(*key, cell=pl.struct(pl.exclude("metric", "dataset")))


def method_rows(cells: pl.DataFrame, results: Sequence[PartResults], n_shots: int | None) -> pl.DataFrame:
    """Return a row for each method: method, anchor, place, summary, labelled, minus, and a column for each dataset.

    Args:
        cells: rows of _cells of one metric.
        results: results of all methods of the part, in the order of the rows.
        n_shots: demonstrations in a prompt; None if prompts differ.

    Returns:
        The columns of datasets are named "on DATASET" and have the structs `cell`; `minus` is the difference of the
        mean over datasets to vanilla; `labelled` is the number of labelled examples that a method uses in addition.
    """
    wide = cells.with_columns(pl.format("on {}", "dataset")).pivot(on="dataset", index="method", values="cell")
    about = []
    for place, one in enumerate(results, 1):
        known = METHODS.get(one.method)
        # Labelled examples that the method uses in addition to the demonstrations; inf: all, null: unknown.
        labelled = known.labelled_examples(n_shots) if known and n_shots is not None else None
        about.append((one.method, one.anchor, f"{place:03}", method_summary(one.method), labelled))
    names = dict.fromkeys(("method", "anchor", "place", "summary"), pl.String) | {"labelled": pl.Float64}
    methods = pl.DataFrame(about, schema=names, orient="row")
    rows = methods.join(wide, on="method", how="left", maintain_order="left")
    return rows.with_columns(minus=pl.col(MEAN).struct.field("against") if MEAN in rows.columns else None)


def _columns(rows: pl.DataFrame, datasets: Sequence[str]) -> list[Column]:
    """Return the columns of a table of methods: mean, difference to vanilla, datasets, and sizes."""

    def labelled_text(n: float) -> str:
        return "all" if math.isinf(n) else f"{n:,.0f}"

    def link(row: Row) -> str:
        return marked('<a href="#{}">{}</a>', row["anchor"], row["method"])

    return [
        text_column("Method", "place", cell=link, tip=itemgetter("summary")),
        replace(_value_column("Mean", MEAN, "mean over datasets"), interval=("ci_low", "ci_high"), style="number mean"),
        difference_column("Minus vanilla", "minus"),
        *(
            replace(
                _value_column(name, f"on {name}", name),
                below=(lambda row: signed(row["against"]["difference"]) if row["against"] else "\u00a0",),
                style=lambda row: "number compared" + (f" sign-{sign(row['against'])}" if row["against"] else ""),
                head="upright" if len(datasets) > MAX_LEVEL_TITLES else "",
                data={"low": "ci_low", "high": "ci_high", "difference": "difference"},
                dataset=name,
            )
            for name in datasets
            if f"on {name}" in rows.columns
        ),
        Column("Labelled examples", "labelled", show=labelled_text, style="number labelled"),
        Column("Requests", "n_requests", of=MEAN, note="queries", below="n_queries", style="number sizes"),
    ]


def _value_column(title: str, of: str, about: str) -> Column:
    """Return a table column of values with the marks of their verdicts; the best value is bold.

    Args:
        title: title of the column.
        of: column of structs in the frame of method_rows.
        about: dataset, or "mean over datasets", for the tooltip.
    """

    def tip(row: Row) -> str:
        text = f"{row['method']}, {about}: {row['value']}, 95% interval {interval(row['ci_low'], row['ci_high'])}"
        text += f", {row['verdict']}" if row["verdict"] else ""
        if against := row["against"]:
            ends = signed_interval(against["ci_low"], against["ci_high"])
            text += f"; minus vanilla {signed(against['difference'])} ({ends}), {test_tip(against)}"
        return f"{text}; {plural(row['n_requests'], 'request')}"

    def cell(row: Row) -> str:
        mark = marked('<span class="mark">{}</span> ', VERDICT_MARKS[row["verdict"]]) if row["verdict"] else Markup()
        return mark + marked("<b>{}</b>" if row["is_best"] else "{}", number(row["value"]))

    return Column(title, "value", cell=cell, of=of, tip=tip, data={"low": "ci_low", "high": "ci_high"})


def _caption(metric: str, title: str, is_first: bool, has_best: bool) -> str:
    if not is_first:
        return f"{title}, and below it the gain over vanilla, as in the table above."
    marks = ", ".join(f"{mark} {verdict}" for verdict, mark in VERDICT_MARKS.items())
    verdicts = f", with its verdict against guessing ({marks})" if metric == "accuracy" else ""
    return TEXTS["methods_caption"].format(title, verdicts, "" if has_best else "; here none is")
