"""Combine the metrics of several runs on their common datasets into one long table."""

from collections.abc import Sequence

import polars as pl

from evaluator.compare.runs import ComparedRun
from evaluator.compare.schema import COMPARISON, COMPARISON_KEY
from evaluator.errors import ConfigError
from evaluator.metrics.intervals import mean_of_intervals
from evaluator.schemas import MEAN_OVER_DATASETS

MEASURED = ["suite", "part", "method", "metric", "definition"]
"""Columns that identify a value, apart from its model and dataset."""

DATASET = ["suite", "part", "dataset"]

MODEL = ["number", "model", "run", "weights_fingerprint", "n_parameters", "dtype"]


def comparison_table(runs: Sequence[ComparedRun]) -> pl.DataFrame:
    """Return every metric of every run on common datasets, and the plain mean over these, with 95% intervals.

    A dataset is common when all runs with the same MEASURED have it. Means are over the common datasets and can
    therefore differ from those in the table of a run. A mean is undefined where one of its values is. A mean of several
    values that are biased (METRICS.debiased) has no interval: it takes more than the datasets' intervals.

    Returns schema.COMPARISON, sorted by its key. Raises ConfigError where no dataset is common to all runs.
    """
    _require_common_datasets(runs)
    measured = _all_datasets(runs)
    n_runs = pl.col("number").n_unique()
    common = measured.filter(n_runs.over(*MEASURED, "dataset") == n_runs.over(*MEASURED))
    means = common.group_by(*MODEL, *MEASURED, maintain_order=True).agg(
        **mean_of_intervals(),
        chance=pl.col("chance").mean(),
        n_queries=pl.col("n_queries").sum(),
        n_requests=pl.col("n_requests").sum(),
        undefined=pl.col("value").is_null().any(),
        without_interval=pl.col("debiased").is_not_null().any() & (pl.len() > 1),
    )
    has_interval = ~pl.col("undefined") & ~pl.col("without_interval")
    means = means.with_columns(
        pl.when(~pl.col("undefined")).then("value").alias("value"),
        *(pl.when(has_interval).then(name).alias(name) for name in ("ci_low", "ci_high")),
        dataset=pl.lit(MEAN_OVER_DATASETS),
    )
    parts = [part.select(pl.col(name).cast(dtype) for name, dtype in COMPARISON.items()) for part in (common, means)]
    return pl.concat(parts).sort(COMPARISON_KEY)


def _all_datasets(runs: Sequence[ComparedRun]) -> pl.DataFrame:
    """Return the rows of all runs without means, sorted so that sums do not depend on the order of a run's rows."""
    frames = [
        run.metrics.filter(pl.col("dataset") != MEAN_OVER_DATASETS).with_columns(
            number=pl.lit(run.number, pl.Int64),
            model=pl.lit(run.model),
            run=pl.lit(run.name),
            weights_fingerprint=pl.lit(run.record.model.weights_fingerprint, pl.String),
            n_parameters=pl.lit(run.record.model.n_parameters, pl.Int64),
            dtype=pl.lit(run.record.engine.dtype, pl.String),
        )
        for run in runs
    ]
    return pl.concat([frame.select(*COMPARISON.names(), "debiased") for frame in frames]).sort(COMPARISON_KEY)


def datasets_of(run: ComparedRun) -> pl.DataFrame:
    """Return the suite, part and dataset of everything that a run measured."""
    return run.metrics.filter(pl.col("dataset") != MEAN_OVER_DATASETS).select(DATASET).unique().sort(DATASET)


def _require_common_datasets(runs: Sequence[ComparedRun]) -> None:
    common = datasets_of(runs[0])
    for run in runs[1:]:
        common = common.join(datasets_of(run), on=DATASET, how="semi")
    if common.is_empty():
        datasets = "; ".join(
            f"{run.folder} has {', '.join(f'{part} {dataset}' for _, part, dataset in datasets_of(run).rows())}"
            for run in runs
        )
        raise ConfigError(f"No dataset is in all of the runs: {datasets}. Run them on common datasets (--datasets).")
