"""Relate the measures of several models: rank correlations, and least-squares lines over the number of parameters.

Also compute, for runs on the same queries, the range of ranks that pairwise tests leave to each run.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
import polars as pl

from evaluator.arrays import Floats, Ints
from evaluator.compare.schema import RANK_CORRELATIONS, RANK_CORRELATIONS_KEY, SCALING, SCALING_KEY
from evaluator.errors import plural
from evaluator.methods import REFERENCE_METHOD
from evaluator.metrics.intervals import NO_VARIATION, two_way_standard_error
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.statistics.correlation import DECIMALS, least_squares, rank_correlation
from evaluator.statistics.paired import LEVEL, Estimate, adjusted_estimate, holm, mean_estimate, t_test

JUDGED_BY = "accuracy"
"""Metric by which rank correlations between models are computed, and whose gains over vanilla are drawn over size."""

NOT_INDEPENDENT = "no p-value: points of one model or one dataset are not independent"

MIN_COUNTS = 3
"""Smallest number of different model sizes to which a line is fitted; a line through two always fits exactly."""


def with_measure(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the column `measure`: the name of the metric, followed by suite and part if several parts have the metric."""
    part = pl.format("{} / {}", "suite", "part")
    is_ambiguous = part.n_unique().over("metric") > 1
    measure = pl.when(is_ambiguous).then(pl.format("{} ({})", "metric", part)).otherwise("metric")
    return rows.with_columns(measure=measure)


def rank_correlations(comparison: pl.DataFrame) -> pl.DataFrame:
    """Return Spearman's rho between every two measures and between every two models, under the method vanilla.

    Between measures, a point is a model with its means over datasets (Cho & Inoue 2025 (StaICC), figure 8); or a model
    on one dataset, where rho has no p-value. Between models, a point is a dataset with the accuracies of both models.
    Points where either value is undefined are left out.

    Args:
        comparison: schema.COMPARISON; each model once, as points of one model are not independent.

    Returns schema.RANK_CORRELATIONS, sorted by its key.
    """
    rows = with_measure(comparison.filter(method=REFERENCE_METHOD))
    is_mean = pl.col("dataset") == MEAN_OVER_DATASETS
    correlations: list[dict[str, object]] = []
    for (definition,), measured in rows.partition_by("definition", as_dict=True, maintain_order=True).items():
        means, others = measured.filter(is_mean), measured.filter(~is_mean)
        for over, values in (("models", means), ("models and datasets", others)):
            about = {"definition": definition, "between": "measures", "over": over}
            correlations += _correlated(values.sort("measure"), "measure", ["number", "dataset"], about)
        by_measure = others.filter(metric=JUDGED_BY).sort("number").partition_by("measure", as_dict=True)
        for (measure,), accuracies in by_measure.items():
            about = {"definition": definition, "between": "models", "over": "datasets", "measure": measure}
            correlations += _correlated(accuracies, "model", ["dataset"], about)
    return pl.DataFrame(correlations, schema=RANK_CORRELATIONS).sort(RANK_CORRELATIONS_KEY)


def _correlated(
    rows: pl.DataFrame, between: str, point: Sequence[str], about: Mapping[str, object]
) -> Iterator[dict[str, object]]:
    """Yield the rank correlation of every two values of the column `between`, over the points where both are defined.

    Args:
        rows: schema.COMPARISON with `measure`.
        between: "measure" or "model".
        point: columns that identify a point; must include `number` if `between` is "measure".
        about: columns of RANK_CORRELATIONS that are the same in all rows.
    """
    # Names of columns get a prefix, because a model can be called "dataset".
    named = rows.with_columns(pl.format("of {}", between).alias(between))
    points = named.pivot(between, index=point, values="value")
    for a, b in combinations(points.columns[len(point) :], 2):
        pairs = points.filter(pl.all_horizontal(pl.col(a, b).is_not_null() & pl.col(a, b).is_not_nan()))
        correlation = rank_correlation(pairs[a].to_numpy(), pairs[b].to_numpy())
        if about["over"] == "models and datasets" and correlation.rho is not None:
            correlation = correlation._replace(p_value=None, reason=NOT_INDEPENDENT)
        n_models = pairs["number"].n_unique() if about["between"] == "measures" else 2
        names = {"a": a.removeprefix("of "), "b": b.removeprefix("of ")}
        yield {**about, **names, **correlation._asdict(), "n_points": pairs.height, "n_models": n_models}


def scaling_points(comparison: pl.DataFrame, differences: pl.DataFrame) -> pl.DataFrame:
    """Return the points of the figures over parameters: means over datasets, one row for each model.

    Args:
        comparison: schema.COMPARISON.
        differences: schema.DIFFERENCES of the same runs.

    Returns:
        SCALING_KEY, number, model, n_parameters, value, ci_low, ci_high. Rows with `of` "value" have the measures under
        vanilla; rows with `of` "improvement" have, for each other method, its accuracy less that of vanilla, paired.
    """
    columns = [*SCALING_KEY, "number", "model", "n_parameters", "value", "ci_low", "ci_high"]
    means = with_measure(comparison.filter(dataset=MEAN_OVER_DATASETS, method=REFERENCE_METHOD))
    models = comparison.select("number", "model", "n_parameters").unique()
    improvements = (
        differences.filter(pl.col("model_a") == pl.col("model_b"), dataset=MEAN_OVER_DATASETS, metric=JUDGED_BY)
        .join(means.select("suite", "part", "metric", "measure").unique(), on=["suite", "part", "metric"])
        .join(models, left_on="model_a", right_on="model")
        .rename({"model_a": "model", "method_a": "method", "difference": "value"})
    )
    parts = [means.with_columns(of=pl.lit("value")), improvements.with_columns(of=pl.lit("improvement"))]
    return pl.concat([part.select(columns) for part in parts]).sort(*SCALING_KEY, "number")


