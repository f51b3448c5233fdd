"""Correlate PVI with how much human annotators agree about the same queries.

Lu et al. 2023, section 5.4. The files are those of ChaosNLI (Nie et al. 2020, "What Can We Learn from Collective Human
Opinions on Natural Language Inference Data?"): pairs of sentences with the labels of the five annotators of the
data set (`old_labels`) and the label counts of a hundred others (`label_count`). They are matched with queries by text.
"""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from evaluator.datasets.tables import read_parquet
from evaluator.errors import DatasetError
from evaluator.suites.base import declared
from evaluator.suites.in_context_pvi.correlations import correlations
from evaluator.suites.in_context_pvi.schema import PVI_ANNOTATORS, PVI_ANNOTATORS_KEY, PVI_QUERIES_KEY

TEXTS = ["premise", "hypothesis"]
ANNOTATIONS = ["old_labels", "label_count"]
MEASURES = ["agreement", "variation_ratio", "entropy"]


def read_annotations(paths: Sequence[Path]) -> pl.DataFrame:
    """Read annotation files and measure how much annotators agree about each pair of sentences.

    Returns premise, hypothesis, `annotations` (a column of the files) and, with c the counts of labels and N their sum,
    the columns `agreement` = max c / N, which Lu et al. 2023 correlate with PVI; `variation_ratio` = 1 - max c / N
    (Freeman 1965), so that its correlations have the other sign; `entropy` = -sum c/N log2 c/N, in bits.

    Raises:
        DatasetError: a file that cannot be read or lacks a column, or a pair in more than one row.
    """
    rows = pl.concat(read_parquet(path, [*TEXTS, *ANNOTATIONS]) for path in paths)
    if (repeated := rows.filter(rows.select(TEXTS).is_duplicated())).height:
        raise DatasetError(
            f"{', '.join(map(str, paths))}: {repeated.height} annotated pairs are in more than one row, the first with "
            f"the premise {repeated['premise'][0]!r}. Keep one row of each."
        )
    return pl.concat(_measured(rows, name) for name in ANNOTATIONS)


def annotators_table(pvi: pl.DataFrame, queries: pl.DataFrame, annotations: pl.DataFrame) -> pl.DataFrame:
    """Correlate PVI with each measure of agreement, for runs of datasets that have annotated queries.

    Args:
        pvi: schema.PVI.
        queries: schema.PVI_QUERIES, whose text is premise and hypothesis, a line each.
        annotations: read_annotations.

    Returns:
        schema.PVI_ANNOTATORS, sorted by its key.

    Raises:
        DatasetError: no query is annotated.
    """
    texts = annotations.with_columns(text=pl.concat_str(TEXTS, separator="\n"))
    measures = (
        queries.select(*PVI_QUERIES_KEY, "text")
        .join(texts, on="text")
        .unpivot(MEASURES, index=[*PVI_QUERIES_KEY, "annotations"], variable_name="measure")
    )
    rows = pvi.join(measures, on=PVI_QUERIES_KEY)
    if rows.is_empty():
        raise DatasetError(
            f"None of the {annotations.select(TEXTS).unique().height} annotated pairs is a query of "
            f"{', '.join(sorted(set(queries['dataset'])))}: premise and hypothesis must match exactly. Give "
            "annotations of these datasets, or none."
        )
    # `correlations` compares levels within one column: PVI and the measure become two levels of `source`.
    key = [*PVI_ANNOTATORS_KEY, "query_id"]
    both = pl.concat(rows.select(*key, source=pl.lit(name), value=name) for name in ("pvi_bits", "value"))
    tested = correlations(both, across="source", by=PVI_ANNOTATORS_KEY, value="value")
    counts = rows.group_by(PVI_ANNOTATORS_KEY).agg(n_annotated=pl.len())
    table = counts.join(tested, on=PVI_ANNOTATORS_KEY, how="left").with_columns(pl.col("n").fill_null(0))
    return declared(table, PVI_ANNOTATORS, PVI_ANNOTATORS_KEY)


def _measured(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    """Compute the measures from one column of annotations; a pair without annotations has no row."""
    counts = pl.col(name)
    if name == "old_labels":
        counts = counts.list.eval(pl.element().value_counts().struct.field("count"))
    # Sorted, so that the last digit of a sum does not depend on the order of labels.
    counts = counts.cast(pl.List(pl.Float64)).list.eval(pl.element().filter(pl.element() > 0).sort())
    shares = counts.list.eval(pl.element() / pl.element().sum())
    terms = pl.col("shares").list.eval(-pl.element() * pl.element().log(2))
    annotated = rows.select(*TEXTS, shares=shares).filter(pl.col("shares").list.len() > 0)
    return annotated.select(
        *TEXTS,
        annotations=pl.lit(name),
        agreement=pl.col("shares").list.max(),
        variation_ratio=1 - pl.col("shares").list.max(),
        entropy=terms.list.sum(),
    )
