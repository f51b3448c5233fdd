"""Build tables of variance components, total errors and design studies from answers of a crossed design.

In a crossed design, every query is answered at every level of a factor, such as templates. A *total error* is a
standard error with these factors of the prompt as random samples, besides the queries.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator import schemas
from evaluator.arrays import Floats, Ints
from evaluator.metrics import intervals
from evaluator.metrics.classification import IntervalForm, Limits, Measured
from evaluator.metrics.groups import PredictionGroup
from evaluator.schemas import MEAN_OVER_DATASETS
from evaluator.statistics.variance_components import COMPONENTS, Component, variance_components


class Design(NamedTuple):
    """The numbers of queries, of levels of the crossed factor, and of draws a query."""

    n_queries: int
    n_levels: int
    n_draws: int

    @property
    def n_prompts(self) -> int:
        return self.n_queries * self.n_levels * self.n_draws


Names = Mapping[str, str]
"""Name of a component in statistics.variance_components -> its name in the tables."""


class CrossedAnswers(NamedTuple):
    """Values of the same queries at several levels of a factor, with one or more draws a query."""

    key: Mapping[str, object]  # columns before `component` of schemas.VARIANCE_COMPONENTS_KEY
    cells: Floats  # [query, level, draw], value of each answer
    n_left_out: int  # number of queries left out for a missing value
    names: Names
    now: Design | None  # present design of the headline value, for the design study; None: no design study
    attributes: Sequence[Sequence[int]] | None = None  # attribute values of each level of an orthogonal array


Decomposed = tuple[CrossedAnswers, Mapping[str, Component]]
"""Crossed answers with the components of their variance by name."""


def crossed_cells(rows: pl.DataFrame, value: str, level: str | None, draw: str | None) -> tuple[Floats, int]:
    """Return the cells [query, level, draw] of complete queries, and the number of incomplete queries.

    A query is complete if it has a finite value at every level and draw.

    Args:
        rows: query_id and the columns `value`, `level` and `draw`, at most one row a query, level and draw.
        value: name of the column with values.
        level, draw: names of the columns with levels and draws; None: there is a single one.
    """
    order = [name for name in ("query_id", level, draw) if name]
    sizes = [rows[name].n_unique() if name else 1 for name in (level, draw)]
    n_cells = sizes[0] * sizes[1]
    finite = rows.filter(pl.col(value).cast(pl.Float64).is_finite())
    complete = finite.filter(pl.len().over("query_id") == n_cells).sort(order)
    cells = complete[value].cast(pl.Float64).to_numpy().reshape(-1, *sizes)
    return cells, rows["query_id"].n_unique() - len(cells)


def crossed_tables(
    rows: pl.DataFrame,
    by: Sequence[str],
    level: str,
    values: Mapping[str, tuple[str, Limits]],
    names: Names,
    shared: Mapping[str, object],
) -> dict[str, pl.DataFrame]:
    """Return total_error_tables of means over queries and levels, both random samples, with a single draw a query.

    Args:
        rows: the columns `by`, query_id, `level` and the columns of `values`, one row a query and level in each group.
        by: columns of the key that differ between groups.
        level: column of the factor that is crossed with queries.
        values: metric -> column of which the metric is the mean, and limits of the metric.
        names: names of the components in the tables.
        shared: values of the columns of the key that are equal in all groups.

    A metric is left out of a group where no query has a value at every level.
    """
    cases, headlines = [], []
    for key, group in rows.sort(by).group_by(by, maintain_order=True):
        for metric, (column, limits) in values.items():
            cells, n_left_out = crossed_cells(group, column, level, None)
            if len(cells):
                named = {**shared, **dict(zip(by, key, strict=True)), "metric": metric}
                case = CrossedAnswers(named, cells, n_left_out, names, Design(len(cells), cells.shape[1], 1))
                cases.append(case)
                headlines.append(crossed_headline(case, limits, f"{names['level']}s"))
    return total_error_tables(cases, headlines)


def total_error_tables(
    cases: Sequence[CrossedAnswers], headlines: Iterable["Headline"], *, independent: bool = True
) -> dict[str, pl.DataFrame]:
    """Return the tables variance_components, total_error and design_study by name.

    Args:
        cases: crossed answers, for variance components and design studies.
        headlines: values with their total errors.
        independent: whether datasets are independent. If not (questions about the same inputs), the design study takes
            the mean of the datasets' variances for the variance of their mean, an upper bound under any dependence.
    """
    components, design = components_and_design(cases, independent=independent)
    totals = total_error([headline.row for headline in headlines], independent=independent)
    return {"variance_components": components, "total_error": totals, "design_study": design}


def components_and_design(
    answers: Iterable[CrossedAnswers], *, independent: bool = True
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return VARIANCE_COMPONENTS and DESIGN_STUDY, sorted by their keys, of every case and of the means over datasets.

    Cases with fewer than two queries, or with one level and one draw, have no rows. The components of a mean over
    datasets are the means of the datasets' components; its design study assumes the same design in each dataset.
    """
    cases = [case for case in answers if len(case.cells) > 1 and case.cells[0].size > 1]
    if not cases:
        return schemas.VARIANCE_COMPONENTS.to_frame(), schemas.DESIGN_STUDY.to_frame()
    decomposed: list[Decomposed] = [(case, variance_components(case.cells, case.attributes)) for case in cases]
    rows = [row for case, found in decomposed for row in _component_rows(case, found)]
    components = pl.DataFrame(rows, schema={name: schemas.VARIANCE_COMPONENTS[name] for name in rows[0]})
    components = _with_shares(pl.concat([components, _mean_components(components, independent)]))
    # Design studies: of each case with a present design, and of each mean over such cases of different datasets.
    key_of_mean = [name for name in schemas.VARIANCE_COMPONENTS_KEY if name not in ("dataset", "component")]
    planned: dict[tuple[object, ...], list[Decomposed]] = {}
    for case, found in decomposed:
        if case.now:
            planned.setdefault(tuple(case.key[name] for name in key_of_mean), []).append((case, found))
    studies: list[dict[str, object]] = []
    for group in planned.values():
        for case, found in group:
            studies += _design_rows(case.key, [(case, found)], independent)
        first, _ = group[0]
        studies += _design_rows({**first.key, "dataset": MEAN_OVER_DATASETS}, group, independent)
    study = pl.DataFrame(studies, schema=schemas.DESIGN_STUDY).sort(schemas.DESIGN_STUDY_KEY)
    return components.sort(schemas.VARIANCE_COMPONENTS_KEY), study


