"""Name the measures of a model: a metric, with its suite and part where several parts have it."""

import polars as pl


def with_measure(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `measure`: the name of the metric, with suite and part where several of them have this metric."""
    place = pl.format("{} / {}", "suite", "part")
    ambiguous = place.n_unique().over("metric") > 1
    return rows.with_columns(measure=pl.when(ambiguous).then(pl.format("{} ({})", "metric", place)).otherwise("metric"))
