"""Analyses of variance: of independent groups, and of the same queries under several conditions.

Lu et al. 2023 (section 5.2, table 15) use `one_way` with one mean for each run: three demonstration sets with two
numbers of shots each leave 2 and 3 degrees of freedom. `repeated_measures` uses queries: every query has a value under
every condition, so that differences between queries are removed before conditions are compared.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.special import fdtrc

from evaluator.arrays import Floats
from evaluator.errors import MetricError


class OneWay(NamedTuple):
    """The result of a one-way analysis."""

    f: float  # NaN where it is not defined
    p: float
    df_between: int
    df_within: int


class RepeatedMeasures(NamedTuple):
    """The result of an analysis with repeated measures."""

    f: float  # NaN where it is not defined
    p: float  # assumes that the differences between any two conditions vary equally (sphericity)
    df_condition: int
    df_residual: int
    epsilon: float  # from 1 / df_condition to 1, where sphericity holds (Greenhouse & Geisser)
    corrected_p: float  # with both degrees of freedom times epsilon
    ss_condition: float  # sums of squares; the three add up to the total
    ss_query: float
    ss_residual: float


_TYPES: dict[type, pl.DataType] = {float: pl.Float64(), int: pl.Int64()}
ONE_WAY = pl.Schema({name: _TYPES[kind] for name, kind in OneWay.__annotations__.items()})
"""After the columns that rows are grouped by: the fields of OneWay."""

REPEATED_MEASURES = pl.Schema(
    {name: _TYPES[kind] for name, kind in RepeatedMeasures.__annotations__.items()}
    | dict.fromkeys(("n_queries", "n_left_out"), pl.Int64())
)
"""After the columns that rows are grouped by: the fields of RepeatedMeasures, the number of queries, and how many are
left out because they lack a finite value in some condition."""


def one_way(groups: Sequence[Floats]) -> OneWay:
    """Compute Fisher's F of the means of independent groups, of any sizes.

    F is NaN with fewer than two groups, where every group has one value, and where all values are equal; it is infinite
    where groups differ and the values within each do not.
    """
    noise = _rounding(np.concatenate(groups))
    sizes = np.array([len(group) for group in groups])
    means = np.array([group.mean() for group in groups])
    between, within = len(groups) - 1, int(sizes.sum()) - len(groups)
    ss_between = float(sizes @ (means - np.concatenate(groups).mean()) ** 2)
    ss_within = float(sum(((group - mean) ** 2).sum() for group, mean in zip(groups, means, strict=True)))
    f = _ratio(ss_between, between, ss_within, within, noise)
    return OneWay(f, _tail(f, between, within), between, within)


def one_way_reach(groups: Sequence[Floats], error: float) -> tuple[float, float]:
    """Return the largest errors of F and p, at first order, if every value is off by up to `error`.

    NaN where F is not finite.
    """
    # dF/dx for each value x, summed in absolute value: the errors may all have the worst sign.
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

    F is NaN with fewer than two queries or conditions. `p` assumes that the differences between any two conditions vary
    equally; `corrected_p` does not: its degrees of freedom are multiplied by epsilon (Greenhouse & Geisser 1959, On
    methods in the analysis of profile data).
    """
    n_queries, n_conditions = values.shape
    df_condition, df_residual = n_conditions - 1, (n_conditions - 1) * (n_queries - 1)
    # Split each value into the effects of its query and its condition, and a residual.
    centred = values - values.mean()
    query_effects, condition_effects = centred.mean(axis=1, keepdims=True), centred.mean(axis=0, keepdims=True)
    residuals = centred - query_effects - condition_effects
    ss_condition = n_queries * float((condition_effects**2).sum())
    ss_residual = float((residuals**2).sum())
    noise = _rounding(values)
    f = _ratio(ss_condition, df_condition, ss_residual, df_residual, noise)
    # Epsilon is (sum of eigenvalues)^2 / (df x sum of squared eigenvalues) of the doubly centred covariance.
    squared_eigenvalues = float(((residuals.T @ residuals) ** 2).sum())
    is_defined = df_condition and ss_residual > noise
    epsilon = ss_residual**2 / (df_condition * squared_eigenvalues) if is_defined else float("nan")
    return RepeatedMeasures(
        f,
        _tail(f, df_condition, df_residual),
        df_condition,
        df_residual,
        epsilon,
        _tail(f, epsilon * df_condition, epsilon * df_residual),
        ss_condition,
        n_conditions * float((query_effects**2).sum()),
        ss_residual,
    )


