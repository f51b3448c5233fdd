"""Correlate PVI with how much human annotators agree about the same queries, and with PVI that was computed elsewhere.

Lu et al. 2023, section 5.4. Files are matched with queries by text. Their layouts are those of ChaosNLI (Nie et al.
2020, "What Can We Learn from Collective Human Opinions on Natural Language Inference Data?"), as Parquet or as
released; of SNLI and MultiNLI as released, with five annotators a pair; and any table with the column `text`.
"""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from evaluator.datasets.tables import read_table
from evaluator.errors import DatasetError
from evaluator.suites.base import declared
from evaluator.suites.in_context_pvi.correlations import correlations
from evaluator.suites.in_context_pvi.schema import PVI_ANNOTATORS, PVI_ANNOTATORS_KEY, PVI_QUERIES_KEY, PVI_RUN

TEXTS = (("premise", "hypothesis"), ("sentence1", "sentence2"), ("text",))
"""Columns with the texts of a query, a line each: of ChaosNLI, of SNLI and MultiNLI, of other data."""

ANNOTATIONS = ("old_labels", "annotator_labels", "label_count")
"""Columns of annotations: lists of labels, or the counts of each label (`label_count`)."""

ANNOTATORS = [f"label{number}" for number in range(1, 6)]
"""Columns of single annotators, in tables of SNLI and MultiNLI: the same as annotator_labels."""

FOREIGN, FOREIGN_PVI = "pvi", "foreign_pvi"
"""Column, and measure, of PVI that another program computed, such as that of a fine-tuned model (tables 4 and 5)."""


def read_annotations(paths: Sequence[Path]) -> pl.DataFrame:
    """Read annotation files and measure how much annotators agree about each query.

    Returns `text`, `annotations` (a column of the files; of FOREIGN the file's stem), `measure` and `value`. With c the
    counts of labels and N their sum, measures are `agreement` = max c / N, which Lu et al. 2023 correlate with PVI;
    `variation_ratio` = 1 - max c / N (Freeman 1965), so that its correlations have the other sign; `entropy` =
    -sum c/N log2 c/N, in bits; and `foreign_pvi`, as it is. Equal rows count once.

    Raises:
        DatasetError: a file that cannot be read or lacks columns, or a text with different annotations.
    """
    measured = pl.concat(_annotated(path) for path in paths).unique(maintain_order=True)
    repeated = measured.filter(measured.select("text", "annotations", "measure").is_duplicated())["text"]
    if len(repeated):
        raise DatasetError(
            f"{', '.join(map(str, paths))}: {repeated.n_unique()} annotated texts have several rows that differ, the "
            f"first {repeated[0]!r}. Keep one row of each."
        )
    return measured


