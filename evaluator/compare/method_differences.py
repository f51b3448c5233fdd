"""Compare each method of one run with vanilla on the same queries."""

import polars as pl

from evaluator.compare.differences import estimated_differences, paired_differences
from evaluator.compare.request_results import request_results
from evaluator.compare.schema import DIFFERENCES
from evaluator.methods import REFERENCE_METHOD


def method_differences(predictions: pl.DataFrame, metrics: pl.DataFrame, model: str) -> pl.DataFrame:
    """Compare every method with vanilla, query by query, as a comparison of several runs does within each of them.

    Args:
        predictions: schemas.PREDICTIONS of the run.
        metrics: schemas.METRICS of the run.
        model: its name.

    Returns schema.DIFFERENCES, sorted by its key, with the same model on both sides; no rows without vanilla or without
    another method.
    """
    if metrics.filter(pl.col("metric") == "accuracy", pl.col("method") == REFERENCE_METHOD).is_empty():
        return pl.DataFrame(schema=DIFFERENCES)
    return paired_differences(estimated_differences([model], [request_results(predictions, metrics)], metrics))
