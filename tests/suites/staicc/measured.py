"""Predictions measured as a run of StaICC measures them: classification of undisturbed parts, diagnostics of all."""

import polars as pl

from evaluator.metrics.groups import measured_groups
from evaluator.metrics.table import group_metrics_table, metrics_table
from evaluator.suites.staicc.diagnostics import DIAGNOSTIC_PARTS, DIAGNOSTICS


def staicc_metrics(predictions: pl.DataFrame) -> pl.DataFrame:
    """schemas.METRICS of schemas.PREDICTIONS."""
    parts = {*predictions["part"]} - {*DIAGNOSTIC_PARTS}
    return metrics_table(measured_groups(predictions, parts, DIAGNOSTICS))


def staicc_group_metrics(predictions: pl.DataFrame) -> pl.DataFrame:
    """schemas.GROUP_METRICS of schemas.PREDICTIONS."""
    return group_metrics_table(measured_groups(predictions, (), DIAGNOSTICS))
