"""Estimate variance components of answers, and compute analyses of variance.

Variance components split the variance of answers into parts of the queries, of the levels of a crossed factor, and of
the draws within each query. Every query is answered at every level: levels are templates, prompts, or demonstration
sets that all queries share. Draws differ between queries, as StaICC's demonstration sets do. Queries, levels and draws
are all random samples.

The analyses of variance compare independent groups (one_way), or several conditions over the same queries
(repeated_measures). Lu et al. 2023 (section 5.2, table 15) use `one_way` with one mean for each run: three
demonstration sets with two numbers of shots each leave 2 and 3 degrees of freedom. In `repeated_measures` every query
has a value under every condition, so that differences between queries are removed before conditions are compared.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.special import chdtri, fdtrc, stdtrit

from evaluator.arrays import Floats
from evaluator.errors import MetricError

ROUNDING = 1e-12
"""Variances of up to this share of the largest answer's square are rounding errors."""

UPPER = 0.975
"""Quantile of the upper limit of a 95% interval."""

COMPONENTS = ("query", "level", "interaction", "draw", "residual")


class Component(NamedTuple):
    """A variance component with its 95% interval."""

    variance: float  # may be negative by sampling noise
    # Limits of 0 or more; NaN with fewer than three queries or two levels, and where no query changes the estimate.
    ci_low: float
    ci_high: float


def variance_components(cells: Floats, attributes: Sequence[Sequence[int]] | None = None) -> dict[str, Component]:
    """Estimate the variance components of complete data by analysis of variance (Henderson 1953, method 1).

    Components that cannot be estimated are absent from the result. With a single draw a query, `query` includes the
    effect of the draw, and `interaction` the residual. With a single level, `query` includes the interaction with the
    level, and `draw` the residual.

    Args:
        cells: [query, level, draw], the answer of each query at each level with each draw; finite.
        attributes: where levels are rows of a saturated orthogonal array, the values of each level's attributes,
            [level][attribute]. Rows of an array share values and vary less than levels with independent values: the
            variance between L9's nine rows is 3/4 of the sum of the attributes' variances, which is the component of a
            level.

    Mean squares are set equal to their expectations under y[q, a, d] = mean + query[q] + level[a] + interaction[q, a]
    + draw[q, d] + residual[q, a, d] with independent terms. On complete data this is unbiased for any distribution
    (Searle, Casella & McCulloch 1992, "Variance Components", chapter 4).

    The interval of `level` is Tukey's (1951) and Williams's (1962): chi-squared quantiles of its mean square, or, for
    the upper limit, of the mean square of the interaction if that is larger. All other intervals reach t times the
    jackknife standard error over queries, given the levels, because answers are mostly 0 or 1 and the normal theory of
    their mean squares does not hold; their upper limits start from the estimate or 0, whichever is larger. Thus no
    interval has zero width.
    """
    n_queries, n_levels, n_draws = cells.shape
    squares = _mean_squares(cells)
    widening = level_widening(n_levels, attributes)
    estimates = _solve(squares, n_queries, n_levels, n_draws)
    if "level" in estimates:
        estimates["level"] = estimates["level"] * widening
    reach = stdtrit(n_queries - 1, UPPER) * np.sqrt(n_queries - 1) if n_queries > 2 else np.nan
    components, rounding = {}, ROUNDING * float(np.abs(cells).max(initial=0.0)) ** 2
    for name, (value, *without_one) in estimates.items():
        error = np.std(without_one)
        distance = reach * error if error > rounding else np.nan
        low, high = value - distance, max(value, 0.0) + distance
        if name == "level":
            # Limits of the expected mean square of levels, minus the mean square of the interaction.
            of_level, noise = squares["level"][0], squares["interaction"][0]
            limits = (n_levels - 1) / chdtri(n_levels - 1, [1 - UPPER, UPPER]) * [of_level, max(of_level, noise)]
            low, high = widening * (limits - noise) / (n_queries * n_draws)
            if max(of_level, noise) <= rounding:  # no two answers of a query differ
                low = high = np.nan
        components[name] = Component(float(value), max(float(low), 0.0), max(float(high), 0.0))
    return components


def level_widening(n_levels: int, attributes: Sequence[Sequence[int]] | None) -> float:
    """Return the ratio of the variance of independent levels to the expected variance between an array's levels.

    An attribute with k values, each in n/k of n levels, adds (n - n/k) / (n - 1) of its variance to the variance
    between the levels. The ratio is 1 without an array.
    """
    if attributes is None:
        return 1.0
    n_values = {len({*values}) for values in zip(*attributes, strict=True)}
    assert len(n_values) == 1, "all attributes have equally many values"
    return (n_levels - 1) / (n_levels - n_levels / n_values.pop())


