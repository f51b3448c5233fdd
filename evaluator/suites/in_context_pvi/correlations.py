"""Correlate PVI between demonstration sets, numbers of shots and models, and with the agreement of human annotators.

Agreement of PVI (Lu et al. 2023, section 5.1): Pearson correlations of two runs, and their mean, their median and the
shares of strong and weak correlations over all cases (table 2, figure 3). Spearman's correlation is computed too,
because a few queries of very low PVI can determine Pearson's. Section 5.2 tests by analysis of variance whether PVI
differs between demonstration sets (tables 3 and 15).

Annotators (section 5.4): PVI is correlated with the agreement of annotators on the same queries, and with PVI that was
computed by another program. The rows of annotation files are matched with queries by text, ignoring white space. A file
has the layout of ChaosNLI (Nie et al. 2020, "What Can We Learn from Collective Human Opinions on Natural Language
Inference Data?") as released or as Parquet, of SNLI and MultiNLI as released, with five annotators per pair, or it is a
table with the column `text`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from evaluator.compare.runs import ComparedRun
from evaluator.datasets.tables import read_table
from evaluator.errors import DatasetError
from evaluator.schemas import declared
from evaluator.statistics.correlation import correlation_p
from evaluator.statistics.variance_components import one_way_by, repeated_measures_by, require_one_each
from evaluator.suites.in_context_pvi import schema

STRONG, WEAK = 0.6, 0.3
"""Correlations above STRONG are strong, correlations below WEAK are weak (table 2)."""

COEFFICIENTS = ("pearson", "spearman")
_RUN = ["n_shots", "demonstration_set"]


def correlations(rows: pl.DataFrame, *, across: str, by: Sequence[str], value: str = "pvi_bits") -> pl.DataFrame:
    """Correlate the values of every two levels of `across` over the queries that both have, within each group.

    Args:
        rows: columns `by`, `across`, query_id and `value`, with one row for each group, level and query. Rows whose
            value is not finite are left out.
        across: column of levels, such as "demonstration_set", "n_shots" or "model".
        by: columns of a group.
        value: column of floats.

    Returns the columns `by` and schema.PVI_CORRELATIONS, sorted by group and levels. For Spearman's correlation, ties
    have the mean of their ranks. Raises MetricError if a query has two rows in one group and level.
    """
    key = [*by, across, "query_id"]
    require_one_each(rows, key)
    finite = rows.select(*key, value).filter(pl.col(value).is_finite()).sort(key)
    other = pl.col(f"{value}_other")
    # Join rows of the same query and group, and keep each pair of levels once.
    joined = finite.join(finite, on=[*by, "query_id"], suffix="_other", maintain_order="left")
    pairs = joined.filter(pl.col(across) < pl.col(f"{across}_other"))
    groups = [*by, across, f"{across}_other"]
    # For equal values pl.corr returns a small number instead of NaN, because their mean is rounded.
    varies = (pl.col(value).n_unique() > 1) & (other.n_unique() > 1)
    columns = {
        "n": pl.len().cast(pl.Int64),
        "pearson": pl.when(varies).then(pl.corr(value, other)).otherwise(float("nan")),
        "spearman": pl.corr(pl.col(value).rank("average"), other.rank("average")),
    }
    table = pairs.group_by(groups, maintain_order=True).agg(**columns).sort(groups)
    table, n = table.rename({across: "first", f"{across}_other": "second"}), table["n"].to_numpy()
    p_values = {f"{name}_p": correlation_p(table[name].to_numpy(), n) for name in COEFFICIENTS}
    return table.with_columns(**p_values).select(*by, *schema.PVI_CORRELATIONS).cast(schema.PVI_CORRELATIONS)


def strengths(cases: pl.DataFrame, *, r: str = "r", by: Sequence[str]) -> pl.DataFrame:
    """Summarise the correlations of many cases (Lu et al. 2023, table 2).

    Args:
        cases: a row for each case.
        r: column of correlations; NaN if undefined.
        by: columns of a group of cases.

    Returns the columns `by` and schema.PVI_STRENGTHS: a row for each group, sorted.
    """
    defined = pl.col(r).fill_nan(None)
    columns = {
        "n": defined.count(),
        "n_undefined": defined.null_count(),
        "mean": defined.mean(),
        "median": defined.median(),
        "strong_share": (defined > STRONG).mean(),
        "weak_share": (defined < WEAK).mean(),
    }
    table = cases.group_by(by, maintain_order=True).agg(**columns).sort(by)
    return table.cast({name: schema.PVI_STRENGTHS[name] for name in columns})


def case_strengths(pairs: pl.DataFrame, case: Sequence[str], *, by: Sequence[str]) -> pl.DataFrame:
    """Average the correlations over the pairs of each case, and summarise the cases of each group.

    In the first row of table 2, for example, a case has three pairs: every two of three demonstration sets. If a
    correlation is NaN, the mean is NaN and the case is undefined.

    Args:
        pairs: the columns `case`, and schema.PVI_CORRELATIONS.
        case: columns that identify a case.
        by: columns of a group of cases.

    Returns the columns `by`, `coefficient` and schema.PVI_STRENGTHS, sorted by coefficient and group.
    """
    cases = pairs.group_by(case, maintain_order=True).agg(pl.col(COEFFICIENTS).mean()).sort(case)
    return pl.concat(strengths(cases, r=name, by=by).with_columns(coefficient=pl.lit(name)) for name in COEFFICIENTS)


def pairs_table(pvi: pl.DataFrame) -> pl.DataFrame:
    """Return schema.PVI_PAIRS, sorted by key: correlations of every two runs that share dataset, source and definition.

    Args:
        pvi: schema.PVI.
    """
    runs = pvi.select(_RUN).unique().sort(_RUN).with_row_index("run")
    # One case at a time, because all pairs of rows would take many times the memory of the rows.
    cases = pvi.join(runs, on=_RUN).partition_by(schema.PVI_CASE, maintain_order=True)
    pairs = pl.concat(correlations(rows, across="run", by=schema.PVI_CASE) for rows in cases)
    # Replace the numbers of the two runs by their shots and sets.
    for end in ("first", "second"):
        named = {"run": end} | {name: f"{end}_{name}" for name in _RUN}
        pairs = pairs.join(runs.with_columns(pl.col("run").cast(pl.String)).rename(named), on=end)
    same_shots = pl.col("first_n_shots") == pl.col("second_n_shots")
    same_set = pl.col("first_demonstration_set") == pl.col("second_demonstration_set")
    across = pl.when(same_shots).then(pl.lit("sets")).when(same_set).then(pl.lit("shots")).otherwise(pl.lit("both"))
    return declared(pairs.with_columns(across=across), schema.PVI_PAIRS, schema.PVI_PAIRS_KEY)


def models_table(pvi_of: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Return schema.PVI_MODELS, sorted by key: correlations of every two models in each run.

    Only runs that all models have are compared, so that the means of all pairs of models are over the same runs.

    Args:
        pvi_of: model -> schema.PVI. Queries and demonstration sets are matched by their numbers, so that all frames
            must come from equal stores. Sets chosen by PVI have the same numbers, but differ between models.
    """
    columns = [*schema.PVI_RUN, "query_id", "pvi_bits"]
    rows = pl.concat(pvi.select(*columns, model=pl.lit(name)) for name, pvi in pvi_of.items())
    rows = rows.filter(pl.col("model").n_unique().over(schema.PVI_RUN) == len(pvi_of))
    return correlations(rows, across="model", by=schema.PVI_RUN).cast(schema.PVI_MODELS).sort(schema.PVI_MODELS_KEY)


