"""Tables of variance components, total intervals and design studies, from answers of a crossed design."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator.arrays import Floats
from evaluator.metrics.base import Limits
from evaluator.metrics.calibration_interval import Z
from evaluator.metrics.design_study import (
    HALF_WIDTHS,
    MORE_PROMPTS,
    Design,
    Variances,
    cheapest,
    more_prompts,
    queries_needed,
)
from evaluator.metrics.intervals import mean_of_intervals, two_way_standard_error, with_intervals
from evaluator.schemas import (
    DESIGN_STUDY,
    DESIGN_STUDY_KEY,
    MEAN_OVER_DATASETS,
    TOTAL_ERROR,
    TOTAL_ERROR_KEY,
    VARIANCE_COMPONENTS,
    VARIANCE_COMPONENTS_KEY,
)
from evaluator.statistics.variance_components import COMPONENTS, variance_components

Names = Mapping[str, str]
"""Name of a component in statistics.variance_components -> its name in the tables; those without one are left out."""


class CrossedAnswers(NamedTuple):
    """Values of the same queries under several levels, after several draws of each query."""

    key: Mapping[str, object]  # columns before `component` of VARIANCE_COMPONENTS_KEY
    cells: Floats  # [query, level, draw]
    n_left_out: int  # queries that lack a value
    names: Names
    now: Design | None  # of the headline value, whose further prompts are planned
    attributes: Sequence[Sequence[int]] | None = None  # of each level, where levels are rows of an orthogonal array


def crossed_cells(rows: pl.DataFrame, value: str, level: str | None, draw: str | None) -> tuple[Floats, int]:
    """Return [query, level, draw] of the queries that have a finite value with every level and draw, and how many lack.

    Args:
        rows: `query_id`, `value` and the columns named, each query, level and draw at most once.
    """
    order = [name for name in ("query_id", level, draw) if name]
    sizes = [rows[name].n_unique() if name else 1 for name in (level, draw)]
    n_cells = sizes[0] * sizes[1]
    finite = rows.filter(pl.col(value).cast(pl.Float64).is_finite())
    complete = finite.filter(pl.len().over("query_id") == n_cells).sort(order)
    cells = complete[value].cast(pl.Float64).to_numpy().reshape(-1, *sizes)
    return cells, rows["query_id"].n_unique() - len(cells)


def crossed_answers(
    rows: pl.DataFrame,
    by: Sequence[str],
    level: str,
    values: Mapping[str, str],
    names: Names,
    shared: Mapping[str, object],
) -> Iterator[CrossedAnswers]:
    """Yield the answers of each group of rows, one answer of a query at each level.

    Args:
        rows: the columns `by`, `query_id`, `level` and those of `values`, one row a query and level in each group.
        by: columns of the key that differ between groups.
        level: column of the factor that is crossed with queries.
        values: metric -> column of which it is the mean.
        names: names of the components in the tables.
        shared: columns of the key that are equal in all groups.

    A metric without a query that has a value at every level is left out.
    """
    groups = rows.sort(by).partition_by(by, as_dict=True, maintain_order=True)
    for key, group in groups.items():
        for metric, column in values.items():
            cells, n_left_out = crossed_cells(group, column, level, None)
            if len(cells):
                named = {**shared, **dict(zip(by, key, strict=True)), "metric": metric}
                yield CrossedAnswers(named, cells, n_left_out, names, Design(len(cells), cells.shape[1], 1))


def total_error_tables(
    cases: Sequence[CrossedAnswers], headlines: Iterable[Mapping[str, object]]
) -> dict[str, pl.DataFrame]:
    """Return variance_components, total_error and design_study by name.

    Args:
        cases: of components_and_design.
        headlines: rows of total_error.
    """
    components, design = components_and_design(cases)
    return {"variance_components": components, "total_error": total_error(list(headlines)), "design_study": design}


def components_and_design(answers: Iterable[CrossedAnswers]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return VARIANCE_COMPONENTS and DESIGN_STUDY, sorted by their keys, of every case and of the means over datasets.

    Cases with fewer than two queries, or with one level and one draw, have no rows. Components of a mean over datasets
    are the means of theirs; its design study has as many queries, levels and draws in each dataset.
    """
    cases = [case for case in answers if len(case.cells) > 1 and case.cells[0].size > 1]
    if not cases:
        return VARIANCE_COMPONENTS.to_frame(), DESIGN_STUDY.to_frame()
    components = pl.DataFrame(
        [row for case in cases for row in _component_rows(case)], infer_schema_length=None
    ).select(pl.col(name).cast(dtype) for name, dtype in VARIANCE_COMPONENTS.items() if name != "share")
    components = _with_shares(pl.concat([components, _mean_components(components)]))
    key_of_mean = [name for name in VARIANCE_COMPONENTS_KEY if name not in ("dataset", "component")]
    groups: dict[tuple[object, ...], list[CrossedAnswers]] = {}
    for case in cases:
        if case.now:
            groups.setdefault(tuple(case.key[name] for name in key_of_mean), []).append(case)
    studies = [row for group in groups.values() for case in group for row in _design_rows(case.key, [case])]
    studies += [row for group in groups.values() for row in _design_rows({**group[0].key, **_MEAN}, group)]
    design = pl.DataFrame(studies, schema=DESIGN_STUDY, orient="row", infer_schema_length=None)
    return components.sort(VARIANCE_COMPONENTS_KEY), design.sort(DESIGN_STUDY_KEY)


