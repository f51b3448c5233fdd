"""Fit least-squares lines over the number of parameters to the values and differences of a comparison."""

import polars as pl
from scipy.special import stdtrit
from scipy.stats import linregress

from evaluator.compare.measures import with_measure
from evaluator.compare.schema import SCALING, SCALING_KEY
from evaluator.methods import REFERENCE_METHOD
from evaluator.metrics.intervals import CONFIDENCE_LEVEL, NO_VARIATION
from evaluator.schemas import MEAN_OVER_DATASETS

MIN_COUNTS = 3
"""Fewest different numbers of parameters for a line; two are always on a line, which means nothing."""

IMPROVED = "accuracy"


def scaling_points(comparison: pl.DataFrame, differences: pl.DataFrame) -> pl.DataFrame:
    """Return the points of figures over parameters: means over datasets, one row a model.

    Returns SCALING_KEY, number, model, n_parameters, value, ci_low, ci_high: values of every measure under vanilla, and
    of every other method the paired difference of its accuracy to vanilla's.
    """
    columns = [*SCALING_KEY, "number", "model", "n_parameters", "value", "ci_low", "ci_high"]
    means = with_measure(comparison.filter(dataset=MEAN_OVER_DATASETS, method=REFERENCE_METHOD))
    models = comparison.select("number", "model", "n_parameters").unique()
    improvements = (
        differences.filter(pl.col("model_a") == pl.col("model_b"), dataset=MEAN_OVER_DATASETS, metric=IMPROVED)
        .join(means.select("suite", "part", "metric", "measure").unique(), on=["suite", "part", "metric"])
        .join(models, left_on="model_a", right_on="model")
        .rename({"model_a": "model", "method_a": "method", "difference": "value"})
    )
    parts = [means.with_columns(of=pl.lit("value")), improvements.with_columns(of=pl.lit("improvement"))]
    return pl.concat([part.select(columns) for part in parts]).sort(*SCALING_KEY, "number")


def scaling_lines(points: pl.DataFrame) -> pl.DataFrame:
    """Fit a least-squares line of each measure over log10 of the number of parameters; all models have equal weight.

    The 95% interval of the slope uses t at n_models - 2 degrees of freedom and assumes that models are independent.

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
        reason = f"{n_counts} different number{'s' * (n_counts != 1)} of parameters, and a line takes {MIN_COUNTS}"
        return {"n_models": fitted.height, "reason": reason}
    fit = linregress(fitted["n_parameters"].log10().to_numpy(), fitted["value"].to_numpy())
    slope = float(fit.slope)
    line: dict[str, object] = {"slope": slope, "intercept": float(fit.intercept), "n_models": fitted.height}
    if not fit.stderr >= NO_VARIATION:  # NaN where all values are the same
        return line | {"reason": "no interval: the points lie on the line, which is not certainty"}
    half_width = float(stdtrit(fitted.height - 2, (1 + CONFIDENCE_LEVEL) / 2) * fit.stderr)
    return line | {"ci_low": slope - half_width, "ci_high": slope + half_width}
