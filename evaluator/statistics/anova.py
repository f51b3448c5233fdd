"""Two analyses of variance: of independent groups, and of the same queries under several conditions.

Lu et al. 2023 (section 5.2, table 15) use `one_way` over a handful of means, one a run: three demonstration sets with
two numbers of shots each leave 2 and 3 degrees of freedom. `repeated_measures` is over queries: every query has a value
under every condition, so that differences between queries are removed before conditions are compared.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import fdtrc

from evaluator.errors import MetricError

Floats = npt.NDArray[np.float64]

ONE_WAY = pl.Schema(  # after the columns that rows are grouped by
    {
        "f": pl.Float64(),  # NaN where it is not defined
        "p": pl.Float64(),
        "df_between": pl.Int64(),
        "df_within": pl.Int64(),
    }
)
REPEATED_MEASURES = pl.Schema(  # after the columns that rows are grouped by
    {
        "f": pl.Float64(),  # NaN where it is not defined
        "p": pl.Float64(),  # if the differences between any two conditions vary equally (sphericity)
        "df_condition": pl.Int64(),
        "df_residual": pl.Int64(),
        "epsilon": pl.Float64(),  # how far that holds: 1 wholly, 1 / df_condition least (Greenhouse & Geisser)
        "corrected_p": pl.Float64(),  # with both degrees of freedom times epsilon
        "ss_condition": pl.Float64(),  # sums of squares; the three add up to the total
        "ss_query": pl.Float64(),
        "ss_residual": pl.Float64(),
        "n_queries": pl.Int64(),
        "n_left_out": pl.Int64(),  # queries without a finite value in every condition
    }
)


class OneWay(NamedTuple):
    """The columns of ONE_WAY."""

    f: float
    p: float
    df_between: int
    df_within: int


class RepeatedMeasures(NamedTuple):
    """The columns of REPEATED_MEASURES but for the numbers of queries."""

    f: float
    p: float
    df_condition: int
    df_residual: int
    epsilon: float
    corrected_p: float
    ss_condition: float
    ss_query: float
    ss_residual: float


def one_way(groups: Sequence[Floats]) -> OneWay:
    """Compute Fisher's F of the means of independent groups, of any sizes.

    NaN with fewer than two groups, without a group of two values, and where no value differs from another; infinite
    where groups differ and values within them do not.
    """
    sizes = np.array([len(group) for group in groups])
    means = np.array([group.mean() for group in groups])
    between, within = len(groups) - 1, int(sizes.sum()) - len(groups)
    ss_between = float(sizes @ (means - np.concatenate(groups).mean()) ** 2)
    ss_within = float(sum(((group - mean) ** 2).sum() for group, mean in zip(groups, means, strict=True)))
    f = _ratio(ss_between, between, ss_within, within)
    return OneWay(f, _tail(f, between, within), between, within)


def one_way_reach(groups: Sequence[Floats], error: float) -> tuple[float, float]:
    """Bound the error of F and p, at first order, if each value is off by up to `error`; NaN where F is not finite."""
    f, _, between, within = one_way(groups)
    if not np.isfinite(f):
        return float("nan"), float("nan")
    overall = np.concatenate(groups).mean()
    mean_square = float(sum(((group - group.mean()) ** 2).sum() for group in groups)) / within
    slopes = [2 * ((g.mean() - overall) / between - f * (g - g.mean()) / within) / mean_square for g in groups]
    reach = error * float(np.abs(np.concatenate(slopes)).sum())
    return reach, (_tail(max(f - reach, 0.0), between, within) - _tail(f + reach, between, within)) / 2


def repeated_measures(values: Floats) -> RepeatedMeasures:
    """Compute F of the means of conditions over the same queries.

    Args:
        values: [query, condition], finite.

    NaN with fewer than two queries or conditions. `p` assumes that the differences between any two conditions vary
    equally; `corrected_p` does not: its degrees of freedom are multiplied by epsilon (Greenhouse & Geisser 1959, On
    methods in the analysis of profile data).
    """
    n_queries, n_conditions = values.shape
    condition, residual = n_conditions - 1, (n_conditions - 1) * (n_queries - 1)
    centred = values - values.mean()
    of_query, of_condition = centred.mean(axis=1, keepdims=True), centred.mean(axis=0, keepdims=True)
    left = centred - of_query - of_condition
    ss_condition = n_queries * float((of_condition**2).sum())
    ss_residual = float((left**2).sum())
    f = _ratio(ss_condition, condition, ss_residual, residual)
    # The covariance of conditions, centred both ways, has the eigenvalues that epsilon is about.
    spread = float(((left.T @ left) ** 2).sum())
    epsilon = ss_residual**2 / (condition * spread) if condition and spread else float("nan")
    return RepeatedMeasures(
        f,
        _tail(f, condition, residual),
        condition,
        residual,
        epsilon,
        _tail(f, epsilon * condition, epsilon * residual),
        ss_condition,
        n_conditions * float((of_query**2).sum()),
        ss_residual,
    )


def one_way_by(rows: pl.DataFrame, *, by: Sequence[str], condition: str, value: str) -> pl.DataFrame:
    """Apply `one_way` to each group of rows: the columns `by` and ONE_WAY, sorted.

    Args:
        rows: `by`, `condition` and `value`, a float; what is not finite is left out. One row a mean for the analysis
            that Lu et al. 2023 publish, one a query for independent groups of queries.
    """
    finite = rows.filter(pl.col(value).is_finite()).sort(*by, condition)
    cases = finite.partition_by(by, as_dict=True, maintain_order=True)
    found = [(*key, *one_way(groups_of(case, condition, value))) for key, case in cases.items()]
    return _table(rows, by, found, ONE_WAY)


def groups_of(rows: pl.DataFrame, condition: str, value: str) -> list[Floats]:
    """Return the values of each condition, in the rows' order."""
    return [group[value].to_numpy() for group in rows.partition_by(condition, maintain_order=True)]