def crossed_headline(case: CrossedAnswers, limits: Limits, total_over: str) -> dict[str, object]:
    """Return a row for total_error: the mean of all answers [query, level, 1], whose levels are a sample as well.

    Args:
        limits: of the metric; its interval is a score interval where both are finite.
        total_over: names both samples.
    """
    cells = case.cells[:, :, 0]
    of_query, n_queries = cells.mean(axis=1), len(cells)
    error, degrees = two_way_standard_error(cells)
    row = {
        "value": float(cells.mean()),
        "n_queries": float(n_queries),
        "interval": "score" if np.isfinite(limits).all() else "symmetric",
        "lowest": limits[0],
        "highest": limits[1],
    }
    over_queries = float(of_query.std(ddof=1)) / n_queries**0.5 if n_queries > 1 else None
    naive = pl.DataFrame(
        [{**row, "standard_error": over_queries, "degrees_of_freedom": n_queries - 1.0}],
        schema_overrides={"standard_error": pl.Float64},
    )
    low, high = with_intervals(naive).select("ci_low", "ci_high").row(0)
    total = {"total_over": total_over, "total_error": error, "total_degrees": degrees}
    return {**case.key, **row, "ci_low": low, "ci_high": high, "ci_over": "queries", **total}


def total_error(rows: Sequence[Mapping[str, object]]) -> pl.DataFrame:
    """Return TOTAL_ERROR of datasets and of the means over them, sorted by its key.

    Args:
        rows: the key, `ci_low`, `ci_high`, `ci_over`, `total_over`, `total_error` (a standard error or None),
            `total_degrees`, `n_queries`, and `interval`, `value`, `lowest` and `highest` as in values.Measured.
    """
    if not rows:
        return TOTAL_ERROR.to_frame()
    floats = ("value", "ci_low", "ci_high", "total_error", "total_degrees", "lowest", "highest", "n_queries")
    frame = pl.DataFrame(rows, infer_schema_length=None, schema_overrides=dict.fromkeys(floats, pl.Float64))
    total = with_intervals(
        frame.select(
            "value",
            "n_queries",
            "interval",
            "lowest",
            "highest",
            standard_error="total_error",
            degrees_of_freedom=pl.col("total_degrees").fill_null(0),
        )
    )
    datasets = frame.with_columns(
        total_low=total["ci_low"],
        total_high=total["ci_high"],
        degrees_of_freedom=pl.when(total["ci_low"].is_not_null()).then("total_degrees"),
    ).select(pl.col(name).cast(dtype) for name, dtype in TOTAL_ERROR.items())
    by = [name for name in TOTAL_ERROR_KEY if name != "dataset"]
    ends = {"total_low": "ci_low", "total_high": "ci_high"}
    totals = datasets.drop(ends.values()).rename(ends)
    naive, whole = (
        frame.sort("dataset")
        .group_by(by, maintain_order=True)
        .agg(**mean_of_intervals(), **{name: pl.col(name).first() for name in ("ci_over", "total_over")})
        for frame in (datasets, totals)
    )
    means = naive.with_columns(
        total_low=whole["ci_low"],
        total_high=whole["ci_high"],
        degrees_of_freedom=pl.lit(None, pl.Float64),
        **{name: pl.lit(value) for name, value in _MEAN.items()},
    ).select(TOTAL_ERROR.names())
    return pl.concat([datasets, means]).sort(TOTAL_ERROR_KEY)


