"""Names for what can be measured of a model: a metric, with its suite and part where it is measured in several."""

import polars as pl


def with_measure(rows: pl.DataFrame) -> pl.DataFrame:
    """`measure` beside suite, part and metric: the metric's name, unless several suites or parts have such a metric."""
    place = pl.format("{} / {}", "suite", "part")
    ambiguous = place.n_unique().over("metric") > 1
    return rows.with_columns(measure=pl.when(ambiguous).then(pl.format("{} ({})", "metric", place)).otherwise("metric"))
