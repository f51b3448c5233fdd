"""A dataset and demonstration sets go in; the prompts of in-context PVI come out, with inputs and with all removed.

Lu et al. 2023, section 3: p' = (x1, y1, ..., xn, yn, x) and p = (0, y1, ..., 0, yn, 0) with 0 the empty string. A null
prompt says nothing of its query, so each set has one. Prompts end without a space, as the published ones do; the space
belongs to the label.
"""

import polars as pl

from evaluator.config import PviConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.errors import ConfigError, DatasetError
from evaluator.prompts.choice_template import LABEL_SPACE, continuations
from evaluator.prompts.pvi_demonstrations import DemonstrationSet, demonstration_sets
from evaluator.schemas.pvi_queries import PVI_QUERIES

INPUT, NULL = "input", "null"
"""Parts: queries behind demonstrations, and the same without any input."""

_SETS = {
    "variant": pl.Int64(),
    "repeat": pl.Int64(),
    "demonstration_ids": pl.List(pl.Int64()),
    "text": pl.String(),
    "null_text": pl.String(),
}


def pvi_requests(dataset: ClassificationDataset, pvi: PviConfig, n_queries: int | None) -> pl.DataFrame:
    """Every query behind every set, and a null prompt a set: columns of schemas.REQUESTS without suite and prompt_id,
    and with `prompt` and `continuations` of schemas.PROMPTS.

    `variant` is the number of shots and `repeat` the set. `position` counts numbers of shots, then sets, then all
    queries there are; of null prompts, whose query and gold are null, without queries. A query whose texts stand among
    the demonstrations of any set is asked behind none.

    Raises ConfigError for more queries than there are, DatasetError where none is left, and as demonstration_sets.
    """
    sets = demonstration_sets(dataset, pvi)
    queries = _queries(dataset, pvi, sets, n_queries).filter("asked")
    if queries.is_empty():
        raise DatasetError(f"{dataset.name}: every query stands among the demonstrations, so none is left to ask.")
    prefixes = pl.DataFrame(sets, schema=_SETS, orient="row").with_row_index("place")
    place, n_asked = pl.col("place").cast(pl.Int64), asked_split(dataset, pvi).height
    label_prefix = dataset.template.label_prefix.removesuffix(LABEL_SPACE)
    inputs = prefixes.join(queries, how="cross", maintain_order="left_right").with_columns(
        part=pl.lit(INPUT),
        position=place * n_asked + pl.col("query_id"),
        prompt=pl.concat_str("text", "query"),
    )
    null = prefixes.with_columns(
        part=pl.lit(NULL),
        position=place,
        query_id=pl.lit(None, pl.Int64),
        gold=pl.lit(None, pl.Int64),
        prompt=pl.concat_str("null_text", pl.lit(dataset.template.query_prefix + label_prefix)),
    )
    columns = ["part", "position", "query_id", "repeat", "variant", "demonstration_ids", "gold", "prompt"]
    label_names = pl.lit(list(dataset.verbalizer.label_names))
    return pl.concat([inputs.select(columns), null.select(columns)]).with_columns(
        dataset=pl.lit(dataset.name), label_names=label_names, continuations=continuations(label_names)
    )


def pvi_queries(dataset: ClassificationDataset, pvi: PviConfig, n_queries: int | None) -> pl.DataFrame:
    """schemas.pvi_queries.PVI_QUERIES of a dataset. Raises as pvi_requests does."""
    queries = _queries(dataset, pvi, demonstration_sets(dataset, pvi), n_queries)
    return queries.select(pl.col(name).cast(dtype) for name, dtype in PVI_QUERIES.items())


def asked_split(dataset: ClassificationDataset, pvi: PviConfig) -> pl.DataFrame:
    """The examples that queries are taken from."""
    return dataset.test if pvi.ask == "test" else dataset.demonstration


def _queries(
    dataset: ClassificationDataset, pvi: PviConfig, sets: list[DemonstrationSet], n_queries: int | None
) -> pl.DataFrame:
    """The first queries: columns of PVI_QUERIES and `query`, as each is asked."""
    split, template = asked_split(dataset, pvi), dataset.template
    assert template.label_prefix.endswith(LABEL_SPACE), "templates of these datasets have a space before labels"
    if n_queries is not None and n_queries > split.height:
        raise ConfigError(
            f"--queries {n_queries}: {dataset.name} has {split.height} {pvi.ask} rows to ask. Ask for no more."
        )
    template.require_fields(dataset.text_fields)
    queries = split.head(n_queries or split.height).select(
        dataset=pl.lit(dataset.name),
        query_id=pl.int_range(pl.len()),
        row="source_row",
        text=pl.col("texts").list.join("\n"),
        gold="gold",
        query=template.query(pl.col("texts")).str.strip_suffix(LABEL_SPACE),
        inputs=template.inputs(pl.col("texts")),
    )
    shown = [pl.lit(each.text).str.contains(pl.col("inputs"), literal=True) for each in sets]
    return queries.with_columns(asked=~pl.any_horizontal(shown)).drop("inputs")
