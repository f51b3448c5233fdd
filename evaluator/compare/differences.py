"""Compute paired differences of accuracy and true-label probability between runs and between methods, and test them."""

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy.special import stdtrit

from evaluator.arrays import Floats
from evaluator.compare.request_results import QUERY_KEY, query_means
from evaluator.compare.schema import DIFFERENCES, DIFFERENCES_KEY, EQUIVALENCE, EQUIVALENCE_KEY
from evaluator.compare.table import DATASET
from evaluator.methods import REFERENCE_METHOD
from evaluator.metrics.intervals import CONFIDENCE_LEVEL, NO_VARIATION, mean_of_intervals, two_way_standard_error
from evaluator.metrics.registry import REQUEST_COLUMNS
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.statistics.paired import (
    LEVEL,
    Estimate,
    adjusted_estimate,
    detectable_difference,
    equivalence_test,
    holm,
    mean_estimate,
    paired_test,
    plain_estimate,
    t_test,
)

SET = ["n_shots", "demonstration_set"]
"""Columns that identify a demonstration set where all queries share the same sets."""

_GROUP_OF_MEAN = [name for name in DIFFERENCES_KEY if name != "dataset"]


_PLAIN = ["difference", "standard_error", "degrees_of_freedom"]
ADJUSTED = ["adjusted_difference", "adjusted_error", "adjusted_freedom"]
"""Columns of statistics.paired.Estimate, plain and adjusted."""


class Estimated(NamedTuple):
    """Differences before they are corrected for the number of tests."""

    rows: pl.DataFrame  # query_differences of everything that is compared
    means: pl.DataFrame  # their means over datasets, with `n_datasets`


def estimated_differences(
    models: Sequence[str],
    results: Sequence[pl.DataFrame],
    comparison: pl.DataFrame,
    shared_sets: Collection[tuple[str, str]] = (),
) -> Estimated:
    """Compare every two models under each common method, and every method with vanilla within each model.

    A query counts once, by the mean over its requests. Where all queries have equally many requests, as in our suites,
    the difference equals that of the two values in the metrics of the runs.

    Args:
        models: a name for each run.
        results: for each run, as returned by request_results.
        comparison: schema.COMPARISON, or schemas.METRICS of a single run; defines the common datasets.
        shared_sets: suite and part of those whose queries all have the same demonstration sets: models are compared
            over queries and sets crossed.
    """
    common = comparison.filter(metric="accuracy").select(*DATASET, "method").unique()
    answers = [each.join(common, on=[*DATASET, "method"], how="semi", maintain_order="left") for each in results]
    queries = [query_means(each) for each in answers]
    groups = [
        *_between_models(list(zip(models, answers, strict=True)), shared_sets),
        *(_between_methods(model, means) for model, means in zip(models, queries, strict=True)),
    ]
    # True-label probability is not measured of imported labels.
    rows = pl.concat(groups).filter(pl.col("metric").is_in({*comparison["metric"]}))
    means = [
        dict(zip(_GROUP_OF_MEAN, key, strict=True)) | _mean_over_datasets(of_mean)
        for key, of_mean in rows.group_by(_GROUP_OF_MEAN, maintain_order=True)
    ]
    intervals = (
        rows.rename({"difference": "value"})
        .group_by(_GROUP_OF_MEAN, maintain_order=True)
        .agg(**mean_of_intervals(), n_queries=pl.col("n_queries").sum(), n_datasets=pl.len())
        .rename({"value": "difference"})
        .with_columns(dataset=pl.lit(MEAN_OVER_DATASETS))
    )
    schema = {name: rows.schema[name] for name in (*_GROUP_OF_MEAN, "d", "p_value", "test", *ADJUSTED)}
    tested = pl.DataFrame(means, schema=schema)
    return Estimated(rows, intervals.join(tested, on=_GROUP_OF_MEAN, maintain_order="left"))


def paired_differences(estimated: Estimated) -> pl.DataFrame:
    """Correct all differences for their number, and say which ones could have been detected.

    Returns schema.DIFFERENCES, sorted by its key, with the plain mean over datasets. Differences between models and
    between methods are two families of tests, for each metric and definition; means over several datasets belong to
    them. A mean over one dataset is that dataset's test again.
    """
    rows, means = estimated
    family = ["metric", "definition", pl.col("model_a") == pl.col("model_b")]
    repeats = pl.col("n_datasets") == 1
    tested = pl.concat([rows, means.filter(~repeats)], how="diagonal").with_columns(
        p_holm=holm(pl.col("p_value")).over(family), n_tests=pl.len().cast(pl.Int64).over(family)
    )
    detectable = [
        detectable_difference(Estimate(*row[:3]), row[3]) for row in tested.select(*ADJUSTED, "n_tests").rows()
    ]
    tested = tested.with_columns(min_detectable=pl.Series(detectable, dtype=pl.Float64))
    of_dataset = tested.select(*_GROUP_OF_MEAN, "p_value", "p_holm", "n_tests", "min_detectable", "test")
    again = means.filter(repeats).drop("p_value", "test").join(of_dataset, on=_GROUP_OF_MEAN)
    parts = [part.select(pl.col(name).cast(dtype) for name, dtype in DIFFERENCES.items()) for part in (tested, again)]
    return pl.concat(parts).sort(DIFFERENCES_KEY)


