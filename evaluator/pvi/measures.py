"""Everything that is measured of in-context PVI: answers and queries go in, tables by name come out."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from evaluator.methods.base import Answers
from evaluator.pvi.agreement import annotators_table, read_annotations
from evaluator.pvi.densities import deciles_table, densities_table
from evaluator.pvi.hardest import hardest_table, mislabelled_table, runs_of_queries
from evaluator.pvi.pvi import pvi_table
from evaluator.pvi.stability import consistency_table, one_way_table, pairs_table, repeated_measures_table
from evaluator.pvi.summary import judged_queries, summary_table
from evaluator.schemas.pvi import PVI_ANNOTATORS


def pvi_measures(answers: Answers, queries: pl.DataFrame, annotations: Sequence[Path] = ()) -> dict[str, pl.DataFrame]:
    """The tables of a run of the suite pvi by the names that they are written under; schemas/pvi.py has the columns.

    Args:
        answers: of the suite pvi.
        queries: schemas.pvi_queries.PVI_QUERIES.
        annotations: files as in pvi/agreement.py; without any, `pvi_annotators` has no rows.

    Raises:
        MetricError: label spaces or gold labels that have no PVI.
        DatasetError: annotations that do not fit.
    """
    annotated = read_annotations(annotations) if annotations else None  # before the work, because names can be wrong
    pvi = pvi_table(answers)
    judged, over_runs, pairs = judged_queries(pvi), runs_of_queries(pvi), pairs_table(pvi)
    summary = summary_table(pvi, judged)
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
    }
