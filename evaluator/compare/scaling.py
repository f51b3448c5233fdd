"""The comparison and its differences go in; least-squares lines over the number of parameters come out."""

import polars as pl
from scipy.special import stdtrit
from scipy.stats import linregress

from evaluator.compare.measures import with_measure
from evaluator.compare.schema import SCALING, SCALING_KEY
from evaluator.methods import REFERENCE_METHOD
from evaluator.metrics.intervals import CONFIDENCE_LEVEL, NO_VARIATION
from evaluator.schemas import MEAN_OVER_DATASETS

LEAST_COUNTS = 3
"""Different numbers of parameters that a line takes: through two there is always one, and it says nothing."""

IMPROVED = "accuracy"


def scaling_points(comparison: pl.DataFrame, differences: pl.DataFrame) -> pl.DataFrame:
    """What is drawn against parameters: means over datasets, one row a model.

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
    """The least-squares line of each measure over log10 of the number of parameters, all models alike.

    The 95% interval of the slope is t at n_models - 2 degrees of freedom; it takes models as independent of each other.

    Args:
        points: as scaling_points gives them.

    Returns schemas.SCALING, sorted by its key. Source: Cho & Inoue 2025 (StaICC), figures 4, 5 and 7.
    """
    groups = points.partition_by(SCALING_KEY, as_dict=True, maintain_order=True)
    rows = [dict(zip(SCALING_KEY, key, strict=True)) | _line(own) for key, own in groups.items()]
    return pl.DataFrame(rows, schema=SCALING).sort(SCALING_KEY)


def _line(points: pl.DataFrame) -> dict[str, object]:
    known = points.filter(pl.col("value").is_finite(), pl.col("n_parameters").is_not_null())
    n_counts = known["n_parameters"].n_unique()
    if n_counts < LEAST_COUNTS:
        reason = f"{n_counts} different number{'s' * (n_counts != 1)} of parameters, and a line takes {LEAST_COUNTS}"
        return {"n_models": known.height, "reason": reason}
    fitted = linregress(known["n_parameters"].log10().to_numpy(), known["value"].to_numpy())
    slope = float(fitted.slope)
    line: dict[str, object] = {"slope": slope, "intercept": float(fitted.intercept), "n_models": known.height}
    if not fitted.stderr >= NO_VARIATION:  # NaN where all values are the same
        return line | {"reason": "no interval: the points lie on the line, which is not certainty"}
    half_width = float(stdtrit(known.height - 2, (1 + CONFIDENCE_LEVEL) / 2) * fitted.stderr)
    return line | {"ci_low": slope - half_width, "ci_high": slope + half_width}