class Headline(NamedTuple):
    """A value with its usual interval, and its total error with factors of the prompt as random samples."""

    about: Mapping[str, object]  # key of the value, with its n_queries and other columns
    measured: Measured
    factors: Sequence[str]  # names of the factors
    # Standard errors with degrees of freedom. The last pair is the total error, with all factors; its standard error is
    # None where a sample has a single member.
    errors: Sequence[tuple[float | None, float]]

    @property
    def row(self) -> dict[str, object]:
        """Return the row that total_error reads."""
        *factors, last = self.factors
        over = {"ci_over": self.measured.over, "total_over": f"{', '.join(['queries', *factors])} and {last}"}
        total = dict(zip(("total_error", "total_degrees"), self.errors[-1], strict=True))
        return {**self.about, **self.measured._asdict(), **over, **total}


def crossed_headline(case: CrossedAnswers, limits: Limits, factor: str) -> Headline:
    """Return the mean of all answers of a case with a single draw, with queries and levels as random samples.

    Args:
        case: crossed answers with cells [query, level, 1].
        limits: limits of the metric; the interval is a score interval if both are finite.
        factor: name of the factor whose levels are crossed with queries.
    """
    cells = case.cells[:, :, 0]
    n_queries = len(cells)
    over_queries = float(cells.mean(axis=1).std(ddof=1)) / n_queries**0.5 if n_queries > 1 else None
    form: IntervalForm = "score" if np.isfinite(limits).all() else "symmetric"
    measured = Measured(float(cells.mean()), over_queries, n_queries - 1, form, *limits)
    return Headline({**case.key, "n_queries": n_queries}, measured, [factor], [intervals.two_way_standard_error(cells)])


