"""Is a query that annotators disagree about hard for a model? PVIs and annotation files go in, correlations come out.

Lu et al. 2023, section 5.4. The files are those of ChaosNLI (Nie et al. 2020, "What Can We Learn from Collective Human
Opinions on Natural Language Inference Data?"): pairs of sentences with the labels of the data set's five annotators
(`old_labels`) and the counts of a hundred others' (`label_count`). They are matched with queries by their two texts.
"""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from evaluator.datasets.parquet_columns import scan_columns
from evaluator.errors import DatasetError
from evaluator.suites.in_context_pvi.consistency import correlations
from evaluator.suites.in_context_pvi.query_schema import PVI_QUERIES_KEY
from evaluator.suites.in_context_pvi.schema import PVI_ANNOTATORS, PVI_ANNOTATORS_KEY

TEXTS = ["premise", "hypothesis"]
ANNOTATIONS = ["old_labels", "label_count"]
MEASURES = ["agreement", "variation_ratio", "entropy"]


def read_annotations(paths: Sequence[Path]) -> pl.DataFrame:
    """premise, hypothesis, `annotations` (a column of the files) and the measures of PVI_ANNOTATORS, of all files.

    With c the counts of labels and N their sum: `agreement` = max c / N, which Lu et al. 2023 correlate with PVI;
    `variation_ratio` = 1 - max c / N (Freeman 1965), so that its correlations have the other sign; `entropy` =
    -sum c/N log2 c/N, in bits.

    Raises:
        DatasetError: a file that cannot be read or lacks a column, or a pair that stands twice.
    """
    rows = pl.concat(scan_columns(path, [*TEXTS, *ANNOTATIONS]).collect() for path in paths)
    if (twice := rows.filter(rows.select(TEXTS).is_duplicated())).height:
        raise DatasetError(
            f"{', '.join(map(str, paths))}: {twice.height} annotated pairs stand in more than one row, the first with "
            f"the premise {twice['premise'][0]!r}. Keep one row of each."
        )
    return pl.concat(_measured(rows, name) for name in ANNOTATIONS)


def annotators_table(pvi: pl.DataFrame, queries: pl.DataFrame, annotations: pl.DataFrame) -> pl.DataFrame:
    """schemas.pvi.PVI_ANNOTATORS of the runs of each dataset that has annotated queries, sorted by its key.

    Args:
        pvi: schemas.pvi.PVI.
        queries: schemas.pvi_queries.PVI_QUERIES, whose text is premise and hypothesis, a line each.
        annotations: read_annotations.

    Raises:
        DatasetError: no query is annotated.
    """
    texts = annotations.with_columns(text=pl.concat_str(TEXTS, separator="\n"))
    found = (
        queries.select(*PVI_QUERIES_KEY, "text")
        .join(texts, on="text")
        .unpivot(MEASURES, index=[*PVI_QUERIES_KEY, "annotations"], variable_name="measure")
    )
    rows = pvi.join(found, on=PVI_QUERIES_KEY)
    if rows.is_empty():
        raise DatasetError(
            f"None of the {annotations.select(TEXTS).unique().height} annotated pairs is a query of "
            f"{', '.join(sorted(set(queries['dataset'])))}: both texts must be equal to the letter. Name the "
            "annotations of these datasets, or leave them out."
        )
    # What is correlated must stand in one column.
    key = [*PVI_ANNOTATORS_KEY, "query_id"]
    both = pl.concat(rows.select(*key, source=pl.lit(name), value=name) for name in ("pvi_bits", "value"))
    tested = correlations(both, across="source", by=PVI_ANNOTATORS_KEY, value="value")
    counts = rows.group_by(PVI_ANNOTATORS_KEY).agg(n_annotated=pl.len())
    table = counts.join(tested, on=PVI_ANNOTATORS_KEY, how="left").with_columns(pl.col("n").fill_null(0))
    return table.select(PVI_ANNOTATORS.names()).cast(PVI_ANNOTATORS).sort(PVI_ANNOTATORS_KEY)


def _measured(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    """The measures by one column of annotations; null for a pair without any."""
    counts = pl.col(name)
    if name == "old_labels":
        counts = counts.list.eval(pl.element().value_counts().struct.field("count"))
    # Sorted, so that sums do not depend on the order in which labels are counted.
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