def repeated_measures_by(
    rows: pl.DataFrame, *, by: Sequence[str], condition: str, value: str, query: str = "query_id"
) -> pl.DataFrame:
    """Apply `repeated_measures` to each group of rows: the columns `by` and REPEATED_MEASURES, sorted.

    Args:
        rows: `by`, `condition`, `query` and `value`, one row a query and condition. Queries without a finite value in
            every condition of their group are left out and counted.

    Raises MetricError where a query has two rows under one condition.
    """
    require_one_each(rows, [*by, condition, query])
    cases = rows.sort(*by, query, condition).partition_by(by, as_dict=True, maintain_order=True)
    found = []
    for key, case in cases.items():
        finite = case.with_columns(pl.when(pl.col(value).is_finite()).then(value))
        wide = finite.pivot(on=condition, index=query, values=value).drop(query)
        kept = wide.drop_nulls()
        found.append((*key, *repeated_measures(kept.to_numpy()), kept.height, wide.height - kept.height))
    return _table(rows, by, found, REPEATED_MEASURES)


def require_one_each(rows: pl.DataFrame, key: Sequence[str]) -> None:
    """Raise MetricError, naming a key, where rows share one."""
    repeated = rows.filter(pl.struct(*key).is_duplicated())
    if not repeated.is_empty():
        first = repeated.row(0, named=True)
        named = ", ".join(f"{name} {first[name]!r}" for name in key)
        raise MetricError(f"{named} stands in more than one row. Keep one row of each {', '.join(key)}.")


def _ratio(ss_above: float, df_above: int, ss_below: float, df_below: int) -> float:
    if df_above < 1 or df_below < 1 or not ss_above + ss_below:
        return float("nan")
    return (ss_above / df_above) / (ss_below / df_below) if ss_below else float("inf")


def _tail(f: float, df_above: float, df_below: float) -> float:
    """Return the probability of at least this F where conditions do not matter."""
    return float(fdtrc(df_above, df_below, f)) if np.isfinite(f) else (0.0 if f > 0 else float("nan"))


def _table(rows: pl.DataFrame, by: Sequence[str], found: Sequence[tuple[object, ...]], own: pl.Schema) -> pl.DataFrame:
    return pl.DataFrame(found, schema={**{name: rows.schema[name] for name in by}, **own}, orient="row")
