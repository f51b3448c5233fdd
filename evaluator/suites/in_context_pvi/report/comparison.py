"""Build the section of a comparison page about the agreement of models on PVI. Nothing is computed here."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from evaluator.compare.report_correlations import Triangle, pair_cells
from evaluator.compare.runs import ComparedRun
from evaluator.report.section import PackageFile, Section
from evaluator.report.tables import dataset_order
from evaluator.suites.in_context_pvi.correlations import PviAgreement
from evaluator.suites.in_context_pvi.report.sections import MEANINGS
from evaluator.suites.in_context_pvi.schema import PVI_DEFINITIONS, PviDefinition

Strengths = dict[str, dict[str, Any]]
"""Coefficient -> a row of PVI_STRENGTHS."""


class PviView(NamedTuple):
    """The agreement between models under one definition of PVI."""

    definition: PviDefinition
    meaning: str
    models: Triangle  # mean Pearson's correlation of every two models
    datasets: list[tuple[str, Strengths]]
    over_all: Strengths


class PviComparisonContext(NamedTuple):
    """The agreement between models under each definition."""

    views: Sequence[PviView]
    model_titles: Mapping[str, str]  # model -> its number and name


def pvi_comparison_sections(agreement: PviAgreement, runs: Sequence[ComparedRun]) -> Iterator[Section]:
    """Yield the section about the agreement between models."""
    models = [run.model for run in runs]
    datasets = dataset_order(agreement.models, runs[0].record.prompts.datasets)
    present = set(agreement.models["definition"])
    views = [_view(agreement, name, models, datasets) for name in PVI_DEFINITIONS if name in present]
    yield Section(
        anchor="pvi-models",
        title="Does PVI agree between models?",
        subtitle="Lu et al. 2023, section 5.1",
        navigation="PVI",
        template=PackageFile("evaluator.suites.in_context_pvi", "templates/comparison.html"),
        context=PviComparisonContext(views, {run.model: f"{run.number} {run.model}" for run in runs}),
        datasets=tuple(datasets),
    )


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
