"""The total error of StaICC-Normal's accuracy: its queries, their demonstration sets and its template were all drawn.

The part `template` answers the same queries with the nine templates of an orthogonal array, after two demonstration
sets of each query. So it tells how far accuracies move with the template, which the intervals of StaICC-Normal leave
out.
"""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from evaluator.metrics import total_error
from evaluator.metrics.design_study import Design
from evaluator.metrics.intervals import total_standard_error
from evaluator.metrics.per_request import (
    DIAGNOSED_COLUMNS,
    PredictionGroup,
    by_group,
    prediction_groups,
)
from evaluator.metrics.registry import METRICS, REQUEST_COLUMNS
from evaluator.metrics.total_error import CrossedAnswers, crossed_cells
from evaluator.metrics.values import metric_values
from evaluator.suites.staicc.robustness import template_attributes

HEADLINE, VARIED, SAMPLED = "normal", "template", "sampling"
"""Parts: of the headline, of varied templates, and of many demonstration sets, which is decomposed for itself."""

NAMES = {
    VARIED: {
        "query": "query", "level": "template", "interaction": "query x template", "draw": "demonstration set",
        "residual": "residual",
    },
    SAMPLED: {"query": "query", "draw": "demonstration set and residual"},
}  # fmt: skip
ONE_DRAW = {"query": "query and demonstration set", "level": "template", "interaction": "query x template and residual"}


def total_error_tables(predictions: pl.LazyFrame | pl.DataFrame, metrics: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return variance_components, total_error and design_study, with the columns of schemas.

    Args:
        predictions: schemas.PREDICTIONS of the run.
        metrics: schemas.METRICS of the run.
    """
    cases = [case for group in _groups(predictions, [VARIED, SAMPLED]) for case in _cases(group)]
    return total_error.total_error_tables(cases, _headlines(predictions, metrics, cases))


def _groups(predictions: pl.LazyFrame | pl.DataFrame, parts: Sequence[str]) -> Iterator[PredictionGroup]:
    groups = by_group(predictions, DIAGNOSED_COLUMNS, parts)
    definitions = ("paper", "released")
    return (group for rows in groups for definition in definitions for group in prediction_groups(rows, definition))


def _cases(group: PredictionGroup) -> Iterator[CrossedAnswers]:
    part, n_shots = group.key["part"], int(group.rows["n_shots"][0])
    requests = group.repeated_requests
    level = "template" if part == VARIED else None
    for metric, value in REQUEST_COLUMNS.items():
        cells, n_left_out = crossed_cells(requests, value, level, "demonstration_set")
        names = NAMES[part] if cells.shape[2] > 1 else ONE_DRAW
        attributes = template_attributes(cells.shape[1])
        key = {**group.key, "n_shots": n_shots, "metric": metric}
        now = Design(len(cells), 1, cells.shape[2]) if part == VARIED else None
        yield CrossedAnswers(key, cells, n_left_out, names, now, attributes)


def _headlines(
    predictions: pl.LazyFrame | pl.DataFrame, metrics: pl.DataFrame, cases: list[CrossedAnswers]
) -> Iterator[Mapping[str, object]]:
    """Yield the rows of total_error.total_error: of every method whose templates were varied, on every dataset."""
    of_key = ("dataset", "method", "definition", "metric")
    varied = {tuple(case.key[name] for name in of_key): case for case in cases if case.key["part"] == VARIED}
    if not varied:
        return
    metrics_of_requests = {name: METRICS[name] for name in REQUEST_COLUMNS}
    for group in _groups(predictions, [HEADLINE]):
        measured = metric_values(group.repeated_requests, group.n_labels, metrics_of_requests)
        naive = metrics.filter(pl.all_horizontal(pl.col(name) == value for name, value in group.key.items()))
        for metric, estimate in measured.items():
            case = varied.get((*(group.key[name] for name in of_key[:3]), metric))
            interval = naive.filter(metric=metric).select("ci_low", "ci_high", "ci_over").to_dicts()
            if case is None or not interval or estimate.standard_error is None:
                continue
            error, degrees = total_standard_error(
                estimate.standard_error, estimate.degrees_of_freedom, case.cells.mean(axis=2), case.attributes
            )
            yield {
                **group.key, **interval[0], "n_shots": case.key["n_shots"], "metric": metric,
                "value": estimate.value, "interval": estimate.interval, "lowest": estimate.lowest,
                "highest": estimate.highest, "n_queries": group.rows["query_id"].n_unique(),
                "total_over": "queries and templates", "total_error": error, "total_degrees": degrees,
            }  # fmt: skip
