"""Predictions measured as a run of StaICC measures them: classification of undisturbed parts, diagnostics of all."""

import polars as pl

from evaluator.metrics import diagnosed, metrics_table
from evaluator.suites.staicc.diagnostics import DIAGNOSTIC_PARTS, DIAGNOSTICS


def staicc_metrics(predictions: pl.DataFrame) -> pl.DataFrame:
    """schemas.METRICS of schemas.PREDICTIONS."""
    classified = predictions.filter(~pl.col("part").is_in(DIAGNOSTIC_PARTS))
    return metrics_table(classified, diagnosed(predictions, DIAGNOSTICS).groups)


def staicc_group_metrics(predictions: pl.DataFrame) -> pl.DataFrame:
    """schemas.GROUP_METRICS of schemas.PREDICTIONS."""
    return diagnosed(predictions, DIAGNOSTICS).group_metrics
