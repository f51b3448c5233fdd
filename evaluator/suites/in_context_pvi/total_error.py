"""V-information and accuracy over all demonstration sets of a number of shots, as samples of queries and of sets."""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import polars as pl

from evaluator.metrics import total_error
from evaluator.metrics.base import Limits
from evaluator.metrics.total_error import CrossedAnswers, crossed_cells, crossed_headline
from evaluator.statistics.variance_components import Design
from evaluator.suites.in_context_pvi.options import PviSource
from evaluator.suites.in_context_pvi.prompts import INPUT

OVER = "queries and demonstration sets"


class _Value(NamedTuple):
    column: str  # of schema.PVI
    limits: Limits


VALUES = {"accuracy": _Value("correct", (0.0, 1.0)), "v_information": _Value("pvi_bits", (-math.inf, math.inf))}
"""Metric -> what it is the mean of."""

NAMES = {"query": "query", "level": "demonstration set", "interaction": "query x demonstration set and residual"}


def total_error_tables(pvi: pl.DataFrame, source: PviSource) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield variance_components, total_error and design_study, with the columns of schemas.

    Over queries that have a value after every set. Sets chosen by PVI follow from a rule and are no sample of sets.

    Args:
        pvi: schema.PVI.
        source: of the suite's own sets.
    """
    own = pvi.filter(demonstrations=source)
    cases = [
        case
        for (dataset, definition, n_shots), rows in own.sort("dataset", "definition", "n_shots")
        .partition_by("dataset", "definition", "n_shots", as_dict=True, maintain_order=True)
        .items()
        for case in _cases({"dataset": dataset, "definition": definition, "n_shots": n_shots}, rows)
    ]
    limits = {metric: value.limits for metric, value in VALUES.items()}
    answered = (case for case in cases if len(case.cells))
    headlines = (crossed_headline(case, limits[str(case.key["metric"])], OVER) for case in answered)
    return iter(total_error.total_error_tables(cases, headlines).items())


def _cases(key: Mapping[str, object], rows: pl.DataFrame) -> Iterator[CrossedAnswers]:
    shared = {"suite": "pvi", "part": INPUT, "method": "vanilla"}
    for metric, value in VALUES.items():
        cells, n_left_out = crossed_cells(rows, value.column, "demonstration_set", None)
        case = {**shared, **key, "metric": metric}
        yield CrossedAnswers(case, cells, n_left_out, NAMES, Design(len(cells), cells.shape[1], 1))
