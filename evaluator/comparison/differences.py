"""Answers of several runs go in; differences of accuracy and true-label probability on the same queries come out."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import polars as pl
from scipy.special import stdtrit

from evaluator.comparison.answers import ANSWER_KEY
from evaluator.comparison.runs import ComparedRun
from evaluator.comparison.table import DATASET, REFERENCE_METHOD
from evaluator.metrics.uncertainty import CONFIDENCE_LEVEL, NO_VARIATION, mean_of_intervals
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.schemas.comparison import DIFFERENCES, DIFFERENCES_KEY

DIFFERED = {"accuracy": "correct", "true_label_probability": "true_label_prob"}
"""Metrics that are means over requests -> the column that they are the mean of."""


def paired_differences(
    runs: Sequence[ComparedRun], answers: Sequence[pl.DataFrame], comparison: pl.DataFrame
) -> pl.DataFrame:
    """Every two models under each method that both have, and every method against vanilla within each model.

    Args:
        answers: of each run, as request_answers gives them.
        comparison: schemas.COMPARISON; names the datasets that are common.

    Returns schemas.DIFFERENCES, sorted by its key, with the plain mean over datasets.
    """
    common = comparison.filter(metric="accuracy").select(*DATASET, "method").unique()
    asked = [own.join(common, on=[*DATASET, "method"], how="semi", maintain_order="left") for own in answers]
    models = [run.model for run in runs]
    groups = [
        *_between_models(list(zip(models, asked, strict=True))),
        *(rows for model, own in zip(models, asked, strict=True) for rows in _between_methods(model, own)),
    ]
    rows = pl.concat(groups)
    apart = [name for name in DIFFERENCES_KEY if name != "dataset"]
    means = (
        rows.rename({"difference": "value"})
        .group_by(apart, maintain_order=True)
        .agg(**mean_of_intervals(), n_queries=pl.col("n_queries").sum())
        .rename({"value": "difference"})
        .with_columns(dataset=pl.lit(MEAN_OVER_DATASETS))
    )
    parts = [part.select(pl.col(name).cast(dtype) for name, dtype in DIFFERENCES.items()) for part in (rows, means)]
    return pl.concat(parts).sort(DIFFERENCES_KEY)


def _between_models(runs: list[tuple[str, pl.DataFrame]]) -> Iterator[pl.DataFrame]:
    for (model_a, a), (model_b, b) in combinations(runs, 2):
        paired = a.join(b, on=[*ANSWER_KEY, "position"], suffix="_b", maintain_order="left")
        named = paired.with_columns(model_a=pl.lit(model_a), model_b=pl.lit(model_b), method_b="method")
        yield clustered_differences(named.rename({"method": "method_a"}))


def _between_methods(model: str, answers: pl.DataFrame) -> Iterator[pl.DataFrame]:
    vanilla = answers.filter(method=REFERENCE_METHOD)
    others = answers.filter(pl.col("method") != REFERENCE_METHOD)
    if not others.is_empty():
        on = [*(name for name in ANSWER_KEY if name != "method"), "position"]
        paired = others.join(vanilla, on=on, suffix="_b", maintain_order="left").rename({"method": "method_a"})
        yield clustered_differences(paired.with_columns(model_a=pl.lit(model), model_b=pl.lit(model)))


def clustered_differences(paired: pl.DataFrame) -> pl.DataFrame:
    """Mean difference over requests of each group, with its 95% interval.

    Requests of one query are no independent trials, so the variance is that of queries: with d the sum of a query's
    differences over its m requests, SE^2 = Q/(Q - 1) x sum over queries of (d - difference x m)^2 / (sum of m)^2, and
    the interval is difference -+ t x SE at Q - 1 degrees of freedom. Where each query has as many requests this is the
    mean of the queries' differences with its usual interval (Miller 2024, "Adding Error Bars to Evals", sections on
    clustering and on paired differences).
    Where no two queries differ, SE = 0 does not mean certainty: of other queries up to t^2/(Q + t^2), Wilson's limit
    for none in Q, may differ, each by at most 1 + |difference|.

    Args:
        paired: DIFFERENCES_KEY without metric, query_id, and both columns of DIFFERED, those of b with suffix "_b".
    """
    group = [name for name in DIFFERENCES_KEY if name != "metric"]
    metrics = {metric: pl.col(column) - pl.col(f"{column}_b") for metric, column in DIFFERED.items()}
    requests = paired.select(*group, "query_id", **metrics)
    by_metric = requests.unpivot(on=list(metrics), index=[*group, "query_id"], variable_name="metric", value_name="d")
    keys = [*group, "metric"]
    queries = by_metric.group_by(*keys, "query_id", maintain_order=True).agg(pl.col("d").sum(), m=pl.len())
    d, m, n = pl.col("d"), pl.col("m"), pl.len()
    mean = d.sum() / m.sum()
    squares = (d - mean * m).pow(2).sum()
    rows = queries.group_by(keys, maintain_order=True).agg(
        difference=mean, standard_error=(squares * n / (n - 1)).sqrt() / m.sum(), n_queries=n.cast(pl.Int64)
    )
    return _with_intervals(rows).select(DIFFERENCES.names())


def _with_intervals(rows: pl.DataFrame) -> pl.DataFrame:
    difference, se, n_queries = pl.col("difference"), pl.col("standard_error"), pl.col("n_queries")
    degrees_of_freedom = np.maximum(rows["n_queries"].to_numpy() - 1, 1)
    t = pl.lit(pl.Series(stdtrit(degrees_of_freedom, (1 + CONFIDENCE_LEVEL) / 2)))
    unseen = t.pow(2) / (n_queries + t.pow(2)) * (1 + difference.abs())
    half_width = pl.when(se < NO_VARIATION).then(unseen).otherwise(t * se)
    known = n_queries > 1
    return rows.with_columns(
        ci_low=pl.when(known).then((difference - half_width).clip(-1, 1)),
        ci_high=pl.when(known).then((difference + half_width).clip(-1, 1)),
    )
