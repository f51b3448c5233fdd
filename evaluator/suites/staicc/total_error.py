"""The total error of StaICC-Normal's accuracy: its queries, their demonstration sets and its template were all drawn.

The part `template` answers the same queries with the nine templates of an orthogonal array, after two demonstration
sets of each query. So it tells how far accuracies move with the template, which the intervals of StaICC-Normal leave
out.
"""

from collections.abc import Collection, Iterator, Mapping

import polars as pl

from evaluator.metrics.classification import REQUEST_COLUMNS
from evaluator.metrics.groups import PredictionGroup
from evaluator.metrics.intervals import total_standard_error
from evaluator.metrics.total_error import CrossedAnswers, crossed_cells, total_error_tables
from evaluator.statistics.variance_components import Design
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


class CrossedParts:
    """What total error reads of the predictions of a run, group by group."""

    def __init__(self) -> None:
        self._cases: list[CrossedAnswers] = []
        self._estimates: list[dict[str, object]] = []  # key, sizes and fields of Measured, of the part HEADLINE

    def add(self, group: PredictionGroup) -> None:
        """Keep the answers of the parts VARIED and SAMPLED, and the estimates of HEADLINE."""
        part = group.key["part"]
        if part in NAMES and group.definition != "published":
            self._cases += _crossed_answers(group)
        if part == HEADLINE:
            about = {**group.key, **group.sizes}
            metrics = ((metric, group.metrics[metric]._asdict()) for metric in REQUEST_COLUMNS)
            self._estimates += [about | {"metric": metric, **measured} for metric, measured in metrics]

    def tables(self, definitions: Collection[str]) -> dict[str, pl.DataFrame]:
        """Return variance_components, total_error of the measured definitions, and design_study."""
        return total_error_tables(self._cases, self._headlines(definitions))

    def _headlines(self, definitions: Collection[str]) -> Iterator[Mapping[str, object]]:
        """Yield the headline of every method whose templates were varied, on every dataset."""
        of_key = ("dataset", "method", "definition", "metric")
        varied = {tuple(case.key[name] for name in of_key): case for case in self._cases if case.key["part"] == VARIED}
        for row in self._estimates:
            case = varied.get(tuple(row[name] for name in of_key))
            error, degrees = row["standard_error"], row["degrees_of_freedom"]
            if case and row["definition"] in definitions and isinstance(error, float) and isinstance(degrees, int):
                cells = case.cells.mean(axis=2)
                total, freedom = total_standard_error(error, degrees, cells, case.attributes)
                over = {"ci_over": row["over"], "total_over": "queries and templates"}
                total_of = {"n_shots": case.key["n_shots"], "total_error": total, "total_degrees": freedom}
                yield {name: value for name, value in row.items() if name != "bins"} | over | total_of


def _crossed_answers(group: PredictionGroup) -> Iterator[CrossedAnswers]:
    """Yield the answers of a group for each metric that is a mean over requests."""
    part = group.key["part"]
    for metric, column in REQUEST_COLUMNS.items():
        level = "template" if part == VARIED else None
        cells, n_left_out = crossed_cells(group.repeated_requests, column, level, "demonstration_set")
        names = NAMES[part] if cells.shape[2] > 1 else ONE_DRAW
        key = {**group.key, "n_shots": int(group.rows["n_shots"][0]), "metric": metric}
        now = Design(len(cells), 1, cells.shape[2]) if part == VARIED else None
        yield CrossedAnswers(key, cells, n_left_out, names, now, template_attributes(cells.shape[1]))
