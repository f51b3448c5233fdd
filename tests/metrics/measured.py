"""Tables of predictions that are all of classification parts."""

import polars as pl

from evaluator.metrics.groups import measured_groups
from evaluator.metrics.table import confusion_table, metrics_table, reliability_table


def metrics_of(predictions: pl.LazyFrame | pl.DataFrame) -> pl.DataFrame:
    """schemas.METRICS of schemas.PREDICTIONS."""
    return metrics_table(measured_groups(predictions))


def reliability_of(predictions: pl.LazyFrame | pl.DataFrame) -> pl.DataFrame:
    """schemas.RELIABILITY of schemas.PREDICTIONS."""
    return reliability_table(measured_groups(predictions))


def confusion_of(predictions: pl.LazyFrame | pl.DataFrame) -> pl.DataFrame:
    """schemas.CONFUSION of schemas.PREDICTIONS."""
    return confusion_table(measured_groups(predictions))
