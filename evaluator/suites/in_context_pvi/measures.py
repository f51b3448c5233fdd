"""Compute all tables of a run of in-context PVI from its scores."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from evaluator.methods.base import ScoredRequests
from evaluator.suites.in_context_pvi.agreement import annotators_table, read_annotations
from evaluator.suites.in_context_pvi.chosen_demonstrations import training_pvi
from evaluator.suites.in_context_pvi.demonstration_choice import (
    chosen_table,
    demonstrations_table,
    training_counts,
    tries_by_source,
)
from evaluator.suites.in_context_pvi.densities import deciles_table, densities_table
from evaluator.suites.in_context_pvi.hardest import hardest_table, mislabelled_table, runs_of_queries
from evaluator.suites.in_context_pvi.options import PviSource
from evaluator.suites.in_context_pvi.prompts import INPUT
from evaluator.suites.in_context_pvi.pvi import pvi_table
from evaluator.suites.in_context_pvi.query_schema import PVI_CANDIDATES
from evaluator.suites.in_context_pvi.schema import PVI_ANNOTATORS
from evaluator.suites.in_context_pvi.stability import (
    consistency_table,
    one_way_table,
    pairs_table,
    repeated_measures_table,
)
from evaluator.suites.in_context_pvi.summary import judged_queries, summary_table
from evaluator.suites.in_context_pvi.total_error import total_error_tables


def pvi_measures(
    scored: ScoredRequests,
    queries: pl.DataFrame,
    annotations: Sequence[Path] = (),
    *,
    source: PviSource = "random",
    seed: int = 0,
    candidates: pl.DataFrame | None = None,
) -> dict[str, pl.DataFrame]:
    """Compute the tables of a run of the suite pvi, by file name; schema.py has the columns.

    Args:
        scored: of the suite pvi.
        queries: query_schema.PVI_QUERIES.
        annotations: files as in agreement.py; without any, `pvi_annotators` has no rows.
        source: where the suite's demonstration sets come from.
        seed: of the predictions that are drawn.
        candidates: query_schema.PVI_CANDIDATES, where methods chose demonstrations by PVI.

    Raises:
        MetricError: label spaces or gold labels that have no PVI.
        DatasetError: annotations that do not fit.
    """
    annotated = read_annotations(annotations) if annotations else None  # first, because it can raise
    pvi = pvi_table(scored, source, seed=seed)
    # Only runs with the suite's sets: other runs have demonstrations that were chosen for their PVI.
    over_runs = runs_of_queries(pvi.filter(demonstrations=source))
    judged, pairs = judged_queries(pvi), pairs_table(pvi)
    summary = summary_table(pvi, judged, seed=seed)
    return {
        "pvi": pvi,
        "pvi_summary": summary,
        "pvi_deciles": deciles_table(judged),
        "pvi_densities": densities_table(judged),
        "pvi_pairs": pairs,
        "pvi_consistency": consistency_table(pairs),
        "pvi_one_way": one_way_table(summary),
        "pvi_repeated_measures": repeated_measures_table(pvi),
        "pvi_hardest": hardest_table(over_runs, queries),
        "pvi_mislabelled": mislabelled_table(over_runs, queries),
        "pvi_annotators": PVI_ANNOTATORS.to_frame() if annotated is None else annotators_table(pvi, queries, annotated),
        **dict(total_error_tables(pvi, source)),
        **_demonstration_tables(scored, pvi, source, PVI_CANDIDATES.to_frame() if candidates is None else candidates),
    }


def _demonstration_tables(
    scored: ScoredRequests, pvi: pl.DataFrame, source: PviSource, candidates: pl.DataFrame
) -> dict[str, pl.DataFrame]:
    n_training = candidates.select("dataset", "n_training").unique().sort("dataset")
    measured = training_pvi(scored)
    n_labels = scored.rows.filter(part=INPUT).select("dataset", pl.col("label_names").list.len()).unique().collect()
    return {
        "pvi_demonstrations": demonstrations_table(
            pvi,
            dict(n_labels.iter_rows()),
            training_counts(measured, n_training),
            tries_by_source(scored, source),
        ),
        "pvi_chosen": chosen_table(scored, measured, candidates),
    }
