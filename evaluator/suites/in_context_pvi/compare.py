"""How far several models agree about which queries are hard.

Lu et al. 2023, section 5.1, between models.
"""

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from evaluator.compare.runs import ComparedRun
from evaluator.suites.in_context_pvi.consistency import case_means, strengths
from evaluator.suites.in_context_pvi.schema import PVI_ORDERS, PVI_PAIRS, PVI_RUN
from evaluator.suites.in_context_pvi.stability import COEFFICIENTS, consistency_table, models_table


class PviAgreement(NamedTuple):
    """Correlations of PVI between models, and what they come to."""

    models: pl.DataFrame  # schemas.pvi.PVI_MODELS
    consistency: pl.DataFrame  # schemas.pvi.PVI_CONSISTENCY, across models alone
    # Over the suite's own demonstration sets alone: those chosen by PVI are other ones for each model.
    by_pair: pl.DataFrame  # definition, first, second, PVI_STRENGTHS of Pearson's; a case is a run
    by_dataset: pl.DataFrame  # definition, dataset, coefficient, PVI_STRENGTHS; cases as in `consistency`
    over_all: pl.DataFrame  # rows of `consistency`


def pvi_agreement(runs: Sequence[ComparedRun]) -> PviAgreement:
    """How far every two models agree, on the datasets, shots, sets and definitions that all runs have.

    All are runs of the suite pvi that requested the same (require_equal_prompts).
    """
    pvi_of = {run.model: run.table("pvi") for run in runs}
    models = models_table(_in_common(pvi_of))
    consistency = consistency_table(PVI_PAIRS.to_frame(), models)
    is_own = ~pl.col("demonstrations").is_in(PVI_ORDERS)
    own = models.filter(is_own)
    by_pair = strengths(own, r="pearson", by=["definition", "first", "second"])
    return PviAgreement(models, consistency, by_pair, _by_dataset(own), consistency.filter(is_own))


def _in_common(pvi_of: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Without them, means of some pairs would be over other runs than those of others."""
    found = pl.concat(pvi.select(PVI_RUN).unique() for pvi in pvi_of.values())
    common = found.group_by(PVI_RUN).len().filter(len=len(pvi_of))
    return {model: pvi.join(common, on=PVI_RUN, how="semi", maintain_order="left") for model, pvi in pvi_of.items()}


def _by_dataset(models: pl.DataFrame) -> pl.DataFrame:
    found = [
        strengths(case_means(models, by=PVI_RUN, coefficient=name), by=["definition", "dataset"]).with_columns(
            coefficient=pl.lit(name)
        )
        for name in COEFFICIENTS
    ]
    return pl.concat(found)