def scaling_lines(points: pl.DataFrame) -> pl.DataFrame:
    """Fit a least-squares line to each measure over log10 of the number of parameters; all models have equal weight.

    The 95% interval of the slope uses Student's t with n_models - 2 degrees of freedom, and assumes that models are
    independent.

    Args:
        points: as returned by scaling_points.

    Returns schema.SCALING, sorted by its key. Source: Cho & Inoue 2025 (StaICC), figures 4, 5 and 7.
    """
    groups = points.partition_by(SCALING_KEY, as_dict=True, maintain_order=True)
    rows = [dict(zip(SCALING_KEY, key, strict=True)) | _line(rows_of_key) for key, rows_of_key in groups.items()]
    return pl.DataFrame(rows, schema=SCALING).sort(SCALING_KEY)


def _line(points: pl.DataFrame) -> dict[str, object]:
    fitted = points.filter(pl.col("value").is_finite(), pl.col("n_parameters").is_not_null())
    n_counts = fitted["n_parameters"].n_unique()
    if n_counts < MIN_COUNTS:
        reason = f"{plural(n_counts, 'different number')} of parameters, and a line takes {MIN_COUNTS}"
        return {"n_models": fitted.height, "reason": reason}
    fit = least_squares([fitted["n_parameters"].log10().to_numpy()], fitted["value"].to_numpy())
    slope, intercept = fit.estimate(), float(fit.coefficients[0])
    line: dict[str, object] = {"slope": slope.value, "intercept": intercept, "n_models": fitted.height}
    if not math.sqrt(fit.covariance[1, 1]) >= NO_VARIATION:  # all points are on the line
        return line | {"reason": "no interval: the points lie on the line, which is not certainty"}
    return line | {"ci_low": slope.low, "ci_high": slope.high}


MAX_RANKED = 50
"""Largest number of runs in a ranking; with more, Holm's correction over all pairs leaves the tests no power."""


def pair_p_values(correct: Sequence[Floats]) -> Floats:
    """Return the two-sided p-values of the hypotheses that two runs have equal mean accuracies, for all pairs of runs.

    The test is Student's of the mean difference over datasets, adjusted by two more pairs. It is the test that
    differences.py uses where no exact test applies, with a largest possible difference of 1.

    Args:
        correct: for each dataset [runs, queries], the mean of `correct` over the requests of a query; all runs have the
            same queries. [runs, queries, sets] where all queries have the same demonstration sets: then queries and
            sets are two crossed samples, as in differences.query_differences.

    Returns:
        [runs, runs], symmetric, with 1 on the diagonal.
    """
    p_values = np.ones((len(correct[0]), len(correct[0])))
    for a, b in combinations(range(len(p_values)), 2):
        estimates = [_estimate(cells[a] - cells[b], 2 / len(correct)) for cells in correct]
        p_values[a, b] = p_values[b, a] = t_test(mean_estimate(estimates))
    return p_values


def _estimate(differences: Floats, n_added: float) -> Estimate:
    """Return the estimate of a mean difference from [queries], or from [queries, sets] as two crossed factors.

    Args:
        n_added: as for adjusted_estimate, which is used unless the crossed factors have a standard error.
    """
    cells = differences.reshape(len(differences), -1)
    if cells.shape[1] > 1:
        error, freedom = two_way_standard_error(cells.round(DECIMALS))
        if error and error > NO_VARIATION:
            return Estimate(float(cells.mean()), error, freedom)
    return adjusted_estimate(cells.mean(axis=1), n_added, largest=1.0)


def rank_ranges(correct: Sequence[Floats]) -> Ints:
    """Return the best and the worst rank that each run can have by the pairwise tests: [runs, 2]; rank 1 is the best.

    A run ranks behind all runs that are significantly better, and before all that are significantly worse, at the 5%
    level after Holm's correction over all pairs. Only MAX_RANKED runs can be ranked together.

    Args:
        correct: as for pair_p_values.
    """
    assert len(correct[0]) <= MAX_RANKED, "Holm's correction over more pairs has no power"
    means = np.mean([cells.reshape(len(cells), -1).mean(axis=1) for cells in correct], axis=0)
    p_values, (row, column) = pair_p_values(correct), np.triu_indices(len(means), 1)
    corrected = pl.DataFrame({"p": p_values[row, column]}, schema={"p": pl.Float64}).select(holm(pl.col("p")))
    differs = np.zeros(p_values.shape, dtype=bool)
    differs[row, column] = corrected.to_series().to_numpy() <= LEVEL
    differs |= differs.T
    is_better = means[:, None] > means[None, :]
    return np.column_stack([1 + (differs & is_better.T).sum(axis=1), len(means) - (differs & is_better).sum(axis=1)])
