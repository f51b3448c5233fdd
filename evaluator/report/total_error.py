"""Build the section of total error: usual and total intervals, variance components, and a design study."""

from collections.abc import Iterator, Sequence

import polars as pl

from evaluator.report.section import Block, Group, MeasuredRun, Section, definition_groups, texts
from evaluator.report.table import (
    CORE_TITLES,
    DATASET,
    DEFINITIONS,
    Column,
    MetricTexts,
    Table,
    digits,
    ends_column,
    in_order,
    percent,
    text_column,
)
from evaluator.schemas import MEAN_OVER_DATASETS

TEXTS = texts("evaluator.report")

ROW = [DATASET, text_column("Metric", "title"), text_column("Method", "method"), Column("Shots", "n_shots")]
"""Columns that identify a row in each of the three tables below."""

TOTALS = [
    *ROW,
    Column("Value", "value", bold=True),
    ends_column("Interval", "ci_low", "ci_high", below="ci_over"),
    ends_column("Total interval", "total_low", "total_high", below="total_over"),
]

COMPONENTS = [
    *ROW,
    text_column("Part", "part"),
    text_column("Component", "component"),
    Column("Variance", "variance", show=digits(4), interval=("ci_low", "ci_high")),
    Column("Share", "share", show=percent),
    Column("Queries", "n_queries"),
]

DESIGNS = [
    *ROW,
    text_column("Part", "part"),
    text_column("Question", "question"),
    text_column("More of", "spent_on"),
    Column("Queries", "n_queries"),
    Column("Levels", "n_levels"),
    Column("Sets of a query", "n_draws"),
    Column("Prompts", "n_prompts"),
    Column("Half-width", "half_width", show=digits(4)),
]


def total_error_sections(
    run: MeasuredRun, datasets: Sequence[str], *, texts: MetricTexts = CORE_TITLES
) -> Iterator[Section]:
    """Yield the section of total error; no section if the run has no variance components.

    Args:
        run: measured run with the tables total_error, variance_components and design_study.
        datasets: names of datasets, in the order of the rows.
        texts: titles of metrics.
    """
    names = ("total_error", "variance_components", "design_study")
    ordered = [in_order(run.table(name), datasets) for name in names]
    totals, components, designs = [_titled(rows, texts) for rows in ordered]
    if components.is_empty():
        return
    # Show the design study of the mean over datasets, or of the dataset if there is only one.
    designs = designs.filter(dataset=MEAN_OVER_DATASETS if len(datasets) > 1 else datasets[0])
    measured = set(components["definition"])  # suites may have definitions of their own
    definitions = [*(name for name in DEFINITIONS if name in measured), *sorted(measured - {*DEFINITIONS})]
    tables, several = (totals, components, designs), len(datasets) > 1
    groups = definition_groups(
        (name, _blocks(*[rows.filter(definition=name) for rows in tables], several=several)) for name in definitions
    )
    yield Section(
        "total-error",
        "Total error",
        [TEXTS["note"], *groups],
        subtitle="queries and prompts are both samples",
        kind="total-error",
        navigation="Total error",
    )


def _titled(rows: pl.DataFrame, texts: MetricTexts) -> pl.DataFrame:
    """Add the titles of metrics, and sort by part, method, shots and metric."""
    by = ("part", "method", pl.col("n_shots").fill_null(0), "metric")
    titles = {metric: texts.title(metric) for metric in set(rows["metric"])}
    return rows.sort(*by, maintain_order=True).with_columns(title=pl.col("metric").replace(titles))


def _blocks(totals: pl.DataFrame, components: pl.DataFrame, designs: pl.DataFrame, *, several: bool) -> Iterator[Block]:
    if totals.height:
        caption = "Two 95% intervals of the same value, and what each is over."
        yield Table(totals, TOTALS, caption=caption, data={"table": "total-error"})
    caption = TEXTS["components_caption"]
    folded = [Table(components, COMPONENTS, caption=caption, data={"table": "variance-components"})]
    if designs.height:
        of_several = " Numbers are of each dataset, prompts of all together." if several else ""
        caption = TEXTS["designs_caption"] + of_several
        folded.append(Table(designs, DESIGNS, caption=caption, data={"table": "design-study"}))
    yield Group(folded, "What the error is made of, and what more prompts would change", is_folded=True)