def _mean_squares(cells: Floats) -> dict[str, Floats]:
    """Return the mean squares [1 + Q] by name: over all queries, then without each query in turn."""
    n_queries, n_levels, n_draws = cells.shape
    cells = cells - cells.mean()  # so that differences of squares keep their digits
    of_query, by_level, by_draw = cells.mean(axis=(1, 2)), cells.mean(axis=2), cells.mean(axis=1)
    # Sums of squares within each query, [Q].
    ss_levels = n_draws * ((by_level - of_query[:, None]) ** 2).sum(axis=1)
    ss_draws = n_levels * ((by_draw - of_query[:, None]) ** 2).sum(axis=1)
    ss_cells = ((cells - of_query[:, None, None]) ** 2).sum(axis=(1, 2))
    # Number of queries in each entry of the results: Q, then Q - 1.
    n = n_queries - np.arange(n_queries + 1).clip(max=1)
    mean = _sums(of_query) / np.maximum(n, 1)
    ss_query = n_levels * n_draws * (_sums(of_query**2) - n * mean**2)
    level_means = _sums(by_level) / np.maximum(n, 1)[:, None]
    ss_level = n * n_draws * ((level_means - mean[:, None]) ** 2).sum(axis=1)
    sums_of_squares = {
        "query": (ss_query, n - 1),
        "level": (ss_level, np.full_like(n, n_levels - 1)),
        "interaction": (_sums(ss_levels) - ss_level, (n - 1) * (n_levels - 1)),
        "draw": (_sums(ss_draws), n * (n_draws - 1)),
        "residual": (_sums(ss_cells - ss_levels - ss_draws), n * (n_draws - 1) * (n_levels - 1)),
    }
    return {name: ss / np.maximum(df, 1) for name, (ss, df) in sums_of_squares.items() if df[0] > 0}


def _sums(of_query: Floats) -> Floats:
    """Return the sum over queries, then the sums without each query in turn."""
    total = of_query.sum(axis=0, keepdims=True)
    return np.concatenate([total, total - of_query])


def _solve(squares: dict[str, Floats], n_queries: int, n_levels: int, n_draws: int) -> dict[str, Floats]:
    """Return the components [1 + Q] by name for which the expected mean squares equal `squares`."""
    nothing = np.zeros(n_queries + 1)
    residual, draw, interaction = (squares.get(name, nothing) for name in ("residual", "draw", "interaction"))
    n = n_queries - np.arange(n_queries + 1).clip(max=1)
    # Expected mean squares, with q queries, a levels, s draws, and components as capitals: residual R; draw R + a D;
    # interaction R + s I; level R + s I + q s L; query R + a D + s I + a s Q. With a single draw, D cannot be separated
    # from Q; with a single level, I cannot.
    solved = {
        "query": (squares.get("query", nothing) - draw - interaction + residual) / (n_levels * n_draws),
        "level": (squares.get("level", nothing) - interaction) / (np.maximum(n, 1) * n_draws),
        "interaction": (interaction - residual) / n_draws,
        "draw": (draw - residual) / n_levels,
        "residual": residual,
    }
    return {name: solved[name] for name in COMPONENTS if name in squares}


class OneWay(NamedTuple):
    """The result of a one-way analysis of variance."""

    f: float  # NaN where undefined
    p: float
    df_between: int
    df_within: int


class RepeatedMeasures(NamedTuple):
    """The result of an analysis of variance with repeated measures."""

    f: float  # NaN where undefined
    p: float  # assumes that the differences between any two conditions have equal variances (sphericity)
    df_condition: int
    df_residual: int
    epsilon: float  # Greenhouse & Geisser's, from 1 / df_condition to 1; 1 under sphericity
    corrected_p: float  # p with both degrees of freedom multiplied by epsilon
    ss_condition: float  # sums of squares; the three add up to the total sum of squares
    ss_query: float
    ss_residual: float


ONE_WAY = pl.Schema(OneWay.__annotations__)
"""Columns of one_way_by after the grouping columns: the fields of OneWay."""

REPEATED_MEASURES = pl.Schema(RepeatedMeasures.__annotations__ | {"n_queries": int, "n_left_out": int})
"""Columns of repeated_measures_by after the grouping columns: the fields of RepeatedMeasures, the number of queries,
and the number of queries left out for lack of a finite value under a condition."""