def equivalence_table(estimated: Estimated, margin: float) -> pl.DataFrame:
    """Test every difference of accuracy against a margin: no worse by it, and equivalent within it.

    The estimate is adjusted (statistics.paired.adjusted_estimate), so that pairs that all agree do not pass for
    certainty; over queries and sets crossed it is the plain one. Both p-values are corrected by Holm's procedure over
    the same families as those of paired_differences.

    Args:
        margin: of accuracy, above 0.

    Returns schema.EQUIVALENCE, sorted by its key.
    """
    rows, means = estimated
    repeats = pl.col("n_datasets") == 1
    both = pl.concat([rows, means.filter(~repeats)], how="diagonal").filter(metric="accuracy")
    tests = [equivalence_test(Estimate(*row[:3]), margin, row[3]) for row in both.select(*ADJUSTED, "n_queries").rows()]
    family = ["definition", pl.col("model_a") == pl.col("model_b")]
    tested = both.with_columns(
        margin=pl.lit(margin),
        p_no_worse=pl.Series([test.no_worse for test in tests], dtype=pl.Float64),
        p_equivalent=pl.Series([test.equivalent for test in tests], dtype=pl.Float64),
    ).with_columns(
        p_no_worse_holm=holm(pl.col("p_no_worse")).over(family),
        p_equivalent_holm=holm(pl.col("p_equivalent")).over(family),
    )
    shown = (
        pl.when(pl.col("p_equivalent_holm") <= LEVEL)
        .then(pl.lit("equivalent"))
        .when(pl.col("p_no_worse_holm") <= LEVEL)
        .then(pl.lit("no worse"))
        .otherwise(pl.lit("not shown"))
    )
    tested = tested.with_columns(shown=shown)
    again = tested.join(means.filter(repeats).select(_GROUP_OF_MEAN), on=_GROUP_OF_MEAN, how="semi").with_columns(
        dataset=pl.lit(MEAN_OVER_DATASETS)
    )
    columns = [pl.col(name).cast(dtype) for name, dtype in EQUIVALENCE.items()]
    return pl.concat([tested.select(columns), again.select(columns)]).sort(EQUIVALENCE_KEY)


def _mean_over_datasets(rows: pl.DataFrame) -> dict[str, Any]:
    """Return the test of a mean: of all queries together where datasets have equally many and all tests are exact."""
    adjusted = mean_estimate([Estimate(*row) for row in rows.select(ADJUSTED).rows()])
    p_value, test = None, "t"
    if rows["test"].is_in(["McNemar", "sign flips"]).all() and rows["n_queries"].n_unique() == 1:
        p_value, test = paired_test(np.concatenate([np.array(d) for d in rows["d"].to_list()]))
    if p_value is None or test == "t":
        # Differences that do not vary at all have the adjusted error, which is not 0.
        plain = [
            Estimate(difference, error, freedom) if error else Estimate(difference, *others)
            for difference, error, freedom, *others in rows.select(*_PLAIN, *ADJUSTED[1:]).rows()
        ]
        p_value = t_test(mean_estimate(plain))
    return {"d": [], "p_value": p_value, "test": test} | dict(zip(ADJUSTED, adjusted, strict=True))


def _between_models(
    runs: list[tuple[str, pl.DataFrame]], shared_sets: Collection[tuple[str, str]]
) -> Iterator[pl.DataFrame]:
    is_shared = pl.concat_str("suite", "part", separator="/").is_in([f"{suite}/{part}" for suite, part in shared_sets])
    for (model_a, a), (model_b, b) in combinations(runs, 2):
        pairs = [
            query_means(a.filter(~is_shared)).join(
                query_means(b.filter(~is_shared)), on=QUERY_KEY, suffix="_b", maintain_order="left"
            ),
            a.filter(is_shared).join(b.filter(is_shared), on=[*QUERY_KEY, *SET], suffix="_b", maintain_order="left"),
        ]
        for paired in pairs:
            named = paired.with_columns(model_a=pl.lit(model_a), model_b=pl.lit(model_b), method_b="method")
            yield query_differences(named.rename({"method": "method_a"}))