_MEAN = {"dataset": MEAN_OVER_DATASETS}


def _component_rows(case: CrossedAnswers) -> Iterator[dict[str, object]]:
    found = variance_components(case.cells, case.attributes).components
    n_queries, n_levels, n_draws = case.cells.shape
    sizes = {"n_queries": n_queries, "n_left_out": case.n_left_out, "n_levels": n_levels, "n_draws": n_draws}
    for name, component in found.items():
        interval = {
            limit: None if np.isnan(value) else value
            for limit, value in (("ci_low", component.ci_low), ("ci_high", component.ci_high))
        }
        yield {**case.key, "component": case.names[name], "variance": component.variance, **interval, **sizes}


def _mean_components(components: pl.DataFrame) -> pl.DataFrame:
    by = [name for name in VARIANCE_COMPONENTS_KEY if name != "dataset"]
    means = (
        # Limits are cut at 0, so that their distances are taken from the estimate cut at 0.
        components.with_columns(value=pl.col("variance").clip(lower_bound=0))
        .sort("dataset")
        .group_by(by, maintain_order=True)
        .agg(
            pl.col("variance").mean(),
            **mean_of_intervals(),
            **{name: pl.col(name).sum() for name in ("n_queries", "n_left_out")},
            **{name: pl.col(name).max() for name in ("n_levels", "n_draws")},
        )
    )
    return means.with_columns(pl.col("ci_low").clip(lower_bound=0), dataset=pl.lit(MEAN_OVER_DATASETS)).select(
        components.columns
    )


def _with_shares(components: pl.DataFrame) -> pl.DataFrame:
    positive = pl.col("variance").clip(lower_bound=0)
    total = positive.sum().over([name for name in VARIANCE_COMPONENTS_KEY if name != "component"])
    return components.with_columns(share=pl.when(total > 0).then(positive / total)).select(VARIANCE_COMPONENTS.names())


def _variances(cases: Sequence[CrossedAnswers]) -> Variances:
    """Return the components of a mean over the datasets, one answer of each."""
    found = [variance_components(case.cells, case.attributes) for case in cases]
    n = len(cases)
    return Variances(*(sum(each.variance(name) for each in found) / n**2 for name in COMPONENTS))


def _design_rows(key: Mapping[str, object], cases: Sequence[CrossedAnswers]) -> Iterator[dict[str, object]]:
    variances, names, n_datasets = _variances(cases), cases[0].names, len(cases)
    now = Design(*(min(sizes) for sizes in zip(*(case.now for case in cases if case.now), strict=True)))
    factors = {"query": names["query"], **{name: names[name] for name in ("level", "draw") if name in names}}

    def row(question: str, spent_on: str, design: Design | None) -> dict[str, object]:
        sizes = {} if design is None else {**design._asdict(), "n_prompts": design.n_prompts * n_datasets}
        error = None if design is None else variances.standard_error(design)
        missing = dict.fromkeys(("n_queries", "n_levels", "n_draws", "n_prompts"))
        half_width = None if error is None else Z * error
        asked = {"question": question, "spent_on": spent_on, "standard_error": error, "half_width": half_width}
        return {**key, **missing, **sizes, **asked}

    yield row("now", "", now)
    for spent_on, design in more_prompts(now, MORE_PROMPTS // n_datasets, factors):
        yield row(f"{MORE_PROMPTS:,} more prompts", spent_on, design)
    for half_width in HALF_WIDTHS:
        n_queries = queries_needed(variances, half_width, now.n_levels, now.n_draws)
        alone = None if n_queries is None else now._replace(n_queries=n_queries)
        yield row(f"half-width of {half_width}", factors["query"], alone)
        yield row(f"half-width of {half_width}", "cheapest", cheapest(variances, half_width, has_draws="draw" in names))
