"""Arrange metrics as tables with a row for each dataset, and define the columns that show them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import polars as pl
from markupsafe import Markup

from evaluator.metrics.guessing import VERDICTS
from evaluator.random_baselines.significance import TAIL_TO_TELL, Verdict
from evaluator.report.metric_texts import MetricTexts
from evaluator.report.table import Column, Row, interval, line, number, p_text, plural, probability
from evaluator.schemas import MEAN_OVER_DATASETS

GROUP = ["suite", "part", "method"]
"""Columns that identify a results table; there is one for each definition, with a row for each dataset."""

DEFINITIONS = {
    "paper": "the papers' formulas. Every token of a label is scored, and probabilities are taken as they are.",
    "released": (
        "what the released toolkit computes. A label's last token alone is scored, and probabilities pass through "
        "a second softmax wherever one row misses a sum of 1."
    ),
    "published": "what the published tables were made with, to compare with: as released, without the second softmax.",
    "floored": "the papers' formulas, with reported zeros raised to half the step that probabilities were rounded to.",
}
"""Definition -> its meaning in one line, in the order of the control that switches between them."""

VERDICT_MARKS = dict(zip(VERDICTS, "●◐○", strict=True))
"""Verdict on a mean accuracy -> its mark, from best to worst."""

POSITION_MARKS: dict[Verdict, str] = {"above both": "●", "between": "◐", "below both": "○"}
"""Position of a best accuracy among two expected ones -> its mark in table 1 of Yauney & Mimno 2024."""


def dataset_order(metrics: pl.DataFrame, benchmark_order: Sequence[str]) -> list[str]:
    """Return the measured datasets in the order of the benchmark, then any others by name."""
    measured = set(metrics["dataset"]) - {MEAN_OVER_DATASETS}
    named = [name for name in benchmark_order if name in measured]
    return named + sorted(measured.difference(named))


def in_order(rows: pl.DataFrame, datasets: Sequence[str], *by: str) -> pl.DataFrame:
    """Return the rows of these datasets and the mean over them, in this order, and within a dataset by `by`."""
    order = pl.Enum(list(dict.fromkeys([*datasets, MEAN_OVER_DATASETS])))
    kept = rows.filter(pl.col("dataset").is_in(order.categories.to_list()))
    return kept.sort(pl.col("dataset").cast(order), *by, maintain_order=True)


def by_definition(metrics: pl.DataFrame, datasets: Sequence[str]) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield each measured definition, in the order of DEFINITIONS, with its table of results.

    Args:
        metrics: schemas.METRICS of one group.
        datasets: the order of the rows.

    Yields:
        definition, and a row for each dataset, the mean over them last: `dataset`, and a column of structs for each
        metric, whose fields are the columns of schemas.METRICS; null where the metric was not measured.
    """
    for definition in DEFINITIONS:
        measured = metrics.filter(definition=definition).with_columns(pl.col("value").fill_null(float("nan")))
        cells = measured.select("dataset", "metric", cell=pl.struct(pl.exclude("dataset")))
        # Suites can share a part's prompts and measure the same metric: the values are equal.
        wide = cells.pivot(on="metric", index="dataset", values="cell", aggregate_function="last")
        rows = in_order(wide, datasets)
        if set(rows["dataset"]) - {MEAN_OVER_DATASETS}:
            yield definition, rows


def metric_column(metric: str, texts: MetricTexts) -> Column:
    """Return the column of a metric in a table of by_definition: values with their intervals."""
    title = texts.title(metric)
    return Column(
        title=title,
        value="value",
        of=metric,
        interval=("ci_low", "ci_high"),
        below=(line("reduced_bias", lambda value: f"reduced-bias {number(value)}"),),
        tip=lambda cell: f"{title} {value_tip(cell)}",
        style="number metric",
        data={"metric": "metric"},
    )


def value_tip(cell: Row) -> str:
    """Return a value at full precision with its interval and sizes."""
    ends = interval(cell["ci_low"], cell["ci_high"])
    sizes = f"{cell['n_queries']:,} queries in {cell['n_requests']:,} requests"
    return f"{cell['value']}, 95% interval {ends}, {sizes}"


def lower_is_better(metrics: Sequence[str], texts: MetricTexts) -> str:
    """Return a sentence for each metric that is better low."""
    return "".join(f" {texts.title(name)}: lower is better." for name in metrics if texts.lower_is_better(name))


POSITION = Column(
    title="Position",
    value="log10_tail",
    cell=lambda row: f"{POSITION_MARKS[row['verdict']]} {row['verdict']}",
    style="verdict",
    data={"verdict": "verdict"},
)
"""The column of where a best accuracy is among expected ones, which is no test; a reader sorts by the tail."""

TESTED = Column(
    title="Better than uniform guessing",
    value="p_holm",
    cell=lambda row: "yes" if row["better_than_uniform"] else "no",
    note="after Holm",
    below=(line("p_holm", lambda p: f"p {p_text(p)}"),),
    tip=lambda row: (
        f"p {row['p_value']}; {row['p_holm']} after Holm's correction for {plural(row['n_tests'], 'test')}."
    ),
    style="tested",
    data={
        "better": "better_than_uniform",
        "p": "p_value",
        "tests": "n_tests",
        "lower": "accuracy_lower_bound",
        "needed": "n_needed",
    },
)
"""The column of tests of accuracies against uniform guessing."""

MAJORITY_TESTED = replace(
    TESTED,
    title="Better than majority",
    value="p_majority_holm",
    cell=lambda row: "yes" if row["p_majority_holm"] <= TAIL_TO_TELL else "no",
    below=(line("p_majority_holm", lambda p: f"p {p_text(p)}"),),
    tip=lambda row: (
        f"p {row['p_majority']}, paired, of the best constant answer; {row['p_majority_holm']} after Holm's correction "
        f"for {plural(row['n_tests'], 'test')}."
    ),
    data={"p": "p_majority"},
)
"""The column of tests of mean accuracies against the majority label."""

NEEDED = Column(
    title="Queries needed",
    value="accuracy_lower_bound",
    cell=lambda row: "–" if row["n_needed"] is None else f"{row['n_needed']:,}",
    note="lower bound",
    below="accuracy_lower_bound",
    data={"needed": "n_needed"},
)
"""The column of the queries that a test against guessing needs, with the lower bound of the true accuracy."""


def baseline_columns(of: str) -> list[Column]:
    """Return the columns next to a mean accuracy: its baselines, its verdict, and the tests that the verdict is by."""

    def tip(row: Row) -> str:
        return (
            f"Accuracy {row['value']}, chance {row['chance']}. On {row['n_queries']:,} queries one random classifier "
            f"gets at least this far with probability 10^{row['log10_tail']:.3f}."
        )

    return [
        Column(title="Chance", value="chance", of=of, data={"chance": "chance", "random": "max_random"}),
        Column(title="Majority", value="majority", of=of, data={"majority": "majority"}),
        replace(
            POSITION,
            title="Verdict",
            cell=lambda row: f"{VERDICT_MARKS[row['verdict']]} {row['verdict']}",
            of=of,
            below=(line("log10_tail", lambda log10: Markup("tail {}").format(probability(log10))),),
            tip=tip,
            data={"verdict": "verdict", "tries": "tries"},
        ),
        replace(TESTED, title="Uniform", of=of),
        replace(MAJORITY_TESTED, title="Majority", of=of, style="against-majority"),
    ]
