"""Build the section of total error: intervals side by side, variance components, and what more prompts would change."""

from collections.abc import Iterator, Sequence

import polars as pl

from evaluator.report.metric_texts import MetricTexts
from evaluator.report.section import Block, Group, MeasuredRun, Section
from evaluator.report.table import (
    DATASET,
    Column,
    Table,
    count_column,
    digits,
    interval,
    line,
    percent,
    text,
    text_column,
)
from evaluator.report.tables import DEFINITIONS, in_order
from evaluator.schemas import MEAN_OVER_DATASETS

ROW = [DATASET, text_column("Metric", "title"), text_column("Method", "method"), count_column("Shots", "n_shots")]
"""Columns that name a row of the three tables."""

TOTALS = [
    *ROW,
    Column(title="Value", value="value", bold=lambda _row: True),
    Column(
        title="Interval",
        value="ci_low",
        cell=lambda row: interval(row["ci_low"], row["ci_high"]),
        below=(line("ci_over", text),),
        data={"low": "ci_low", "high": "ci_high"},
    ),
    Column(
        title="Total interval",
        value="total_low",
        cell=lambda row: interval(row["total_low"], row["total_high"]),
        below=(line("total_over", text),),
        data={"low": "total_low", "high": "total_high"},
    ),
]

COMPONENTS = [
    *ROW,
    text_column("Part", "part"),
    text_column("Component", "component"),
    Column(title="Variance", value="variance", show=digits(4), interval=("ci_low", "ci_high")),
    Column(title="Share", value="share", show=percent),
    count_column("Queries", "n_queries"),
]

DESIGNS = [
    *ROW,
    text_column("Question", "question"),
    text_column("More of", "spent_on"),
    count_column("Queries", "n_queries"),
    count_column("Levels", "n_levels"),
    count_column("Sets of a query", "n_draws"),
    count_column("Prompts", "n_prompts"),
    Column(title="Half-width", value="half_width", show=digits(4)),
]

NOTE = (
    "The usual interval says how far the value would move with other queries. But the prompt was drawn or chosen as "
    "well, and another prompt would have given another value. The total interval covers both; few templates or "
    "demonstration sets make it wide."
)


def total_error_sections(
    run: MeasuredRun, datasets: Sequence[str], *, texts: MetricTexts | None = None
) -> Iterator[Section]:
    """Yield the section; nothing where no answers were decomposed.

    Args:
        run: with the tables total_error, variance_components and design_study.
        datasets: the order of rows.
        texts: titles of metrics.
    """
    totals, components, designs = (
        _titled(run.table(name), datasets, texts or MetricTexts())
        for name in ("total_error", "variance_components", "design_study")
    )
    if components.is_empty():
        return
    # Designs are those of the mean over datasets, or of a single dataset.
    designs = designs.filter(dataset=MEAN_OVER_DATASETS if len(datasets) > 1 else datasets[0])
    measured = set(components["definition"])
    groups = [
        Group(
            content=[
                *_blocks(
                    *(rows.filter(definition=name) for rows in (totals, components, designs)), several=len(datasets) > 1
                )
            ],
            definition=name,
            style="definition",
        )
        for name in (*DEFINITIONS, *sorted(measured - {*DEFINITIONS}))
        if name in measured
    ]
    yield Section(
        anchor="total-error",
        title="Total error",
        subtitle="queries and prompts are both samples",
        kind="total-error",
        navigation="Total error",
        content=[NOTE, *groups],
    )


def _titled(rows: pl.DataFrame, datasets: Sequence[str], texts: MetricTexts) -> pl.DataFrame:
    """Return rows with titles of metrics, by part, method, shots and metric; without the mean of a single dataset."""
    kept = rows if len(datasets) > 1 else rows.filter(pl.col("dataset") != MEAN_OVER_DATASETS)
    ordered = in_order(kept, datasets).sort(
        "part", "method", pl.col("n_shots").fill_null(0), "metric", maintain_order=True
    )
    titles = {metric: texts.title(metric) for metric in set(ordered["metric"])}
    return ordered.with_columns(title=pl.col("metric").replace(titles))


def _blocks(totals: pl.DataFrame, components: pl.DataFrame, designs: pl.DataFrame, *, several: bool) -> Iterator[Block]:
    definition = components["definition"][0]

    def table(rows: pl.DataFrame, columns: Sequence[Column], label: str, name: str, caption: str) -> Table:
        data = {"table": name, "definition": definition}
        return Table(rows=rows, columns=columns, label=f"{label}, {definition}", caption=caption, data=data)

    if totals.height:
        caption = "Two 95% intervals of the same value, and what each is over."
        yield table(totals, TOTALS, "Total error", "total-error", caption)
    caption = (
        "Variance components of a single answer, by analysis of variance, with 95% intervals. An estimate below 0 is "
        "noise around a component that is small."
    )
    folded = [table(components, COMPONENTS, "Variance components", "variance-components", caption)]
    if designs.height:
        caption = (
            "Half-widths of the total interval that other numbers of queries, templates or shared sets, and sets of "
            "each query would give, if these components are the true ones; and the fewest prompts for a half-width, by "
            "more queries alone and by more of all. A dash: no number of queries is enough."
            + (" Numbers are of each dataset, prompts of all together." if several else "")
        )
        folded.append(table(designs, DESIGNS, "Design study", "design-study", caption))
    yield Group(content=folded, title="What the error is made of, and what more prompts would change", is_folded=True)
