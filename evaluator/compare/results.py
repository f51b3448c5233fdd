"""Combine the metrics of several runs on common datasets, and collect how each run answered each request."""

from collections.abc import Sequence

import polars as pl

from evaluator.compare.runs import ComparedRun
from evaluator.compare.schema import COMPARISON, COMPARISON_KEY
from evaluator.errors import ConfigError
from evaluator.methods import METHODS
from evaluator.metrics.groups import prediction_groups
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
    values that are biased (METRICS.reduced_bias) has no interval: it takes more than the datasets' intervals.

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
        without_interval=pl.col("reduced_bias").is_not_null().any() & (pl.len() > 1),
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
    return pl.concat([frame.select(*COMPARISON.names(), "reduced_bias") for frame in frames]).sort(COMPARISON_KEY)


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


ANSWER_KEY = [*DATASET, "method", "definition"]
CHOOSING = [name for name, method in METHODS.items() if method.prompts.follow_up or method.prompts.differ]
"""Methods whose prompts follow from a model's answers, or from the definition of the run."""


_RESULTS = pl.Schema(
    {
        **dict.fromkeys(ANSWER_KEY, pl.String()),
        **dict.fromkeys(("position", "query_id", "n_shots", "demonstration_set", "gold"), pl.Int64()),
        "prompt_id": pl.UInt64(),  # hash of the id
        "correct": pl.Float64(),  # 0 or 1
        "true_label_prob": pl.Float64(),
    }
)


_PROBS = pl.Schema({"pred": pl.Int64(), "label_probs": pl.List(pl.Float64())})


def request_results(predictions: pl.DataFrame, metrics: pl.DataFrame, *, with_probs: bool = False) -> pl.DataFrame:
    """Return one row for each request and definition of the parts in which accuracy was measured.

    Args:
        predictions: schemas.PREDICTIONS of a run.
        metrics: schemas.METRICS of the run.
        with_probs: whether to add pred and label_probs.

    Returns _RESULTS, whose last two columns are as the metrics of that definition define them.
    """
    schema = pl.Schema(_RESULTS | _PROBS) if with_probs else _RESULTS
    measured = metrics.filter(metric="accuracy").select("suite", "part").unique()
    definitions = {*metrics["definition"]}
    frames = [
        group.rows.with_columns(
            *(pl.lit(group.key[name]).alias(name) for name in ANSWER_KEY),
            correct=group.requests["correct"].cast(pl.Float64),
            true_label_prob=group.requests["true_label_prob"],
        ).select(schema.names())
        for group in prediction_groups(predictions.join(measured, on=["suite", "part"], how="semi"))
        if group.definition in definitions
    ]
    return pl.concat([schema.to_frame(), *frames])


def require_equal_queries(runs: Sequence[ComparedRun], answers: Sequence[pl.DataFrame]) -> None:
    """Raise ConfigError for runs with different queries, or gold labels that are not the same ones under other names.

    Queries are the same where their texts are, by the records of both runs; without such records, where the prompts
    are. Prompts of methods that choose demonstrations or templates by the model's answers are left out.
    """
    for run, requests in zip(runs[1:], answers[1:], strict=True):
        common = answers[0].join(requests, on=ANSWER_KEY, how="semi").select(ANSWER_KEY).unique()
        # The requests of a method are the same under every definition.
        request, query = [*DATASET, "method", "position"], [*DATASET, "method", "query_id"]
        a, b = (
            rows.join(common, on=ANSWER_KEY, how="semi")
            .sort(request)
            .unique(request, keep="first", maintain_order=True)
            for rows in (answers[0], requests)
        )
        of_query = [
            rows.unique(query, keep="first", maintain_order=True).with_columns(is_asked=True) for rows in (a, b)
        ]
        pairs = of_query[0].join(of_query[1], on=query, how="full", suffix="_b", coalesce=True)
        labels = pl.struct("gold", "gold_b").n_unique().over(DATASET)
        is_renamed = (labels == pl.col("gold").n_unique().over(DATASET)) & (
            labels == pl.col("gold_b").n_unique().over(DATASET)
        )
        known = [each.record.prompts.query_fingerprints for each in (runs[0], run)]
        same, other = (
            [name for name in known[0] if name in known[1] and (known[0][name] == known[1][name]) is is_same]
            for is_same in (True, False)
        )
        both = pl.col("is_asked") & pl.col("is_asked_b")
        differ = ~both.fill_null(False) | ~is_renamed | pl.col("dataset").is_in(other)
        queries = pairs.filter(differ)
        if not queries.is_empty():
            _refuse(runs[0], run, "queries", queries, pairs.height)
        prompts = a.join(b, on=request, suffix="_b").filter(
            ~pl.col("method").is_in(CHOOSING), ~pl.col("dataset").is_in(same)
        )
        changed = prompts.filter((pl.col("prompt_id") != pl.col("prompt_id_b")) | (pl.col("gold") != pl.col("gold_b")))
        if not changed.is_empty():
            _refuse(runs[0], run, "prompts", changed, prompts.height)


def _refuse(first: ComparedRun, run: ComparedRun, what: str, rows: pl.DataFrame, n: int) -> None:
    suite, part, dataset = rows.sort(DATASET).select(DATASET).row(0)
    raise ConfigError(
        f"{first.folder} and {run.folder} have different {what}: {rows.height:,} of {n:,}, the first in "
        f"{suite} / {part}, {dataset}. They were built from different data, by different versions, or with labels in "
        "another order, which draws other demonstrations. Build and score one of them again."
    )