def _between_methods(model: str, queries: pl.DataFrame) -> pl.DataFrame:
    vanilla = queries.filter(method=REFERENCE_METHOD)
    others = queries.filter(pl.col("method") != REFERENCE_METHOD)
    on = [name for name in QUERY_KEY if name != "method"]
    paired = others.join(vanilla, on=on, suffix="_b", maintain_order="left").rename({"method": "method_a"})
    return query_differences(paired.with_columns(model_a=pl.lit(model), model_b=pl.lit(model)))


def query_differences(paired: pl.DataFrame) -> pl.DataFrame:
    """Return the mean difference over the queries of each group, with its 95% interval and test.

    The interval is the usual one of a mean, difference -+ t x SD / sqrt(Q) at Q - 1 degrees of freedom. As a query's
    difference is the mean over its requests, which are not independent, this is the interval clustered by query (Miller
    2024, "Adding Error Bars to Evals", sections on clustering and on paired differences). The test is exact where it
    can be (statistics.paired.paired_test).

    Where every query has the same several demonstration sets, queries and sets are two crossed random factors: interval
    and test ("two-way t") are Student's with the standard error of metrics.intervals.two_way_standard_error, and hold
    for other sets as well.

    Where no two queries differ, SD = 0 does not mean certainty: a share of up to t^2/(Q + t^2) of other queries
    (Wilson's limit for none in Q) may differ, each by at most 1 + |difference|.

    Args:
        paired: DIFFERENCES_KEY without metric, query_id, and the values of REQUEST_COLUMNS, those of b with suffix
            "_b"; one row a query, or one a query and demonstration set, with the columns of SET.

    Returns:
        DIFFERENCES without columns that depend on other tests, and what means over datasets are computed from: `d`
        (difference of each query), standard_error, degrees_of_freedom and the adjusted estimate.
    """
    group = [name for name in DIFFERENCES_KEY if name != "metric"]
    sets = [name for name in SET if name in paired.columns]
    metrics = {metric: pl.col(column) - pl.col(f"{column}_b") for metric, column in REQUEST_COLUMNS.items()}
    by_metric = paired.select(*group, "query_id", *sets, **metrics).unpivot(
        list(metrics), index=[*group, "query_id", *sets], variable_name="metric", value_name="d"
    )
    gathered = (
        by_metric.sort("query_id", *sets, maintain_order=True)
        .group_by(*group, "metric", maintain_order=True)
        .agg("d", n_queries=pl.col("query_id").n_unique().cast(pl.Int64))
    )
    estimates = [
        _estimate(d.to_numpy().reshape(n_queries, -1))
        for d, n_queries in zip(gathered["d"], gathered["n_queries"], strict=True)
    ]
    rows = gathered.drop("d").hstack(pl.DataFrame(estimates, schema=_ESTIMATE))
    return _with_intervals(rows).sort(DIFFERENCES_KEY)


_ESTIMATE: dict[str, pl.DataType] = {
    "d": pl.List(pl.Float64),
    **{name: pl.Float64() for name in (*_PLAIN, *ADJUSTED)},
    "p_value": pl.Float64(),
    "test": pl.String(),
}


def _estimate(cells: Floats) -> dict[str, Any]:
    """Return the columns of _ESTIMATE of differences [queries, sets]."""
    d = cells.mean(axis=1)
    two_way, freedom = two_way_standard_error(cells)
    if cells.shape[1] > 1 and two_way:
        plain = adjusted = Estimate(float(d.mean()), two_way, freedom)
        p_value, test = t_test(plain), "two-way t"
    else:
        plain, adjusted = plain_estimate(d), adjusted_estimate(d)
        p_value, test = paired_test(d)
    numbers = dict(zip((*_PLAIN, *ADJUSTED), (*plain, *adjusted), strict=True))
    return {"d": d.tolist(), "p_value": p_value, "test": test} | numbers


def _with_intervals(rows: pl.DataFrame) -> pl.DataFrame:
    difference, se, n_queries = pl.col("difference"), pl.col("standard_error"), pl.col("n_queries")
    degrees_of_freedom = np.maximum(rows["degrees_of_freedom"].to_numpy(), 1)
    t = pl.lit(pl.Series(stdtrit(degrees_of_freedom, (1 + CONFIDENCE_LEVEL) / 2)))
    # The half-width where no two queries differ.
    unseen = t.pow(2) / (n_queries + t.pow(2)) * (1 + difference.abs())
    half_width = pl.when(se < NO_VARIATION).then(unseen).otherwise(t * se)
    has_interval = n_queries > 1
    return rows.with_columns(
        ci_low=pl.when(has_interval).then((difference - half_width).clip(-1, 1)),
        ci_high=pl.when(has_interval).then((difference + half_width).clip(-1, 1)),
    )