@dataclass(frozen=True)
class TotalErrors:
    """Total errors of the values of one part, with the factors that other parts vary as random samples.

    Groups are collected by `add`.
    """

    part: str  # part of the values, in which factors of the prompt are fixed
    metrics: Sequence[str]  # metrics of this part
    factors: Mapping[str, str]  # part that varies a factor -> name of the factor
    crossed: Callable[[PredictionGroup], Iterable[CrossedAnswers]]  # returns a group's crossed answers, often none
    independent: bool = True  # whether datasets are independent; questions about the same inputs are not
    _cases: list[CrossedAnswers] = field(default_factory=list)
    _values: list[tuple[dict[str, object], Measured]] = field(default_factory=list)

    def add(self, group: PredictionGroup) -> None:
        """Collect the values of a group of the part, or the crossed answers of a group of another part."""
        if group.key["part"] != self.part:
            self._cases.extend(self.crossed(group))
            return
        about = {**group.key, **group.sizes, "n_shots": group.rows["n_shots"][0]}
        for metric in self.metrics:
            self._values.append((about | {"metric": metric}, group.metrics[metric]))

    def headlines(self, definitions: Collection[str]) -> Iterator[Headline]:
        """Yield each value under these definitions for which another part varies a factor.

        Its `errors` are the error over queries, then the errors with one factor after the other added.
        """
        for about, measured in self._values:
            shared = ("dataset", "method", "definition", "metric")  # columns that a value and its crossed answers share
            alike = [case for case in self._cases if all(case.key[name] == about[name] for name in shared)]
            cases = [case for case in alike if case.key["part"] in self.factors]
            if cases and measured.standard_error is not None and about["definition"] in definitions:
                last = (measured.standard_error, float(measured.degrees_of_freedom))
                errors = [last]
                for case in cases:
                    error, degrees = intervals.total_standard_error(*last, case.cells.mean(axis=2), case.attributes)
                    last = last if error is None else (error, degrees)
                    errors.append(last)
                yield Headline(about, measured, [self.factors[str(case.key["part"])] for case in cases], errors)

    def tables(self, definitions: Collection[str]) -> dict[str, pl.DataFrame]:
        """Return total_error_tables of the collected groups, with total errors under these definitions only."""
        return total_error_tables(self._cases, self.headlines(definitions), independent=self.independent)


def total_error(rows: Sequence[Mapping[str, object]], *, independent: bool = True) -> pl.DataFrame:
    """Return TOTAL_ERROR of datasets and of the means over datasets, sorted by its key.

    Args:
        rows: the key, the fields of classification.Measured that an interval depends on, `n_queries`, `ci_over`,
            `total_over`, `total_error` (the standard error over all samples, or None) and `total_degrees`.
        independent: whether datasets are independent; questions about the same inputs are not.
    """
    if not rows:
        return schemas.TOTAL_ERROR.to_frame()
    floats = ("value", "standard_error", "degrees_of_freedom", "total_error", "total_degrees", "lowest", "highest")
    schema = dict.fromkeys((*floats, "n_queries"), pl.Float64)
    naive = intervals.with_intervals(pl.DataFrame(rows, infer_schema_length=None, schema_overrides=schema))
    degrees = pl.col("total_degrees").fill_null(0)
    total = intervals.with_intervals(naive.with_columns(standard_error="total_error", degrees_of_freedom=degrees))
    # Add the means over datasets to both tables: the interval of a mean follows from the intervals of its datasets.
    naive, total = (_with_means(datasets, independent) for datasets in (naive, total))
    freedom = pl.when(total["ci_low"].is_not_null()).then("total_degrees").alias("degrees_of_freedom")
    table = naive.with_columns(freedom, total_low=total["ci_low"], total_high=total["ci_high"])
    return schemas.declared(table, schemas.TOTAL_ERROR, schemas.TOTAL_ERROR_KEY)


