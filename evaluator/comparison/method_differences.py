"""One run goes in; what each of its methods gains over vanilla on the same queries comes out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.comparison.answers import ANSWER_KEY, request_answers
from evaluator.comparison.differences import paired_differences
from evaluator.comparison.runs import ComparedRun, recorded
from evaluator.comparison.table import REFERENCE_METHOD
from evaluator.schemas.comparison import DIFFERENCES

_WITHOUT_METHOD = [name for name in ANSWER_KEY if name != "method"]


def method_differences(out: Path, record: Mapping[str, Any], metrics: pl.DataFrame) -> pl.DataFrame:
    """Every method against vanilla, query by query, and the plain mean over datasets, with 95% intervals.

    A query counts once, by the mean over its requests: some methods answer it once and others once a demonstration
    set. Where a method answers all queries equally often, as the suites ask them, its difference is that of the two
    accuracies in the metrics table.

    Args:
        out: the run's folder, which holds its predictions.
        record: run.json.
        metrics: schemas.METRICS of the run.

    Returns schemas.DIFFERENCES, sorted by its key, with one name on both sides for the model; no row where vanilla or
    anything beside it is not there.
    """
    model = str(recorded(record, "model", "name") or out.name)
    run = ComparedRun(number=1, folder=out, name=out.name, model=model, record=record, metrics=metrics)
    if metrics.filter(pl.col("metric") == "accuracy", pl.col("method") == REFERENCE_METHOD).is_empty():
        return pl.DataFrame(schema=DIFFERENCES)
    answers = request_answers(run)
    queries = answers.group_by(*ANSWER_KEY, "query_id", maintain_order=True).agg(
        pl.col("correct", "true_label_prob").mean()
    )
    comparable = queries.join(queries.filter(method=REFERENCE_METHOD), on=_WITHOUT_METHOD, how="semi")
    if comparable.filter(pl.col("method") != REFERENCE_METHOD).is_empty():
        return pl.DataFrame(schema=DIFFERENCES)
    return paired_differences([run], [comparable.with_columns(position="query_id")], metrics)
