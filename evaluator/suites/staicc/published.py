"""The published results of StaICC: 29 models, ten methods, four metrics and six diagnostics.

Two Parquet files hold tables 2, 3, 7 and 8 of Cho & Inoue 2025, "StaICC: Standardized Evaluation for Classification
Task in In-context Learning" (arXiv 2501.15708), as printed, nothing corrected. The authors let anyone who cites the
paper reuse its tables. Every value is a mean over ten datasets. The copy of table 8's second half ends within PPL-ICL.
So TopK, SA-ICL, k-NN and Hidden Calibration have values of 15 models from table 8, and of six more from table 2.
"""

from functools import cache
from importlib.resources import files

import polars as pl

from evaluator.files.toml_files import shipped_toml
from evaluator.methods import REFERENCE_METHOD
from evaluator.schemas import declare

METHODS, METRICS, SHORT_NAMES = shipped_toml("evaluator.suites.staicc", "names").values()
"""Three maps: name of a method in tables 7 and 8 -> name in this package; name of a measure there -> name of a metric
here; name of a method or measure in tables 2 and 3 -> name in tables 7 and 8."""

NORMAL = tuple(METRICS.values())[:4]
"""The metrics of StaICC-Normal; the others are diagnostics."""

PUBLISHED = declare(
    order=pl.Int64(),  # position of the model in tables 7 and 8, from 0
    model=pl.String(),
    family=pl.String(),
    n_parameters=pl.Int64(),  # number of all parameters, as printed
    is_awq=pl.Boolean(),  # whether the weights have 4 bits (AWQ)
    method=pl.String(),
    metric=pl.String(),
    value=pl.Float64(),
)


@cache
def printed_tables() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return two frames: tables 7 and 8 of the appendix, and tables 2 and 3 with methods and measures named alike.

    Both have the columns table, model, method (null in tables 3 and 7), measure and value. The first also has order,
    parameters_b, instruct and awq; the second has `unit`, which is printed after the measure. A cell printed as "-" is
    null.
    """
    assets = files("evaluator.suites.staicc").joinpath("assets")
    appendix, main = (
        pl.read_parquet(assets.joinpath(f"{name}.parquet").read_bytes()) for name in ("appendix_c", "tables_2_3")
    )
    # Split a printed header into the measure and the unit in brackets after it.
    main = main.with_columns(
        pl.col("measure").str.extract(r"^([^\[(]*[^\[( ])"),
        unit=pl.col("measure").str.extract(r"^[^\[(]*(?:\(↓\) )?[\[(](.*)[\])]$"),
    ).with_columns(pl.col("method", "measure").replace(SHORT_NAMES))
    return appendix.sort("table", "order", maintain_order=True), main


@cache
def published_results() -> pl.DataFrame:
    """Return PUBLISHED: the values of tables 7 and 8, and the accuracies of table 2 that are not in them."""
    appendix, main = printed_tables()
    key = ["model", "method", "measure"]
    models = appendix.select("model", "order", "parameters_b", "awq").unique()
    printed = appendix.drop_nulls("value").select(*key, "value")
    # Table 2 prints percentages.
    further = main.filter(table=2).join(printed, on=key, how="anti").select(*key, pl.col("value") / 100)
    cells = pl.concat([printed, further]).join(models, on="model")
    results = cells.with_columns(
        family=pl.col("model").str.extract(r"^(.+?) [\d.]+[MB]\b"),
        n_parameters=(pl.col("parameters_b") * 1e9).round().cast(pl.Int64),
        is_awq="awq",
        method=pl.col("method").replace_strict(METHODS, default=REFERENCE_METHOD),
        metric=pl.col("measure").replace_strict(METRICS),
    )
    return results.select(PUBLISHED.names()).cast(PUBLISHED).sort("metric", "method", "order")


def figure_points() -> pl.DataFrame:
    """Return the points of figures 4, 5 and 7: PUBLISHED, with `figure` and `x`, log10 of the number of parameters.

    Figure 4 has all metrics of StaICC-Normal here; the paper draws only the true-label probability. Values of figure 5
    are the accuracy of a method minus the accuracy of vanilla.
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
