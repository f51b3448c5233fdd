"""Recompute the slopes of figures 4, 5 and 7 of StaICC and the rank correlations of figure 8, with intervals."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

import polars as pl
from scipy.stats import rankdata, zscore

from evaluator.arrays import Floats
from evaluator.methods import REFERENCE_METHOD
from evaluator.schemas import ESTIMATE
from evaluator.statistics.correlation import Estimated, correlation_interval, least_squares, rank_correlation
from evaluator.statistics.paired import holm
from evaluator.suites.staicc.published import METHODS, METRICS, published_results


class Counted(NamedTuple):
    """Which models are counted, and how."""

    name: str
    by_family: bool = False  # errors are clustered by family
    with_awq: bool = True

    def models(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of the counted models."""
        return rows if self.with_awq else rows.filter(~pl.col("is_awq"))

    def clusters(self, rows: pl.DataFrame) -> Sequence[str] | None:
        """Return the clusters of counted models."""
        return rows["family"].to_list() if self.by_family else None


COUNTED = (Counted("independent"), Counted("by family", by_family=True), Counted("without AWQ", with_awq=False))

QUANTITY = {
    "counted": pl.String(),  # Counted.name
    "n_models": pl.Int64(),
    **ESTIMATE,
    "p_value": pl.Float64(),
    "p_holm": pl.Float64(),  # over the n_tests of the figure or sentence, counted in the same way
    "n_tests": pl.Int64(),
}
LINES = pl.Schema(  # least-squares lines over log10 of the number of parameters; values are slopes
    {
        "figure": pl.Int64(),  # 4 (and the other metrics of vanilla) | 5 (accuracy minus that of vanilla) | 7
        "method": pl.String(),
        "metric": pl.String(),
        **QUANTITY,
        "intercept": pl.Float64(),
    }
)
CORRELATIONS = pl.Schema({"a": pl.String(), "b": pl.String(), **QUANTITY})  # figure 8: Spearman's rho under vanilla


def figure_lines(points: pl.DataFrame) -> pl.DataFrame:
    """Return LINES of published.figure_points, in the order of the paper's tables."""
    key, rows = ["figure", "method", "metric"], []
    for counted in COUNTED:
        for place, of_line in counted.models(points).group_by(key, maintain_order=True):
            fit = least_squares([of_line["x"].to_numpy()], of_line["value"].to_numpy(), counted.clusters(of_line))
            numbers = quantity(counted, of_line.height, fit.estimate())
            rows.append(dict(zip(key, place, strict=True)) | numbers | {"intercept": float(fit.coefficients[0])})
    names = [*METHODS.values(), *METRICS.values()]
    order = [pl.col(name).cast(pl.Enum(names)) for name in ("method", "metric")]
    return with_holm(rows, LINES, "figure").sort("figure", *order, maintain_order=True)


def wide_metrics(counted: Counted) -> pl.DataFrame:
    """Return a row for each counted model: family, n_parameters, and a column for each metric under vanilla."""
    vanilla = counted.models(published_results()).filter(method=REFERENCE_METHOD)
    index = ["order", "model", "family", "n_parameters"]
    return vanilla.pivot("metric", index=index, values="value").sort("order")


def figure_correlations() -> pl.DataFrame:
    """Return CORRELATIONS of every two metrics, over models."""
    rows = []
    for counted in COUNTED:
        wide = wide_metrics(counted)
        for a, b in combinations(METRICS.values(), 2):
            found = rank_estimate(wide[a].to_numpy(), wide[b].to_numpy(), counted.clusters(wide))
            rows.append({"a": a, "b": b} | quantity(counted, wide.height, found))
    return with_holm(rows, CORRELATIONS)


def rank_estimate(a: Floats, b: Floats, clusters: Sequence[str] | None) -> Estimated:
    """Return Spearman's rho with its interval.

    Of independent points, the interval is Fisher's and the p-value that of Student's t. With clusters, rho is the slope
    of the standardised ranks of a over those of b, with the errors of clusters.
    """
    if clusters is not None:
        return least_squares([standard_ranks(b)], standard_ranks(a), clusters).estimate()
    found = rank_correlation(a, b)
    assert found.rho is not None
    assert found.p_value is not None
    return Estimated(found.rho, *correlation_interval(found.rho, len(a)), found.p_value)


def standard_ranks(values: Floats) -> Floats:
    """Return ranks with mean 0 and variance 1, ties at their average rank."""
    standard: Floats = zscore(rankdata(values))
    return standard


def quantity(counted: Counted, n_models: int, found: Estimated) -> dict[str, object]:
    """Return the columns QUANTITY but those of Holm's correction."""
    numbers = dict(zip(("value", "ci_low", "ci_high", "p_value"), found, strict=True))
    return {"counted": counted.name, "n_models": n_models, **numbers}


def with_holm(rows: Iterable[dict[str, object]], schema: pl.Schema, *by: str) -> pl.DataFrame:
    """Return the rows with p-values corrected over those of the same `by` that count models in the same way."""
    group = ["counted", *by]
    frame = pl.DataFrame(list(rows), schema=schema)
    return frame.with_columns(
        p_holm=holm(pl.col("p_value")).over(group), n_tests=pl.col("p_value").count().over(group).cast(pl.Int64)
    )
