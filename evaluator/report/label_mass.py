"""Warn where labels have little of a model's probability: it may not be answering in labels at all."""

from collections.abc import Iterator

import polars as pl

from evaluator.report.terminal import first_definition
from evaluator.schemas import MEAN_OVER_DATASETS

SMALL_LABEL_MASS = 0.1
"""Median label mass below which a reader is warned: nine tenths of the probability are on texts that are no label."""


def label_mass_warnings(metrics: pl.DataFrame) -> Iterator[str]:
    """Yield a sentence for each part of classification in which the median label mass of some datasets is small.

    Takes schemas.METRICS, of which the first measured definition is used.
    """
    classified = metrics.filter(metric="accuracy").select("suite", "part").unique()
    medians = first_definition(metrics.filter(metric="label_mass_median"))
    small = (
        medians.filter(pl.col("dataset") != MEAN_OVER_DATASETS, pl.col("value") < SMALL_LABEL_MASS)
        .join(classified, on=["suite", "part"], how="semi")
        .sort("suite", "part", "value", "dataset")
    )
    for (suite, part), rows in small.group_by("suite", "part", maintain_order=True):
        named = ", ".join(f"{name} (median {value:.2g})" for name, value in rows.select("dataset", "value").iter_rows())
        yield (
            f"{suite} / {part}: the labels have less than {SMALL_LABEL_MASS:.0%} of the model's probability on "
            f"{named}. It may not be answering in labels there; another --label-boundary, other label names or more "
            "demonstrations may help."
        )
