"""Summarise the diagnostics of a run in a few lines for a terminal."""

from collections.abc import Iterator

import polars as pl

from evaluator.methods import REFERENCE_METHOD
from evaluator.report.section import MeasuredRun
from evaluator.report.terminal import first_definition
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.suites.staicc.diagnostics.registry import DIAGNOSTIC_PARTS, HEADLINES


def diagnostic_lines(run: MeasuredRun) -> Iterator[str]:
    """Yield a line for each diagnostic of vanilla, mean over datasets, with its unit and direction.

    Args:
        run: with the table metrics; without diagnostics there is no line. The first measured definition is shown.
    """
    means = run.table("metrics").filter(method=REFERENCE_METHOD, dataset=MEAN_OVER_DATASETS)
    if means.filter(pl.col("part").is_in(DIAGNOSTIC_PARTS)).is_empty():
        return
    shown = first_definition(means.filter(pl.col("metric").is_in(list(HEADLINES))))
    values = {metric: numbers for metric, *numbers in shown.select("metric", "value", "definition").iter_rows()}
    width = max(len(diagnostic.title) for diagnostic in HEADLINES.values())
    for metric, diagnostic in HEADLINES.items():
        if metric in values:
            value, definition = values[metric]
            unit, meaning = diagnostic.readings[definition]
            yield f"{diagnostic.title:{width}}  {value:6.3f}  {unit}, {meaning}"
