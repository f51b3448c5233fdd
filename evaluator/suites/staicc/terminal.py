"""The diagnostics of a run in a few lines, for a terminal."""

from collections.abc import Iterator

import polars as pl

from evaluator.methods import REFERENCE_METHOD
from evaluator.metrics.per_request import DIAGNOSTIC_PARTS
from evaluator.report.section import MeasuredRun
from evaluator.report.terminal import first_definition
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.suites.staicc.diagnostics.readings import METRIC_TEXTS, SIX, reading


def diagnostic_lines(run: MeasuredRun) -> Iterator[str]:
    """A line a diagnostic of vanilla, mean over datasets, with its unit and direction; none without disturbed prompts.

    Args:
        run: with the table metrics; of several definitions the first that was measured is taken.
    """
    means = run.table("metrics").filter(method=REFERENCE_METHOD, dataset=MEAN_OVER_DATASETS)
    if means.filter(pl.col("part").is_in(DIAGNOSTIC_PARTS)).is_empty():
        return
    six = first_definition(means.filter(pl.col("metric").is_in(SIX)))
    values = {metric: numbers for metric, *numbers in six.select("metric", "value", "definition").iter_rows()}
    width = max(len(METRIC_TEXTS[metric].title) for metric in SIX)
    for metric in SIX:
        if metric in values:
            value, definition = values[metric]
            reads = reading(metric, definition)
            yield f"{METRIC_TEXTS[metric].title:{width}}  {value:6.3f}  {reads.unit}, {reads.meaning}"
