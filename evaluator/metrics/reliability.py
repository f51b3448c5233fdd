"""Build the tables of reliability diagrams and confusion matrices, under definition "paper", and of label spaces."""

from collections.abc import Iterable

import polars as pl

from evaluator.metrics.calibration_error import BIN_EDGES, N_BINS
from evaluator.metrics.per_request import GROUP, MeasuredGroup, by_group, measured_groups
from evaluator.schemas import CONFUSION, CONFUSION_KEY, LABEL_SPACES, LABEL_SPACES_KEY, RELIABILITY, RELIABILITY_KEY


def reliability_table(predictions: pl.LazyFrame | pl.DataFrame) -> pl.DataFrame:
    """Measure accuracy and mean confidence in each bin of the expected calibration error.

    Takes PREDICTIONS, returns RELIABILITY sorted by its first five columns: all ten bins of each dataset and method.
    """
    bins = pl.DataFrame({"bin": range(N_BINS), "bin_low": BIN_EDGES[:-1], "bin_high": BIN_EDGES[1:]})
    n = pl.col("n_requests")
    means = {"mean_confidence": pl.col("confidence") / n, "accuracy": pl.col("correct") / n}
    return _stack(
        (
            bins.join(_in_bins(group).with_columns(**means), on="bin", how="left").with_columns(
                n.fill_null(0), **_key(group)
            )
            for group in _paper_groups(predictions)
        ),
        RELIABILITY,
        RELIABILITY_KEY,
    )


def _in_bins(group: MeasuredGroup) -> pl.DataFrame:
    """Return the sums of the requests in each bin."""
    # maintain_order, because otherwise the last digit of a sum varies from run to run.
    sums = {"n_requests": pl.len(), "confidence": pl.col("confidence").sum(), "correct": pl.col("correct").sum()}
    return group.requests.group_by("bin", maintain_order=True).agg(**sums)


def confusion_table(predictions: pl.LazyFrame | pl.DataFrame) -> pl.DataFrame:
    """Count the requests for each pair of gold and predicted label.

    Takes PREDICTIONS, returns CONFUSION sorted by its first six columns: all pairs of each dataset and method.
    """
    return _stack(
        (
            pl.DataFrame({"gold": range(group.n_labels)})
            .join(pl.DataFrame({"pred": range(group.n_labels)}), how="cross")
            .join(group.requests.group_by("gold", "pred").agg(n_requests=pl.len()), on=["gold", "pred"], how="left")
            .with_columns(pl.col("n_requests").fill_null(0), **_key(group))
            for group in _paper_groups(predictions)
        ),
        CONFUSION,
        CONFUSION_KEY,
    )


def label_spaces_table(predictions: pl.LazyFrame | pl.DataFrame) -> pl.DataFrame:
    """Return the label space of each suite, part and dataset: LABEL_SPACES, sorted by its key. Takes PREDICTIONS."""
    return predictions.lazy().select(LABEL_SPACES.names()).unique().sort(LABEL_SPACES_KEY).collect(engine="streaming")


def _paper_groups(predictions: pl.LazyFrame | pl.DataFrame) -> Iterable[MeasuredGroup]:
    paper = predictions.lazy().filter(definition="paper")
    return (group for rows in by_group(paper) for group in measured_groups(rows, "paper"))


def _key(group: MeasuredGroup) -> dict[str, pl.Expr]:
    return {column: pl.lit(group.key[column]) for column in GROUP}


def _stack(tables: Iterable[pl.DataFrame], schema: pl.Schema, key: list[str]) -> pl.DataFrame:
    empty = pl.DataFrame(schema=schema)
    return pl.concat([empty, *(table.select(schema.names()).cast(schema) for table in tables)]).sort(key)