def annotators_table(pvi: pl.DataFrame, queries: pl.DataFrame, annotations: pl.DataFrame) -> pl.DataFrame:
    """Correlate PVI with each measure of agreement, for runs of datasets that have annotated queries.

    PVI of other programs is correlated with the measures too, as a run whose `demonstrations` are the file's stem.

    Args:
        pvi: schema.PVI.
        queries: schema.PVI_QUERIES, whose text is its fields, a line each.
        annotations: read_annotations.

    Returns:
        schema.PVI_ANNOTATORS, sorted by its key.

    Raises:
        DatasetError: no query is annotated.
    """
    measures = queries.select(*PVI_QUERIES_KEY, "text").join(annotations, on="text").drop("text")
    foreign = measures.filter(measure=FOREIGN_PVI).with_columns(
        demonstrations="annotations", n_shots=0, demonstration_set=0, definition=pl.lit("paper"), pvi_bits="value"
    )
    columns = [*PVI_RUN, "query_id", "pvi_bits"]
    runs = pl.concat([pvi.select(columns), foreign.select(columns).cast(pvi.select(columns).schema)])
    rows = runs.join(measures, on=PVI_QUERIES_KEY).filter(pl.col("demonstrations") != pl.col("annotations"))
    if rows.is_empty():
        raise DatasetError(
            f"None of the {annotations['text'].n_unique()} annotated texts is a query of "
            f"{', '.join(sorted(set(queries['dataset'])))}: texts must match exactly. Give annotations of these "
            "datasets, or none."
        )
    # `correlations` compares levels within one column: PVI and the measure become two levels of `source`.
    key = [*PVI_ANNOTATORS_KEY, "query_id"]
    both = pl.concat(rows.select(*key, source=pl.lit(name), value=name) for name in ("pvi_bits", "value"))
    tested = correlations(both, across="source", by=PVI_ANNOTATORS_KEY, value="value")
    counts = rows.group_by(PVI_ANNOTATORS_KEY).agg(n_annotated=pl.len())
    table = counts.join(tested, on=PVI_ANNOTATORS_KEY, how="left").with_columns(pl.col("n").fill_null(0))
    of_sets = [name for name in PVI_ANNOTATORS_KEY if name != "demonstration_set"]
    mean = pl.col("pearson", "spearman").mean().over(of_sets).name.suffix("_over_sets")
    return declared(table.with_columns(mean), PVI_ANNOTATORS, PVI_ANNOTATORS_KEY)


def _annotated(path: Path) -> pl.DataFrame:
    """Return the rows of read_annotations of one file."""
    rows = read_table(path)
    if isinstance(rows.schema.get("example"), pl.Struct):  # ChaosNLI as released
        rows = rows.drop("uid", strict=False).unnest("example")
    if {*ANNOTATORS} <= {*rows.columns}:
        rows = rows.with_columns(annotator_labels=pl.concat_list(ANNOTATORS))
    texts = next((names for names in TEXTS if {*names} <= {*rows.columns}), None)
    present = [name for name in (*ANNOTATIONS, FOREIGN) if name in rows.columns]
    if texts is None or not present:
        wanted = " or ".join(map(" and ".join, TEXTS)) if texts is None else ", ".join((*ANNOTATIONS, FOREIGN))
        raise DatasetError(f"{path} has no columns {wanted}. It has: {', '.join(rows.columns)}.")
    rows = rows.with_columns(text=pl.concat_str(texts, separator="\n"))
    try:
        return pl.concat(_measured(rows, name, path.stem) for name in present)
    except pl.exceptions.PolarsError as error:
        raise DatasetError(
            f"{path}: the columns {', '.join(present)} cannot be read as annotations: {error}"
        ) from error


def _measured(rows: pl.DataFrame, name: str, stem: str) -> pl.DataFrame:
    """Compute the measures from one column; a text without annotations has no row."""
    if name == FOREIGN:
        values = rows.select(
            "text", annotations=pl.lit(stem), measure=pl.lit(FOREIGN_PVI), value=pl.col(name).cast(float)
        )
        return values.filter(pl.col("value").is_finite())
    counts = pl.col(name)
    if name != "label_count":
        labels = counts.cast(pl.List(pl.String)).list.eval(pl.element().filter(pl.element().str.len_chars() > 0))
        counts = labels.list.eval(pl.element().value_counts().struct.field("count"))
    # Sorted, so that the last digit of a sum does not depend on the order of labels.
    counts = counts.cast(pl.List(pl.Float64)).list.eval(pl.element().filter(pl.element() > 0).sort())
    shares = counts.list.eval(pl.element() / pl.element().sum())
    terms = pl.col("shares").list.eval(-pl.element() * pl.element().log(2))
    annotated = rows.select("text", shares=shares).filter(pl.col("shares").list.len() > 0)
    measures = annotated.select(
        "text",
        annotations=pl.lit(name),
        agreement=pl.col("shares").list.max(),
        variation_ratio=1 - pl.col("shares").list.max(),
        entropy=terms.list.sum(),
    )
    return measures.unpivot(index=["text", "annotations"], variable_name="measure")
