"""The results that the StaICC paper printed: 29 models, ten methods, four metrics and six diagnostics.

Two Parquet files hold tables 2, 3, 7 and 8 of Cho & Inoue 2025, "StaICC: Standardized Evaluation for Classification
Task in In-context Learning" (arXiv 2501.15708), as printed, nothing corrected. The authors let anyone who cites the
paper reuse its tables. Every value is a mean over ten datasets. Of table 8's second half the copy ends within PPL-ICL,
so that TopK, SA-ICL, k-NN and Hidden Calibration are those of 15 models, and of six more in table 2.
"""

import math
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import numpy as np
import polars as pl

from evaluator.methods import REFERENCE_METHOD
from evaluator.statistics.least_squares import least_squares

METHODS = {
    "Vanilla ICL": REFERENCE_METHOD,
    "Noisy Channel": "noisy_channel",
    "Contextual Calibration": "contextual_calibration",
    "Domain Calibration": "domain_calibration",
    "Batch Calibration": "batch_calibration",
    "PPL-ICL": "ppl_icl",
    "TopK": "topk",
    "SA-ICL": "sa_icl",
    "k-NN": "knn_centroid",  # appendix B.2: the centroid form
    "Hidden Calibration": "hidden_calibration",
}
"""Method as table 8 prints it -> its name here."""

METRICS = {
    "Accuracy": "accuracy",
    "ATL": "true_label_probability",
    "F1": "macro_f1",
    "ECE-1": "expected_calibration_error",
    "Contextual Bias": "contextual_bias",
    "Domain Bias": "domain_bias",
    "Empirical Bias": "empirical_bias",
    "Template Robust.": "template_consistency",
    "Sample Robust.": "sampling_consistency",
    "GLER": "gler",
}
"""Measure as tables 7 and 8 print it -> its name here."""

NORMAL = tuple(METRICS.values())[:4]
"""The metrics of StaICC-Normal; the others are diagnostics."""

SHORT_NAMES = {
    "Vanilla": "Vanilla ICL",
    "Noisy Ch.": "Noisy Channel",
    "Context. Ca.": "Contextual Calibration",
    "Domain Ca.": "Domain Calibration",
    "Batch Ca.": "Batch Calibration",
    "Hidden Ca.": "Hidden Calibration",
    "Context. Bias": "Contextual Bias",
    "Temp. Robust.": "Template Robust.",
}
"""Name in table 2 or 3 -> in tables 7 and 8."""

PUBLISHED = pl.Schema(
    {
        "order": pl.Int64(),  # place of the model in tables 7 and 8, from 0
        "model": pl.String(),
        "family": pl.String(),
        "n_parameters": pl.Int64(),  # all of them, as printed
        "is_awq": pl.Boolean(),  # 4-bit weights
        "method": pl.String(),
        "metric": pl.String(),
        "value": pl.Float64(),
    }
)


@cache
def printed_tables() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return tables 7 and 8 (APPENDIX), and tables 2 and 3, all with the names of rows that the appendix has.

    Columns: table, model, method (null in tables 3 and 7), measure, value; of the first also order, parameters_b,
    instruct and awq, of the second `unit` as printed behind the measure. A cell printed as "-" is null.
    """
    appendix, main = (_parquet(name) for name in ("appendix_c", "tables_2_3"))
    main = main.with_columns(
        pl.col("measure").str.extract(r"^([^\[(]*[^\[( ])"),
        unit=pl.col("measure").str.extract(r"^[^\[(]*(?:\(↓\) )?[\[(](.*)[\])]$"),
    ).with_columns(pl.col("method", "measure").replace(SHORT_NAMES))
    return appendix.sort("table", "order", maintain_order=True), main


@cache
def published_results() -> pl.DataFrame:
    """Return PUBLISHED: the cells of the appendix, and accuracies of table 2 that the appendix lacks."""
    appendix, main = printed_tables()
    key = ["model", "method", "measure"]
    models = appendix.select("model", "order", "parameters_b", "awq").unique()
    further = (
        main.filter(table=2)
        .join(appendix.drop_nulls("value"), on=key, how="anti")
        .with_columns(value=pl.col("value") / 100)
        .select(*key, "value")
    )
    cells = pl.concat([appendix.drop_nulls("value").select(further.columns), further])
    return (
        cells.join(models, on="model")
        .with_columns(
            family=pl.col("model").str.extract(r"^(.+?) [\d.]+[MB]\b"),
            n_parameters=(pl.col("parameters_b") * 1e9).round().cast(pl.Int64),
            is_awq="awq",
            method=pl.col("method").replace_strict(METHODS, default=REFERENCE_METHOD),
            metric=pl.col("measure").replace_strict(METRICS),
        )
        .select(PUBLISHED.names())
        .cast(PUBLISHED)
        .sort("metric", "method", "order")
    )


def figure_points() -> pl.DataFrame:
    """Return the points of figures 4, 5 and 7: PUBLISHED, with `figure` and `x`, log10 of the number of parameters.

    Figure 4 has all metrics of StaICC-Normal, of which the paper draws the true-label probability; the values of
    figure 5 are accuracies minus those of vanilla.
    """
    results = published_results().with_columns(x=pl.col("n_parameters").log10())
    is_vanilla, of_normal = pl.col("method") == REFERENCE_METHOD, pl.col("metric").is_in(NORMAL)
    accuracies = results.filter(metric="accuracy")
    vanilla = accuracies.filter(is_vanilla).select("model", vanilla="value")
    gains = accuracies.filter(~is_vanilla).join(vanilla, on="model", maintain_order="left")
    figures = {
        4: results.filter(is_vanilla, of_normal),
        5: gains.with_columns(pl.col("value") - pl.col("vanilla")),
        7: results.filter(~of_normal),
    }
    return pl.concat(rows.select(*results.columns, figure=pl.lit(number, pl.Int64)) for number, rows in figures.items())


def predicted(points: pl.DataFrame, n_parameters: Sequence[int]) -> pl.DataFrame:
    """Predict further models from the published ones, by the line over log10 of the number of parameters.

    Args:
        points: of one panel of figure_points; models are independent and have equal weight.
        n_parameters: of the further models.

    Returns n_parameters, value, low and high: the 95% interval in which a model of this size is expected.
    """
    fit = least_squares([points["x"].to_numpy()], points["value"].to_numpy())
    rows = [(size, *fit.predict(np.array([1.0, math.log10(size)]))) for size in n_parameters]
    return pl.DataFrame(rows, ["n_parameters", "value", "low", "high"], orient="row")


def _parquet(name: str) -> pl.DataFrame:
    return pl.read_parquet(files("evaluator.suites.staicc").joinpath(f"assets/{name}.parquet").read_bytes())
