"""One run goes in; what each of its methods gains over vanilla on the same queries comes out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.compare.differences import paired_differences
from evaluator.compare.request_results import request_answers
from evaluator.compare.runs import ComparedRun, recorded
from evaluator.compare.schema import DIFFERENCES
from evaluator.methods import REFERENCE_METHOD


def method_differences(out: Path, record: Mapping[str, Any], metrics: pl.DataFrame) -> pl.DataFrame:
    """Every method against vanilla, query by query, as a comparison of several runs has it of each of them.

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
    return paired_differences([run], [request_answers(run)], metrics)
