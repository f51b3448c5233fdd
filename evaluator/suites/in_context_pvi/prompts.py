"""Build the prompts of in-context PVI from a dataset and demonstration sets, with inputs and with all removed.

Lu et al. 2023, section 3: p' = (x1, y1, ..., xn, yn, x) and p = (0, y1, ..., 0, yn, 0) with 0 the empty string. A null
prompt says nothing of its query, so each set has one. Prompts end without a space, as the published ones do; the space
belongs to the label.
"""

from collections.abc import Sequence

import polars as pl

from evaluator.datasets.base import ClassificationDataset
from evaluator.errors import ConfigError, DatasetError
from evaluator.prompts.rows import NOT_VARIED
from evaluator.suites.in_context_pvi.demonstration_sets import DemonstrationSet, demonstration_sets
from evaluator.suites.in_context_pvi.options import PviOptions
from evaluator.suites.in_context_pvi.query_schema import PVI_QUERIES
from evaluator.templates.choice_template import LABEL_SPACE, continuations

INPUT, NULL = "input", "null"
"""Parts: queries behind demonstrations, and the same without any input."""

_SETS = {
    "n_shots": pl.Int64(),
    "demonstration_set": pl.Int64(),
    "demonstration_ids": pl.List(pl.Int64()),
    "text": pl.String(),
    "null_text": pl.String(),
}


def pvi_requests(dataset: ClassificationDataset, pvi: PviOptions, n_queries: int | None) -> pl.DataFrame:
    """Ask every query behind every set, and a null prompt a set: columns of schemas.REQUESTS without suite and
    prompt_id, and those of schemas.PROMPTS without prompt_id.

    `position` counts numbers of shots, then sets, then all queries there are; of null prompts, whose query and gold are
    null, without queries. A query whose texts stand among the demonstrations of any set is asked behind none.

    Raises ConfigError for more queries than there are, DatasetError where none is left, and as demonstration_sets.
    """
    sets = demonstration_sets(dataset, pvi)
    queries = _queries(dataset, sets, n_queries).filter("asked")
    if queries.is_empty():
        raise DatasetError(f"{dataset.name}: every query stands among the demonstrations, so none is left to ask.")
    inputs = queries_behind(dataset, sets, queries, part=INPUT, n_rows=dataset.test.height)
    return pl.concat([inputs, null_prompts(dataset, sets, part=NULL)])


def queries_behind(
    dataset: ClassificationDataset, sets: Sequence[DemonstrationSet], queries: pl.DataFrame, *, part: str, n_rows: int
) -> pl.DataFrame:
    """Ask every query behind every set, with the columns of pvi_requests.

    Args:
        queries: as as_queries gives them.
        n_rows: of the split that they come from; `position` is a set's place times it, and the row.
    """
    prefixes = pl.DataFrame(sets, schema=_SETS, orient="row").with_row_index("place")
    rows = prefixes.join(queries, how="cross", maintain_order="left_right").with_columns(
        position=pl.col("place").cast(pl.Int64) * n_rows + pl.col("query_id"), prompt=pl.concat_str("text", "query")
    )
    return _as_requests(dataset, rows, part)


def null_prompts(dataset: ClassificationDataset, sets: Sequence[DemonstrationSet], *, part: str) -> pl.DataFrame:
    """Ask a prompt without any input for each set, with the columns of pvi_requests; `position` is the set's place."""
    label_prefix = dataset.template.label_prefix.removesuffix(LABEL_SPACE)
    rows = pl.DataFrame(sets, schema=_SETS, orient="row").with_columns(
        position=pl.int_range(pl.len()),
        query_id=pl.lit(None, pl.Int64),
        gold=pl.lit(None, pl.Int64),
        prompt=pl.concat_str("null_text", pl.lit(dataset.template.query_prefix + label_prefix)),
    )
    return _as_requests(dataset, rows, part)


def _as_requests(dataset: ClassificationDataset, rows: pl.DataFrame, part: str) -> pl.DataFrame:
    label_names = pl.lit(list(dataset.verbalizer.label_names))
    return rows.select(
        *("position", "query_id", "demonstration_ids", "gold", "prompt"),
        **NOT_VARIED | {"demonstration_set": pl.col("demonstration_set")},
        n_shots="n_shots",
        part=pl.lit(part),
        dataset=pl.lit(dataset.name),
        label_names=label_names,
        ask=pl.lit("labels"),
        continuations=continuations(label_names),
    )


def pvi_queries(dataset: ClassificationDataset, pvi: PviOptions, n_queries: int | None) -> pl.DataFrame:
    """Return schemas.pvi_queries.PVI_QUERIES of a dataset. Raises as pvi_requests does."""
    queries = _queries(dataset, demonstration_sets(dataset, pvi), n_queries)
    return queries.select(pl.col(name).cast(dtype) for name, dtype in PVI_QUERIES.items())


def as_queries(dataset: ClassificationDataset, split: pl.DataFrame) -> pl.DataFrame:
    """Render the rows of a split: dataset, query_id, row and text of PVI_QUERIES, gold, `query`, as each is asked, and
    `inputs`, as each is shown before its label."""
    template = dataset.template
    assert template.label_prefix.endswith(LABEL_SPACE), "templates of these datasets have a space before labels"
    template.require_fields(dataset.text_fields)
    return split.select(
        dataset=pl.lit(dataset.name),
        query_id=pl.int_range(pl.len()),
        row="source_row",
        text=pl.col("texts").list.join("\n"),
        gold="gold",
        query=template.query(pl.col("texts")).str.strip_suffix(LABEL_SPACE),
        inputs=template.inputs(pl.col("texts")),
    )


def shown_by(sets: Sequence[DemonstrationSet]) -> pl.Expr:
    """Return whether the `inputs` of a query stand among the demonstrations of any of the sets."""
    return pl.any_horizontal(pl.lit(each.text).str.contains(pl.col("inputs"), literal=True) for each in sets)


def _queries(dataset: ClassificationDataset, sets: Sequence[DemonstrationSet], n_queries: int | None) -> pl.DataFrame:
    """Return the first queries: as_queries, and `asked`."""
    n_rows = dataset.test.height
    if n_queries is not None and n_queries > n_rows:
        raise ConfigError(f"--queries {n_queries}: {dataset.name} has {n_rows} rows to ask. Ask for no more.")
    return as_queries(dataset, dataset.test.head(n_queries or n_rows)).with_columns(asked=~shown_by(sets))
