"""How far models agree about PVI to the triangles and rows a reader sees. Nothing is computed here."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from evaluator.report.comparison_correlations import Triangle, pair_cells
from evaluator.suites.in_context_pvi.compare import PviAgreement
from evaluator.suites.in_context_pvi.report import MEANINGS
from evaluator.suites.in_context_pvi.schema import PVI_DEFINITIONS, PviDefinition

Strengths = dict[str, dict[str, Any]]
"""Coefficient -> a row of PVI_STRENGTHS."""


class PviView(NamedTuple):
    """The agreement between models under one definition of PVI."""

    definition: PviDefinition
    meaning: str
    models: Triangle  # mean Pearson's correlation of every two
    datasets: list[tuple[str, Strengths]]
    over_all: Strengths


def pvi_views(agreement: PviAgreement | None, models: Sequence[str], datasets: Sequence[str]) -> list[PviView]:
    """A view a definition; none where nothing was compared.

    Args:
        models: in the order of rows and columns.
        datasets: in the order of rows.
    """
    if agreement is None:
        return []
    present = set(agreement.models["definition"])
    return [_view(agreement, name, models, datasets) for name in PVI_DEFINITIONS if name in present]


def _view(
    agreement: PviAgreement, definition: PviDefinition, models: Sequence[str], datasets: Sequence[str]
) -> PviView:
    by_pair, by_dataset, over_all = (
        table.filter(definition=definition) for table in (agreement.by_pair, agreement.by_dataset, agreement.over_all)
    )
    rows = [(name, _strengths(by_dataset.filter(dataset=name))) for name in datasets]
    measured = [(name, row) for name, row in rows if row]
    return PviView(definition, MEANINGS[definition], _triangle(by_pair, models), measured, _strengths(over_all))


def _triangle(by_pair: pl.DataFrame, models: Sequence[str]) -> Triangle:
    pairs = by_pair.rename({"first": "a", "second": "b", "mean": "rho", "n": "n_points"})
    cells = pairs.with_columns(p_value=pl.lit(None), reason=pl.lit("undefined in every run"))
    return Triangle("runs", None, *pair_cells(cells, models))


def _strengths(rows: pl.DataFrame) -> Strengths:
    return {row["coefficient"]: row for row in rows.iter_rows(named=True)}
