"""Compute paired differences of accuracy and true-label probability between runs and between methods."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import polars as pl
from scipy.special import stdtrit

from evaluator.compare.request_results import QUERY_KEY, query_means
from evaluator.compare.schema import DIFFERENCES, DIFFERENCES_KEY
from evaluator.compare.table import DATASET
from evaluator.methods import REFERENCE_METHOD
from evaluator.metrics.intervals import CONFIDENCE_LEVEL, NO_VARIATION, mean_of_intervals
from evaluator.schemas import MEAN_OVER_DATASETS

COLUMNS = {"accuracy": "correct", "true_label_probability": "true_label_prob"}
"""Metric that is a mean over queries -> the column of request_results that it is the mean of."""


def paired_differences(
    models: Sequence[str], results: Sequence[pl.DataFrame], comparison: pl.DataFrame
) -> pl.DataFrame:
    """Compare every two models under each common method, and every method with vanilla within each model.

    A query counts once, by the mean over its requests. Where all queries have equally many requests, as in our suites,
    the difference equals that of the two values in the metrics of the runs.

    Args:
        models: a name for each run.
        results: for each run, as returned by request_results.
        comparison: schema.COMPARISON, or schemas.METRICS of a single run; defines the common datasets.

    Returns schema.DIFFERENCES, sorted by its key, with the plain mean over datasets.
    """
    common = comparison.filter(metric="accuracy").select(*DATASET, "method").unique()
    queries = [
        query_means(answers.join(common, on=[*DATASET, "method"], how="semi", maintain_order="left"))
        for answers in results
    ]
    groups = [
        *_between_models(list(zip(models, queries, strict=True))),
        *(_between_methods(model, means) for model, means in zip(models, queries, strict=True)),
    ]
    rows = pl.concat(groups)
    key_of_mean = [name for name in DIFFERENCES_KEY if name != "dataset"]
    means = (
        rows.rename({"difference": "value"})
        .group_by(key_of_mean, maintain_order=True)
        .agg(**mean_of_intervals(), n_queries=pl.col("n_queries").sum())
        .rename({"value": "difference"})
        .with_columns(dataset=pl.lit(MEAN_OVER_DATASETS))
    )
    parts = [part.select(pl.col(name).cast(dtype) for name, dtype in DIFFERENCES.items()) for part in (rows, means)]
    return pl.concat(parts).sort(DIFFERENCES_KEY)


def _between_models(runs: list[tuple[str, pl.DataFrame]]) -> Iterator[pl.DataFrame]:
    for (model_a, a), (model_b, b) in combinations(runs, 2):
        paired = a.join(b, on=QUERY_KEY, suffix="_b", maintain_order="left")
        named = paired.with_columns(model_a=pl.lit(model_a), model_b=pl.lit(model_b), method_b="method")
        yield query_differences(named.rename({"method": "method_a"}))


def _between_methods(model: str, queries: pl.DataFrame) -> pl.DataFrame:
    vanilla = queries.filter(method=REFERENCE_METHOD)
    others = queries.filter(pl.col("method") != REFERENCE_METHOD)
    on = [name for name in QUERY_KEY if name != "method"]
    paired = others.join(vanilla, on=on, suffix="_b", maintain_order="left").rename({"method": "method_a"})
    return query_differences(paired.with_columns(model_a=pl.lit(model), model_b=pl.lit(model)))


def query_differences(paired: pl.DataFrame) -> pl.DataFrame:
    """Return the mean difference over the queries of each group, with its 95% interval.

    The interval is the usual one of a mean, difference -+ t x SD / sqrt(Q) at Q - 1 degrees of freedom. As a query's
    difference is the mean over its requests, which are not independent, this is the interval clustered by query (Miller
    2024, "Adding Error Bars to Evals", sections on clustering and on paired differences).

    Where no two queries differ, SD = 0 does not mean certainty: a share of up to t^2/(Q + t^2) of other queries
    (Wilson's limit for none in Q) may differ, each by at most 1 + |difference|.

    Args:
        paired: DIFFERENCES_KEY without metric, and the values of COLUMNS, those of b with suffix "_b"; one row a query.
    """
    group = [name for name in DIFFERENCES_KEY if name != "metric"]
    metrics = {metric: pl.col(column) - pl.col(f"{column}_b") for metric, column in COLUMNS.items()}
    by_metric = paired.select(*group, **metrics).unpivot(
        list(metrics), index=group, variable_name="metric", value_name="d"
    )
    d, n_queries = pl.col("d"), pl.len()
    rows = by_metric.group_by(*group, "metric", maintain_order=True).agg(
        difference=d.mean(), standard_error=d.std() / n_queries.sqrt(), n_queries=n_queries.cast(pl.Int64)
    )
    return _with_intervals(rows).select(DIFFERENCES.names())


def _with_intervals(rows: pl.DataFrame) -> pl.DataFrame:
    difference, se, n_queries = pl.col("difference"), pl.col("standard_error"), pl.col("n_queries")
    degrees_of_freedom = np.maximum(rows["n_queries"].to_numpy() - 1, 1)
    t = pl.lit(pl.Series(stdtrit(degrees_of_freedom, (1 + CONFIDENCE_LEVEL) / 2)))
    # The half-width where no two queries differ.
    unseen = t.pow(2) / (n_queries + t.pow(2)) * (1 + difference.abs())
    half_width = pl.when(se < NO_VARIATION).then(unseen).otherwise(t * se)
    has_interval = n_queries > 1
    return rows.with_columns(
        ci_low=pl.when(has_interval).then((difference - half_width).clip(-1, 1)),
        ci_high=pl.when(has_interval).then((difference + half_width).clip(-1, 1)),
    )