def one_way(groups: Sequence[Floats]) -> OneWay:
    """Compute Fisher's F test of the means of independent groups of any sizes.

    F is NaN with fewer than two groups, where every group has one value, and where all values are equal; it is infinite
    where values differ between groups but not within any group.
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
    """Return the largest errors of F and p, at first order, if every value has an error of up to `error`.

    NaN where F is not finite.
    """
    # Sum |dF/dx| over all values x, because in the worst case all errors move F in the same direction.
    f, _, between, within = one_way(groups)
    if not np.isfinite(f):
        return float("nan"), float("nan")
    overall = np.concatenate(groups).mean()
    mean_square = float(sum(((group - group.mean()) ** 2).sum() for group in groups)) / within
    slopes = [2 * ((g.mean() - overall) / between - f * (g - g.mean()) / within) / mean_square for g in groups]
    reach = error * float(np.abs(np.concatenate(slopes)).sum())
    return reach, (_tail(max(f - reach, 0.0), between, within) - _tail(f + reach, between, within)) / 2


def repeated_measures(values: Floats) -> RepeatedMeasures:
    """Compute the F test of the means of conditions over the same queries.

    Args:
        values: [query, condition], finite.

    F is NaN with fewer than two queries or conditions. `p` assumes that the differences between any two conditions have
    equal variances; `corrected_p` does not: its degrees of freedom are multiplied by epsilon (Greenhouse & Geisser
    1959, "On methods in the analysis of profile data").
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
    """Apply `one_way` to each group of rows; return the columns `by` and ONE_WAY, sorted by `by`.

    Args:
        rows: the columns `by`, `condition` and `value` (floats; values that are not finite are left out). One row a
            mean in the analysis of Lu et al. 2023; one row a query for independent groups of queries.
        by: columns that identify a group of rows.
        condition: column that identifies the groups of values to compare.
        value: column of the values.
    """
    finite = rows.filter(pl.col(value).is_finite()).sort(*by, condition)
    cases = finite.group_by(by, maintain_order=True)
    results = [(*key, *one_way(groups_of(case, condition, value))) for key, case in cases]
    return pl.DataFrame(results, {name: rows.schema[name] for name in by} | dict(ONE_WAY), orient="row")


def groups_of(rows: pl.DataFrame, condition: str, value: str) -> list[Floats]:
    """Return the values of each condition in the order of the rows, conditions in order of first appearance."""
    return [group[value].to_numpy() for group in rows.partition_by(condition, maintain_order=True)]


def repeated_measures_by(rows: pl.DataFrame, *, by: Sequence[str], condition: str, value: str) -> pl.DataFrame:
    """Apply `repeated_measures` to each group of rows; return the columns `by` and REPEATED_MEASURES, sorted by `by`.

    Args:
        rows: the columns `by`, `condition`, query_id and `value`, one row a query and condition. Queries without a
            finite value under every condition of their group are left out and counted.
        by, condition, value: as for one_way_by.

    Raises MetricError where a query has two rows under one condition.
    """
    require_one_each(rows, [*by, condition, "query_id"])
    results = []
    for key, case in rows.sort(*by, "query_id", condition).group_by(by, maintain_order=True):
        finite = case.with_columns(pl.when(pl.col(value).is_finite()).then(value))
        # One row a query, one column a condition.
        wide = finite.pivot(on=condition, index="query_id", values=value).drop("query_id")
        complete = wide.drop_nulls()
        results.append((*key, *repeated_measures(complete.to_numpy()), complete.height, wide.height - complete.height))
    return pl.DataFrame(results, {name: rows.schema[name] for name in by} | dict(REPEATED_MEASURES), orient="row")


def require_one_each(rows: pl.DataFrame, key: Sequence[str]) -> None:
    """Raise MetricError with the first duplicate where two rows have the same key."""
    repeated = rows.filter(pl.struct(*key).is_duplicated())
    if not repeated.is_empty():
        first = repeated.row(0, named=True)
        named = ", ".join(f"{name} {first[name]!r}" for name in key)
        raise MetricError(f"{named} is in more than one row. Keep one row of each {', '.join(key)}.")


def _rounding(values: Floats) -> float:
    """Return the sum of squares up to which differences between values count as rounding errors."""
    largest = float(np.abs(values).max(initial=0.0))
    return float(values.size * (8 * np.finfo(np.float64).eps * largest) ** 2)


def _ratio(ss_above: float, df_above: int, ss_below: float, df_below: int, noise: float) -> float:
    """Return F, the ratio of two mean squares; sums of squares of at most `noise` count as 0."""
    if df_above < 1 or df_below < 1 or max(ss_above, ss_below) <= noise:
        return float("nan")
    return (ss_above / df_above) / (ss_below / df_below) if ss_below > noise else float("inf")


def _tail(f: float, df_above: float, df_below: float) -> float:
    """Return the probability of at least this F if all conditions have the same mean."""
    return float(fdtrc(df_above, df_below, f)) if np.isfinite(f) else (0.0 if f > 0 else float("nan"))
