"""Does a query keep its PVI behind other demonstrations, with more of them, under another model? PVIs in, tables out.

Sources: Lu et al. 2023, sections 5.1 (correlations; table 2, figure 3) and 5.2 (analysis of variance; tables 3, 15).
"""

from collections.abc import Mapping

import polars as pl

from evaluator.statistics.anova import one_way_by, repeated_measures_by
from evaluator.suites.in_context_pvi.consistency import case_means, correlations, strengths
from evaluator.suites.in_context_pvi.schema import (
    PVI_CONSISTENCY,
    PVI_CONSISTENCY_KEY,
    PVI_MODELS,
    PVI_MODELS_KEY,
    PVI_PAIRS,
    PVI_PAIRS_KEY,
    PVI_RUN,
)

COEFFICIENTS = ("pearson", "spearman")
_RUN = ["n_shots", "demonstration_set"]
_CASE = ["dataset", "demonstrations", "definition"]
"""Runs behind demonstrations of another source are not compared with these: they differ by more than a draw."""


def pairs_table(pvi: pl.DataFrame) -> pl.DataFrame:
    """schemas.pvi.PVI_PAIRS: every two runs of a dataset behind demonstrations of one source under one definition,
    sorted by its key.

    Args:
        pvi: schemas.pvi.PVI.
    """
    runs = (
        pvi.select("n_shots", "demonstration_set").unique().sort("n_shots", "demonstration_set").with_row_index("run")
    )
    numbered = pvi.join(runs, on=["n_shots", "demonstration_set"])
    # One by one, because pairs of rows are many times the rows.
    cases = [correlations(own, across="run", by=_CASE) for own in numbered.partition_by(_CASE, maintain_order=True)]
    pairs = pl.concat(cases)
    for end in ("first", "second"):
        named = {"run": end} | {name: f"{end}_{name}" for name in _RUN}
        pairs = pairs.join(runs.with_columns(pl.col("run").cast(pl.String)).rename(named), on=end)
    same_shots = pl.col("first_n_shots") == pl.col("second_n_shots")
    same_set = pl.col("first_demonstration_set") == pl.col("second_demonstration_set")
    across = pl.when(same_shots).then(pl.lit("sets")).when(same_set).then(pl.lit("shots")).otherwise(pl.lit("both"))
    return pairs.with_columns(across=across).select(PVI_PAIRS.names()).cast(PVI_PAIRS).sort(PVI_PAIRS_KEY)


def models_table(pvi_of: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """schemas.pvi.PVI_MODELS: every two models on the queries they share, run by run; sorted by its key.

    Args:
        pvi_of: model -> schemas.pvi.PVI. Queries and demonstration sets are known by their numbers, so that all must
            come from one store. Demonstrations that were chosen by PVI are each model's own.
    """
    columns = [*PVI_RUN, "query_id", "pvi_bits"]
    rows = pl.concat(pvi.select(*columns, model=pl.lit(name)) for name, pvi in pvi_of.items())
    return correlations(rows, across="model", by=PVI_RUN).cast(PVI_MODELS).sort(PVI_MODELS_KEY)


def consistency_table(pairs: pl.DataFrame, models: pl.DataFrame | None = None) -> pl.DataFrame:
    """schemas.pvi.PVI_CONSISTENCY: how strong the correlations are over all cases of demonstrations of one source,
    sorted by its key.

    A case is, as in table 2, a dataset and a number of shots across demonstration sets, a dataset and a set across
    numbers of shots, or a run across models; its pairs are averaged before cases are counted.

    Args:
        pairs: schemas.pvi.PVI_PAIRS.
        models: schemas.pvi.PVI_MODELS, where several were compared.
    """
    compared = {
        "sets": (pairs.filter(across="sets"), [*_CASE, "first_n_shots"]),
        "shots": (pairs.filter(across="shots"), [*_CASE, "first_demonstration_set"]),
    }
    if models is not None:
        compared["models"] = (models, PVI_RUN)
    found = [
        strengths(case_means(rows, by=case, coefficient=coefficient), by=["demonstrations", "definition"]).with_columns(
            across=pl.lit(across), coefficient=pl.lit(coefficient)
        )
        for across, (rows, case) in compared.items()
        for coefficient in COEFFICIENTS
    ]
    return pl.concat(found).select(PVI_CONSISTENCY.names()).cast(PVI_CONSISTENCY).sort(PVI_CONSISTENCY_KEY)


def one_way_table(summary: pl.DataFrame) -> pl.DataFrame:
    """dataset, demonstrations, definition and ONE_WAY of anova.py, as published: groups are demonstration sets.

    What is compared are mean PVIs of right predictions, one a run. A dataset without any has no row.

    Args:
        summary: schemas.pvi.PVI_SUMMARY.
    """
    return one_way_by(summary, by=_CASE, condition="demonstration_set", value="right_pvi")


def repeated_measures_table(pvi: pl.DataFrame) -> pl.DataFrame:
    """dataset, demonstrations, n_shots, definition and REPEATED_MEASURES of anova.py: the same
    queries under every set.

    Args:
        pvi: schemas.pvi.PVI.
    """
    by = ["dataset", "demonstrations", "n_shots", "definition"]
    return repeated_measures_by(pvi, by=by, condition="demonstration_set", value="pvi_bits")