def one_way_by(rows: pl.DataFrame, *, by: Sequence[str], condition: str, value: str) -> pl.DataFrame:
    """Apply `one_way` to each group of rows: the columns `by` and ONE_WAY, sorted.

    Args:
        rows: `by`, `condition` and `value`, a float; values that are not finite are left out. One row for each mean in
            the analysis of Lu et al. 2023, one for each query with independent groups of queries.
    """
    finite = rows.filter(pl.col(value).is_finite()).sort(*by, condition)
    cases = finite.partition_by(by, as_dict=True, maintain_order=True)
    results = [(*key, *one_way(groups_of(case, condition, value))) for key, case in cases.items()]
    return _table(rows, by, results, ONE_WAY)


def groups_of(rows: pl.DataFrame, condition: str, value: str) -> list[Floats]:
    """Return the values of each condition, in the rows' order."""
    return [group[value].to_numpy() for group in rows.partition_by(condition, maintain_order=True)]


def repeated_measures_by(
    rows: pl.DataFrame, *, by: Sequence[str], condition: str, value: str, query: str = "query_id"
) -> pl.DataFrame:
    """Apply `repeated_measures` to each group of rows: the columns `by` and REPEATED_MEASURES, sorted.

    Args:
        rows: `by`, `condition`, `query` and `value`, one row for each query and condition. Queries without a finite
            value in every condition of their group are left out and counted.

    Raises MetricError where a query has two rows under one condition.
    """
    require_one_each(rows, [*by, condition, query])
    cases = rows.sort(*by, query, condition).partition_by(by, as_dict=True, maintain_order=True)
    results = []
    for key, case in cases.items():
        finite = case.with_columns(pl.when(pl.col(value).is_finite()).then(value))
        # One row a query, one column a condition.
        wide = finite.pivot(on=condition, index=query, values=value).drop(query)
        complete = wide.drop_nulls()
        results.append((*key, *repeated_measures(complete.to_numpy()), complete.height, wide.height - complete.height))
    return _table(rows, by, results, REPEATED_MEASURES)


def require_one_each(rows: pl.DataFrame, key: Sequence[str]) -> None:
    """Raise MetricError, naming a duplicate, where rows share a key."""
    repeated = rows.filter(pl.struct(*key).is_duplicated())
    if not repeated.is_empty():
        first = repeated.row(0, named=True)
        named = ", ".join(f"{name} {first[name]!r}" for name in key)
        raise MetricError(f"{named} is in more than one row. Keep one row of each {', '.join(key)}.")


def _rounding(values: Floats) -> float:
    """Return a sum of squares that rounding makes of values that are all equal."""
    largest = float(np.abs(values).max(initial=0.0))
    return float(values.size * (8 * np.finfo(np.float64).eps * largest) ** 2)


def _ratio(ss_above: float, df_above: int, ss_below: float, df_below: int, noise: float) -> float:
    """Return F; sums of squares of at most `noise` count as 0."""
    if df_above < 1 or df_below < 1 or max(ss_above, ss_below) <= noise:
        return float("nan")
    return (ss_above / df_above) / (ss_below / df_below) if ss_below > noise else float("inf")


def _tail(f: float, df_above: float, df_below: float) -> float:
    """Return the probability of at least this F if all conditions have the same mean."""
    return float(fdtrc(df_above, df_below, f)) if np.isfinite(f) else (0.0 if f > 0 else float("nan"))


def _table(
    rows: pl.DataFrame, by: Sequence[str], results: Sequence[tuple[object, ...]], columns: pl.Schema
) -> pl.DataFrame:
    return pl.DataFrame(results, schema={**{name: rows.schema[name] for name in by}, **columns}, orient="row")
