"""Build the prompts of in-context PVI from a dataset and demonstration sets, with and without inputs.

Lu et al. 2023, section 3: p' = (x1, y1, ..., xn, yn, x) and p = (0, y1, ..., 0, yn, 0) with 0 the empty string. A null
prompt does not depend on a query, so there is one for each set. Prompts end without a space, as the published ones do;
the space belongs to the label.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import polars as pl

from evaluator.datasets.base import ClassificationDataset
from evaluator.errors import ConfigError, DatasetError
from evaluator.prompts.render import with_query_span
from evaluator.prompts.rows import NOT_VARIED, ROWS_PER_FRAME, variations
from evaluator.schemas import PROMPTS
from evaluator.suites.base import Requests
from evaluator.suites.in_context_pvi.demonstration_sets import DemonstrationSet, demonstration_sets
from evaluator.suites.in_context_pvi.options import PviOptions
from evaluator.suites.in_context_pvi.schema import PVI_QUERIES
from evaluator.templates.template import LABEL_SPACE, continuations

INPUT, NULL = "input", "null"
"""Parts: queries after demonstrations, and the same without any input."""

_SETS = {
    "n_shots": pl.Int64(),
    "demonstration_set": pl.Int64(),
    "demonstration_ids": pl.List(pl.Int64()),
    "text": pl.String(),
    "null_text": pl.String(),
    "spans": PROMPTS["spans"],
    "null_spans": PROMPTS["spans"],
}
"""Columns of a table of demonstration sets: the fields of DemonstrationSet."""


def null_part(method: str) -> str:
    """Return the name of the part with a method's null prompts."""
    return f"{method}_null"


def pvi_prompts(dataset: ClassificationDataset, pvi: PviOptions, n_queries: int | None) -> Requests:
    """Build request rows: every query after every set, and one null prompt for each set. The side table is pvi_queries.

    A query whose texts are among the demonstrations of any set is left out for all sets. `position` enumerates numbers
    of shots, then sets, then all rows of the test split; for null prompts, whose query and gold are null, numbers of
    shots, then sets.

    Raises ConfigError for more queries than there are, DatasetError where no query is left, and what demonstration_sets
    raises.
    """
    sets = demonstration_sets(dataset, pvi)
    n_rows = dataset.test.height
    if n_queries is not None and n_queries > n_rows:
        raise ConfigError(f"--queries {n_queries}: {dataset.name} has only {n_rows} test rows. Give at most {n_rows}.")
    queries = as_queries(dataset, dataset.test.head(n_queries or n_rows)).with_columns(asked=~shown_by(sets))
    asked = queries.filter("asked")
    if asked.is_empty():
        raise DatasetError(
            f"{dataset.name}: every query is also a demonstration, so none is left. Choose fewer --sets or --shots, or "
            "more --queries."
        )
    inputs = queries_after(dataset, sets, asked, part=INPUT, n_rows=n_rows)
    rows = chain(inputs, [null_prompts(dataset, sets, part=NULL)])
    return Requests(rows, {"pvi_queries": queries.select(PVI_QUERIES.names()).cast(PVI_QUERIES)})


def queries_after(
    dataset: ClassificationDataset, sets: Sequence[DemonstrationSet], queries: pl.DataFrame, *, part: str, n_rows: int
) -> Iterator[pl.DataFrame]:
    """Build request rows of every query after every set, set by set.

    Args:
        queries: rows of as_queries.
        n_rows: number of rows of their split; `position` is (index of the set) * n_rows + (row of the query).
    """
    prompt = pl.concat_str("text", "query")

    def after(prefix: pl.DataFrame) -> Iterator[pl.DataFrame]:
        for some in queries.iter_slices(ROWS_PER_FRAME):
            rows = prefix.join(some, how="cross", maintain_order="left_right").with_columns(
                position="query_id",
                prompt=prompt,
                spans=with_query_span(pl.col("spans"), pl.col("text"), prompt, prompt),
            )
            yield _as_requests(dataset, rows, part)

    prefixes = pl.DataFrame(sets, schema=_SETS, orient="row").iter_slices(1)
    return variations((({}, after(prefix)) for prefix in prefixes), n_rows)


def null_prompts(dataset: ClassificationDataset, sets: Sequence[DemonstrationSet], *, part: str) -> pl.DataFrame:
    """Build request rows of the prompt without any input of each set; `position` numbers the sets."""
    label_prefix = dataset.template.label_prefix.removesuffix(LABEL_SPACE)
    prompt = pl.concat_str("null_text", pl.lit(dataset.template.query_prefix + label_prefix))
    rows = pl.DataFrame(sets, schema=_SETS, orient="row").with_columns(
        position=pl.int_range(pl.len()),
        query_id=pl.lit(None, pl.Int64),
        gold=pl.lit(None, pl.Int64),
        prompt=prompt,
        spans=with_query_span(pl.col("null_spans"), pl.col("null_text"), prompt, prompt),
    )
    return _as_requests(dataset, rows, part)


def _as_requests(dataset: ClassificationDataset, rows: pl.DataFrame, part: str) -> pl.DataFrame:
    label_names = pl.lit(list(dataset.verbalizer.label_names))
    return rows.select(
        *("position", "query_id", "demonstration_ids", "gold", "prompt", "spans"),
        **NOT_VARIED | {"demonstration_set": pl.col("demonstration_set")},
        n_shots="n_shots",
        part=pl.lit(part),
        dataset=pl.lit(dataset.name),
        label_names=label_names,
        ask=pl.lit("labels"),
        continuations=continuations(label_names),
    )


def as_queries(dataset: ClassificationDataset, split: pl.DataFrame) -> pl.DataFrame:
    """Render the rows of a split as queries and as demonstrations.

    Returns dataset, query_id, row, text and gold of PVI_QUERIES; `query`, the end of a prompt that asks for the label;
    and `inputs`, the text before the label of a demonstration.
    """
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
    """Return whether the `inputs` of a query are among the demonstrations of any of the sets."""
    return pl.any_horizontal(pl.lit(shown.text).str.contains(pl.col("inputs"), literal=True) for shown in sets)