def _with_means(datasets: pl.DataFrame, independent: bool) -> pl.DataFrame:
    """Append the means over datasets, which have no total_degrees, to rows of datasets with intervals."""
    first = {name: pl.col(name).first() for name in ("ci_over", "total_over")}
    first["total_degrees"] = pl.lit(None, pl.Float64)
    means = intervals.mean_over_datasets(datasets, schemas.TOTAL_ERROR_KEY, independent=independent, **first)
    return pl.concat([datasets.select(means.columns), means])


def _component_rows(case: CrossedAnswers, found: Mapping[str, Component]) -> Iterator[dict[str, object]]:
    n_queries, n_levels, n_draws = case.cells.shape
    sizes = {"n_queries": n_queries, "n_left_out": case.n_left_out, "n_levels": n_levels, "n_draws": n_draws}
    for name, component in found.items():
        numbers = {key: None if np.isnan(value) else value for key, value in component._asdict().items()}
        yield {**case.key, "component": case.names[name], **numbers, **sizes}


def _mean_components(components: pl.DataFrame, independent: bool) -> pl.DataFrame:
    # Limits are 0 or more, so their distances for mean_over_datasets start from the estimate, limited to 0 or more.
    means = intervals.mean_over_datasets(
        components.with_columns(value=pl.col("variance").clip(lower_bound=0)),
        schemas.VARIANCE_COMPONENTS_KEY,
        independent=independent,
        variance=pl.col("variance").mean(),
        **{name: pl.col(name).sum() for name in ("n_queries", "n_left_out")},
        **{name: pl.col(name).max() for name in ("n_levels", "n_draws")},
    )
    return means.with_columns(pl.col("ci_low").clip(lower_bound=0)).select(components.columns)


def _with_shares(components: pl.DataFrame) -> pl.DataFrame:
    positive = pl.col("variance").clip(lower_bound=0)
    total = positive.sum().over([name for name in schemas.VARIANCE_COMPONENTS_KEY if name != "component"])
    shared = components.with_columns(share=pl.when(total > 0).then(positive / total))
    return shared.select(schemas.VARIANCE_COMPONENTS.names())


