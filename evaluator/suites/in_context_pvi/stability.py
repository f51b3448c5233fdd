"""Compute how stable PVI is across demonstration sets, numbers of shots and models.

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
"""Runs are compared within a case: demonstrations of different sources differ by more than a random draw."""


def pairs_table(pvi: pl.DataFrame) -> pl.DataFrame:
    """Correlate every two runs of a dataset, source of demonstrations and definition: schema.PVI_PAIRS, sorted by key.

    Args:
        pvi: schema.PVI.
    """
    runs = pvi.select(_RUN).unique().sort(_RUN).with_row_index("run")
    numbered = pvi.join(runs, on=_RUN)
    # One case at a time, because pairs of rows take many times the memory of rows.
    cases = [correlations(rows, across="run", by=_CASE) for rows in numbered.partition_by(_CASE, maintain_order=True)]
    pairs = pl.concat(cases)
    # From the numbers of the two runs back to their shots and sets.
    for end in ("first", "second"):
        named = {"run": end} | {name: f"{end}_{name}" for name in _RUN}
        pairs = pairs.join(runs.with_columns(pl.col("run").cast(pl.String)).rename(named), on=end)
    same_shots = pl.col("first_n_shots") == pl.col("second_n_shots")
    same_set = pl.col("first_demonstration_set") == pl.col("second_demonstration_set")
    across = pl.when(same_shots).then(pl.lit("sets")).when(same_set).then(pl.lit("shots")).otherwise(pl.lit("both"))
    return pairs.with_columns(across=across).select(PVI_PAIRS.names()).cast(PVI_PAIRS).sort(PVI_PAIRS_KEY)


def models_table(pvi_of: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Correlate every two models over the queries they share, run by run: schema.PVI_MODELS, sorted by its key.

    Args:
        pvi_of: model -> schema.PVI. Queries and demonstration sets are matched by their numbers, so that all must
            come from equal stores. Demonstrations chosen by PVI differ between models.
    """
    columns = [*PVI_RUN, "query_id", "pvi_bits"]
    rows = pl.concat(pvi.select(*columns, model=pl.lit(name)) for name, pvi in pvi_of.items())
    return correlations(rows, across="model", by=PVI_RUN).cast(PVI_MODELS).sort(PVI_MODELS_KEY)


def consistency_table(pairs: pl.DataFrame, models: pl.DataFrame | None = None) -> pl.DataFrame:
    """Summarise the correlations over all cases of one source of demonstrations: schema.PVI_CONSISTENCY, sorted by key.

    As in table 2 a case is a dataset and a number of shots across demonstration sets, a dataset and a set across
    numbers of shots, or a run across models; its pairs are averaged before cases are counted.

    Args:
        pairs: schema.PVI_PAIRS.
        models: schema.PVI_MODELS, where several were compared.
    """
    compared = {
        "sets": (pairs.filter(across="sets"), [*_CASE, "first_n_shots"]),
        "shots": (pairs.filter(across="shots"), [*_CASE, "first_demonstration_set"]),
    }
    if models is not None:
        compared["models"] = (models, PVI_RUN)
    summaries = [
        strengths(case_means(rows, by=case, coefficient=coefficient), by=["demonstrations", "definition"]).with_columns(
            across=pl.lit(across), coefficient=pl.lit(coefficient)
        )
        for across, (rows, case) in compared.items()
        for coefficient in COEFFICIENTS
    ]
    return pl.concat(summaries).select(PVI_CONSISTENCY.names()).cast(PVI_CONSISTENCY).sort(PVI_CONSISTENCY_KEY)


def one_way_table(summary: pl.DataFrame) -> pl.DataFrame:
    """Test, as published, whether mean PVIs of right predictions, one for each run, differ between demonstration sets.

    Returns dataset, demonstrations, definition and ONE_WAY of anova.py. A dataset without such means has no row.

    Args:
        summary: schema.PVI_SUMMARY.
    """
    return one_way_by(summary, by=_CASE, condition="demonstration_set", value="right_pvi")


def repeated_measures_table(pvi: pl.DataFrame) -> pl.DataFrame:
    """Test whether the PVIs of the same queries differ between demonstration sets.

    Returns dataset, demonstrations, n_shots, definition and REPEATED_MEASURES of anova.py.

    Args:
        pvi: schema.PVI.
    """
    by = ["dataset", "demonstrations", "n_shots", "definition"]
    return repeated_measures_by(pvi, by=by, condition="demonstration_set", value="pvi_bits")
