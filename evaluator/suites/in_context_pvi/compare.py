"""Correlate the PVIs of several models, to see whether they agree about which queries are hard.

Source: Lu et al. 2023, section 5.1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from evaluator.compare.runs import ComparedRun
from evaluator.suites.in_context_pvi.consistency import case_means, strengths
from evaluator.suites.in_context_pvi.schema import PVI_ORDERS, PVI_PAIRS, PVI_RUN
from evaluator.suites.in_context_pvi.stability import COEFFICIENTS, consistency_table, models_table


class PviAgreement(NamedTuple):
    """Correlations of PVI between models, and summaries of them."""

    models: pl.DataFrame  # schema.PVI_MODELS
    consistency: pl.DataFrame  # schema.PVI_CONSISTENCY, across models only
    # The next three only have the suite's demonstration sets, because sets chosen by PVI differ between models.
    by_pair: pl.DataFrame  # definition, first, second, PVI_STRENGTHS of Pearson's; a case is a run
    by_dataset: pl.DataFrame  # definition, dataset, coefficient, PVI_STRENGTHS; cases as in `consistency`
    over_all: pl.DataFrame  # rows of `consistency`


def pvi_agreement(runs: Sequence[ComparedRun]) -> PviAgreement:
    """Correlate every two models on the datasets, shots, sets and definitions that all runs have.

    All runs are of the suite pvi and have the same prompts (require_equal_prompts).
    """
    pvi_of = {run.model: run.table("pvi") for run in runs}
    models = models_table(_in_common(pvi_of))
    consistency = consistency_table(PVI_PAIRS.to_frame(), models)
    is_of_suite = ~pl.col("demonstrations").is_in(PVI_ORDERS)
    models_of_suite = models.filter(is_of_suite)
    by_pair = strengths(models_of_suite, r="pearson", by=["definition", "first", "second"])
    return PviAgreement(models, consistency, by_pair, _by_dataset(models_of_suite), consistency.filter(is_of_suite))


def _in_common(pvi_of: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Keep the runs that all models have, so that means of all pairs are over the same runs."""
    runs = pl.concat(pvi.select(PVI_RUN).unique() for pvi in pvi_of.values())
    common = runs.group_by(PVI_RUN).len().filter(len=len(pvi_of))
    return {model: pvi.join(common, on=PVI_RUN, how="semi", maintain_order="left") for model, pvi in pvi_of.items()}


def _by_dataset(models: pl.DataFrame) -> pl.DataFrame:
    summaries = [
        strengths(case_means(models, by=PVI_RUN, coefficient=name), by=["definition", "dataset"]).with_columns(
            coefficient=pl.lit(name)
        )
        for name in COEFFICIENTS
    ]
    return pl.concat(summaries)