def _design_rows(
    key: Mapping[str, object], cases: Sequence[Decomposed], independent: bool
) -> Iterator[dict[str, object]]:
    """Yield the rows of DESIGN_STUDY of one case, or of a mean over cases of several datasets."""
    names, n_datasets = cases[0][0].names, len(cases)
    # Variance components of the mean over datasets; negative or absent components count as 0.
    sums = (sum(max(found[name].variance, 0.0) for _, found in cases if name in found) for name in COMPONENTS)
    variances = Variances(*(total / (n_datasets**2 if independent else n_datasets) for total in sums))
    now = Design(*(min(sizes) for sizes in zip(*(case.now for case, _ in cases if case.now), strict=True)))
    factors = {"query": names["query"], **{name: names[name] for name in ("level", "draw") if name in names}}

    def row(question: str, spent_on: str, design: Design | None) -> dict[str, object]:
        asked = {**key, "question": question, "spent_on": spent_on}
        if design is None:
            return asked
        error = variances.standard_error(design)
        sizes = {**design._asdict(), "n_prompts": design.n_prompts * n_datasets}
        return {**asked, **sizes, "standard_error": error, "half_width": intervals.Z * error}

    yield row("now", "", now)
    for spent_on, design in more_prompts(now, MORE_PROMPTS // n_datasets, factors):
        yield row(f"{MORE_PROMPTS:,} more prompts", spent_on, design)
    for half_width in HALF_WIDTHS:
        n_queries = queries_needed(variances, half_width, now.n_levels, now.n_draws)
        only_queries = None if n_queries is None else now._replace(n_queries=n_queries)
        yield row(f"half-width of {half_width}", factors["query"], only_queries)
        yield row(f"half-width of {half_width}", "cheapest", cheapest(variances, half_width, has_draws="draw" in names))


# Design studies: the best use of more prompts (queries, levels or draws), and the number of prompts that an interval of
# a given half-width needs.
#
# The variance of a mean over Q queries, L levels of a crossed factor and D draws of each query is query/Q + level/L +
# interaction/QL + draw/QD + residual/QLD (a decision study of generalizability theory: Brennan 2001, "Generalizability
# Theory", chapter 1).

MORE_PROMPTS = 10_000
HALF_WIDTHS = (0.05, 0.03, 0.02, 0.01)
MAX_LEVELS, MAX_DRAWS = 200, 16
"""Largest numbers of levels and of draws in the search for the cheapest design."""


class Variances(NamedTuple):
    """The variance components of a mean, each 0 or more."""

    query: float
    level: float
    interaction: float
    draw: float
    residual: float

    def of_query(self, n_levels: Ints | int, n_draws: Ints | int) -> Floats:
        """Return the variance over queries of a query's mean over levels and draws; broadcasts."""
        of_answers = (self.draw + self.residual / n_levels) / n_draws
        return np.asarray(self.query + self.interaction / n_levels + of_answers)

    def standard_error(self, design: Design) -> float:
        """Return the standard error of the mean over all answers of a design."""
        of_query = float(self.of_query(design.n_levels, design.n_draws))
        return math.sqrt(of_query / design.n_queries + self.level / design.n_levels)


def more_prompts(now: Design, n_prompts: int, names: Mapping[str, str]) -> Iterator[tuple[str, Design]]:
    """Yield each use of `n_prompts` more prompts, with the resulting design: more queries, levels or draws.

    A use is left out where the prompts are too few for one more query, level or draw.

    Args:
        now: the present design.
        n_prompts: number of further prompts.
        names: "query", "level" and, where queries have draws, "draw" -> name of the component in the tables.
    """
    for component, size in (("query", "n_queries"), ("level", "n_levels"), ("draw", "n_draws")):
        n, others = getattr(now, size), now.n_prompts // getattr(now, size)
        if component in names and n_prompts >= others:
            yield names[component], now._replace(**{size: n + n_prompts // others})


def queries_needed(variances: Variances, half_width: float, n_levels: int, n_draws: int) -> int | None:
    """Return the smallest number of queries (at least 2) for a half-width; None where no number is enough."""
    needed = float(_queries_needed(variances, half_width, np.array(n_levels), np.array(n_draws)))
    return int(needed) if math.isfinite(needed) else None


def cheapest(variances: Variances, half_width: float, *, has_draws: bool) -> Design | None:
    """Return the design with the fewest prompts for this half-width; of ties, the fewest levels, then the fewest draws.

    None where no design with up to MAX_LEVELS levels and MAX_DRAWS draws has this half-width.
    """
    levels, draws = np.meshgrid(
        np.arange(1, MAX_LEVELS + 1), np.arange(1, MAX_DRAWS + 1 if has_draws else 2), indexing="ij"
    )
    queries = _queries_needed(variances, half_width, levels, draws)
    best = np.unravel_index(np.argmin(queries * levels * draws), levels.shape)
    return Design(*(int(values[best]) for values in (queries, levels, draws))) if np.isfinite(queries[best]) else None


def _queries_needed(variances: Variances, half_width: float, levels: Ints, draws: Ints) -> Floats:
    """Return the smallest number of queries for each number of levels and draws; infinite where none is enough."""
    # The variance that may come from queries: the wanted variance minus the part of the levels.
    left = (half_width / intervals.Z) ** 2 - variances.level / levels
    needed = np.maximum(np.ceil(variances.of_query(levels, draws) / np.where(left > 0, left, 1.0)), 2.0)
    return np.asarray(np.where(left > 0, needed, np.inf))