def consistency_table(pairs: pl.DataFrame, models: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return schema.PVI_CONSISTENCY, sorted by key: the strength of correlations for each source of demonstrations.

    As in table 2, a case is a dataset and a number of shots for correlations across demonstration sets, a dataset and a
    set across numbers of shots, and a run across models. The pairs of a case are averaged first.

    Args:
        pairs: schema.PVI_PAIRS.
        models: schema.PVI_MODELS, if several models are compared.
    """
    compared = {
        "sets": (pairs.filter(across="sets"), [*schema.PVI_CASE, "first_n_shots"]),
        "shots": (pairs.filter(across="shots"), [*schema.PVI_CASE, "first_demonstration_set"]),
    }
    if models is not None:
        compared["models"] = (models, schema.PVI_RUN)
    summaries = [
        case_strengths(rows, case, by=["demonstrations", "definition"]).with_columns(across=pl.lit(across))
        for across, (rows, case) in compared.items()
    ]
    return declared(pl.concat(summaries), schema.PVI_CONSISTENCY, schema.PVI_CONSISTENCY_KEY)


def one_way_table(summary: pl.DataFrame) -> pl.DataFrame:
    """Test whether the mean PVI of right predictions differs between demonstration sets, by one-way analysis of
    variance.

    This is the published analysis: every run has one value, its mean. A dataset without such means has no row.

    Args:
        summary: schema.PVI_SUMMARY.

    Returns schema.PVI_ONE_WAY.
    """
    return one_way_by(summary, by=schema.PVI_CASE, condition="demonstration_set", value="right_pvi")


def repeated_measures_table(pvi: pl.DataFrame) -> pl.DataFrame:
    """Test whether the PVIs of the same queries differ between demonstration sets, with repeated measures.

    Args:
        pvi: schema.PVI.

    Returns schema.PVI_REPEATED_MEASURES.
    """
    by = schema.PVI_REPEATED_MEASURES_KEY
    return repeated_measures_by(pvi, by=by, condition="demonstration_set", value="pvi_bits")


class PviAgreement(NamedTuple):
    """Correlations of PVI between models, and summaries of them."""

    models: pl.DataFrame  # schema.PVI_MODELS
    consistency: pl.DataFrame  # schema.PVI_CONSISTENCY, across models only
    # The next three have only the suite's demonstration sets, because sets chosen by PVI differ between models.
    by_pair: pl.DataFrame  # definition, first, second, schema.PVI_STRENGTHS (Pearson); a case is a run
    by_dataset: pl.DataFrame  # definition, dataset, coefficient, schema.PVI_STRENGTHS; cases as in `consistency`
    over_all: pl.DataFrame  # rows of `consistency`


def pvi_agreement(runs: Sequence[ComparedRun]) -> PviAgreement:
    """Correlate the PVI of every two models: do they agree on which queries are hard (Lu et al. 2023, section 5.1)?

    Args:
        runs: runs of the suite pvi with equal queries (require_equal_queries). Only datasets, shots, sets and
            definitions that all runs have are compared.
    """
    models = models_table({run.model: run.table("pvi") for run in runs})
    consistency = consistency_table(schema.PVI_PAIRS.to_frame(), models)
    is_of_suite = ~pl.col("demonstrations").is_in(schema.PVI_ORDERS)
    models_of_suite = models.filter(is_of_suite)
    by_pair = strengths(models_of_suite, r="pearson", by=["definition", "first", "second"])
    by_dataset = case_strengths(models_of_suite, schema.PVI_RUN, by=["definition", "dataset"])
    return PviAgreement(models, consistency, by_pair, by_dataset, consistency.filter(is_of_suite))


TEXTS = (("premise", "hypothesis"), ("sentence1", "sentence2"), ("text",))
"""Columns that are joined to the text of a query: in ChaosNLI, in SNLI and MultiNLI, in other tables."""

ANNOTATIONS = ("old_labels", "annotator_labels", "label_count")
"""Columns of annotations: lists of labels, or lists of the counts of labels (`label_count`)."""

ANNOTATORS = [f"label{number}" for number in range(1, 6)]
"""Columns of single annotators in tables of SNLI and MultiNLI; together they are annotator_labels."""

FOREIGN, FOREIGN_PVI = "pvi", "foreign_pvi"
"""Column and measure of PVI that another program computed, for example with a fine-tuned model (tables 4 and 5)."""

MATCHED = pl.col("text").str.normalize("NFC").str.replace_all(r"\s+", " ").str.strip_chars()
"""Text in a normal form. Spaces, line ends and the composition of accents differ between releases of the same data."""


def read_annotations(paths: Sequence[Path]) -> pl.DataFrame:
    """Read annotation files and measure the agreement of annotators on each text.

    With c the counts of a text's labels and N their sum, the measures are

    - `agreement` = max c / N, which Lu et al. 2023 correlate with PVI;
    - `variation_ratio` = 1 - max c / N (Freeman 1965), whose correlations have the opposite sign;
    - `entropy` = -sum c/N log2 c/N, in bits;
    - `foreign_pvi`, the PVI in the file.

    Rows that are equal but for white space are kept once. Returns `text`, `annotations` (column of the file; for
    FOREIGN the stem of the file's name), `measure` and `value`.

    Raises DatasetError for a file that cannot be read or lacks columns, and a text with different annotations.
    """
    is_new = pl.struct(MATCHED, "annotations", "measure", "value").is_first_distinct()
    measured = pl.concat(_annotated(path) for path in paths).filter(is_new)
    repeated = measured.filter(measured.select(MATCHED, "annotations", "measure").is_duplicated())["text"]
    if len(repeated):
        raise DatasetError(
            f"{', '.join(map(str, paths))}: {repeated.n_unique()} annotated texts have several rows that differ, the "
            f"first {repeated[0]!r}. Keep one row of each."
        )
    return measured


def annotators_table(pvi: pl.DataFrame, queries: pl.DataFrame, annotations: pl.DataFrame) -> pl.DataFrame:
    """Correlate PVI with each measure of agreement, for all runs with annotated queries.

    PVI of another program is correlated with the measures too. It is a run whose `demonstrations` is the stem of the
    file's name.

    Args:
        pvi: schema.PVI.
        queries: schema.PVI_QUERIES.
        annotations: as returned by read_annotations.

    Returns:
        schema.PVI_ANNOTATORS, sorted by its key.

    Raises:
        DatasetError: no query is annotated.
    """
    texts = queries.select(*schema.PVI_QUERIES_KEY, MATCHED)
    measures = texts.join(annotations.with_columns(MATCHED), on="text").drop("text")
    foreign = measures.filter(measure=FOREIGN_PVI).with_columns(definition=pl.lit("paper"), pvi_bits="value")
    foreign = foreign.with_columns(demonstrations="annotations", n_shots=0, demonstration_set=0)
    columns = [*schema.PVI_RUN, "query_id", "pvi_bits"]
    runs = pl.concat([pvi.select(columns), foreign.select(columns).cast(pvi.select(columns).schema)])
    # Foreign PVI is not correlated with itself. Only its runs have 0 shots.
    is_itself = (pl.col("n_shots") == 0) & (pl.col("demonstrations") == pl.col("annotations"))
    rows = runs.join(measures, on=schema.PVI_QUERIES_KEY).filter(~is_itself)
    if rows.is_empty():
        raise DatasetError(
            f"None of the {annotations['text'].n_unique()} annotated texts is a query of "
            f"{', '.join(sorted(set(queries['dataset'])))}. Give annotations of the same split: ChaosNLI has pairs of "
            "snli_dev and multinli, and none of snli, which is SNLI's test set."
        )
    # `correlations` compares two levels of a column, so PVI and the measure become two levels of `source`.
    key = [*schema.PVI_ANNOTATORS_KEY, "query_id"]
    both = pl.concat(rows.select(*key, source=pl.lit(name), value=name) for name in ("pvi_bits", "value"))
    tested = correlations(both, across="source", by=schema.PVI_ANNOTATORS_KEY, value="value")
    counts = rows.group_by(schema.PVI_ANNOTATORS_KEY).agg(n_annotated=pl.len())
    table = counts.join(tested, on=schema.PVI_ANNOTATORS_KEY, how="left").with_columns(pl.col("n").fill_null(0))
    of_sets = [name for name in schema.PVI_ANNOTATORS_KEY if name != "demonstration_set"]
    mean = pl.col("pearson", "spearman").mean().over(of_sets).name.suffix("_over_sets")
    return declared(table.with_columns(mean), schema.PVI_ANNOTATORS, schema.PVI_ANNOTATORS_KEY)


def _annotated(path: Path) -> pl.DataFrame:
    """Return the rows of read_annotations for one file."""
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
    # Refuse texts, such as "e,e,n" in a CSV: a cast would make a list with a single label of them.
    lists = [name for name in present if name != FOREIGN]
    if flat := [name for name in lists if rows[name].count() and not rows.schema[name].is_nested()]:
        raise DatasetError(
            f"{path}: the column {flat[0]} must hold lists and holds {rows.schema[flat[0]]}. In a table without "
            f"lists, give a column for each annotator: {', '.join(ANNOTATORS)}."
        )
    rows = rows.with_columns(text=pl.concat_str(texts, separator="\n"))
    try:
        return pl.concat(_measured(rows, name, path.stem) for name in present)
    except pl.exceptions.PolarsError as error:
        columns = ", ".join(present)
        raise DatasetError(f"{path}: the columns {columns} cannot be read as annotations: {error}") from error


def _measured(rows: pl.DataFrame, name: str, stem: str) -> pl.DataFrame:
    """Compute the measures from the column `name`; a text without annotations has no row."""
    if name == FOREIGN:
        about = {"annotations": pl.lit(stem), "measure": pl.lit(FOREIGN_PVI)}
        return rows.select("text", **about, value=pl.col(name).cast(float)).filter(pl.col("value").is_finite())
    counts = pl.col(name)
    if name != "label_count":
        labels = counts.cast(pl.List(pl.String)).list.eval(pl.element().filter(pl.element().str.len_chars() > 0))
        counts = labels.list.eval(pl.element().value_counts().struct.field("count"))
    # Counts are sorted, so that the last digit of a sum does not depend on the order of labels.
    counts = counts.cast(pl.List(pl.Float64)).list.eval(pl.element().filter(pl.element() > 0).sort())
    shares = counts.list.eval(pl.element() / pl.element().sum())
    terms = pl.col("shares").list.eval(-pl.element() * pl.element().log(2))
    annotated = rows.select("text", shares=shares).filter(pl.col("shares").list.len() > 0)
    agreement = pl.col("shares").list.max()
    measures = {"agreement": agreement, "variation_ratio": 1 - agreement, "entropy": terms.list.sum()}
    wide = annotated.select("text", annotations=pl.lit(name), **measures)
    return wide.unpivot(index=["text", "annotations"], variable_name="measure")
