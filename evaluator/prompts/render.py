"""Join rendered demonstrations and queries to prompts. (Templates render single examples.)"""

import numpy as np
import polars as pl
import pyarrow as pa

from evaluator.arrays import Ints
from evaluator.schemas import PROMPTS
from evaluator.templates.template import MetaTemplate, Verbalizer

_SPAN = pl.Struct({"start": pl.Int32(), "label": pl.Int32(), "end": pl.Int32()})
NO_SPANS = pl.lit(None, PROMPTS["spans"])
"""The column `spans` of schemas.PROMPTS for texts that ask nothing."""


def render_prompts(opening: str, demonstrations: pl.Series, rows: Ints, queries: pl.Series | None = None) -> pl.Series:
    """Join each prompt's opening, demonstrations and query, with nothing between them: String [n].

    Args:
        opening: text at the start of every prompt.
        demonstrations: String, rendered examples to show.
        rows: which of them each prompt shows, in prompt order, [n, n_shots].
        queries: String [n], rendered; if left out, prompts end before the query.
    """
    openings = pl.Series([opening]).new_from_index(0, len(rows))
    shown = [demonstrations.gather(column) for column in rows.T]
    parts = [openings, *shown] if queries is None else [openings, *shown, queries]
    return pl.select(prompt=pl.concat_str(map(pl.lit, parts)))["prompt"]


def prompt_spans(opening: str, demonstrations: pl.DataFrame, rows: Ints, queries: pl.Series | None = None) -> pl.Series:
    """Return `spans` of schemas.PROMPTS for the prompts that render_prompts joins.

    Args:
        opening, rows, queries: as for render_prompts; queries end in front of their labels.
        demonstrations: the rendered examples as `text`, and `label`: the number of characters before its label.
    """
    lengths, labels = (demonstrations.select(pl.col("text").str.len_chars(), "label").to_numpy().astype(np.int64)).T
    # One column for each demonstration and one for the query.
    sizes, in_example = lengths[rows], labels[rows]
    if queries is not None:
        query_sizes = queries.str.len_chars().to_numpy()
        sizes, in_example = np.column_stack([sizes, query_sizes]), np.column_stack([in_example, query_sizes])
    ends = len(opening) + np.cumsum(sizes, axis=1)
    starts = ends - sizes
    flat = {"start": starts, "label": starts + in_example, "end": ends}
    structs = pl.DataFrame({name: values.ravel() for name, values in flat.items()}).to_struct().cast(_SPAN).to_arrow()
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * sizes.shape[1]
    return pl.Series("spans", pa.ListArray.from_arrays(offsets, structs), dtype=PROMPTS["spans"])


def with_query_span(shown: pl.Expr, before: pl.Expr, asked: pl.Expr, prompt: pl.Expr) -> pl.Expr:
    """Add the query's span to those of the demonstrations.

    Args:
        shown: `spans` of the demonstrations.
        before: String, the prompt up to the query.
        asked: String, the prompt up to the query's label.
        prompt: String, the whole prompt.
    """
    query = pl.struct(start=before.str.len_chars(), label=asked.str.len_chars(), end=prompt.str.len_chars())
    return pl.concat_list(shown, query.cast(_SPAN)).cast(PROMPTS["spans"])


def shifted(spans: pl.Expr, n_characters: int) -> pl.Expr:
    """Return the spans of prompts whose text before the first example is longer by so many characters."""
    moved = [pl.element().struct.field(name) + n_characters for name in ("start", "label", "end")]
    return spans.list.eval(pl.struct(*moved)).cast(PROMPTS["spans"])


def classification_prompts(
    template: MetaTemplate,
    verbalizer: Verbalizer,
    *,
    queries: pl.Series,
    demonstrations: pl.DataFrame,
    demonstration_ids: Ints,
    shown_labels: Ints | None = None,
) -> pl.DataFrame:
    """Render labelled examples and join them to prompts: `prompt` and `spans` of schemas.PROMPTS, [n].

    Args:
        queries: List[String] [n], the texts of each prompt's query, one per field of the template.
        demonstrations: any split, of the schema datasets.base.EXAMPLES.
        demonstration_ids: rows of `demonstrations` that each prompt shows, [n, n_shots].
        shown_labels: indices of the labels that they are shown with, [n, n_shots]; the gold labels if left out.
    """
    if shown_labels is None:
        shown_labels = demonstrations["gold"].to_numpy()[demonstration_ids]
    shown, places = np.unique(demonstration_ids, return_inverse=True)
    # Render each example once with each label, however many prompts show it: row = example * number of labels + label.
    n_labels = len(verbalizer.label_names)
    each_label = demonstrations[shown].select("texts", label=pl.lit(list(range(n_labels)))).explode("label")
    rendered = each_label.select(
        text=template.demonstration(pl.col("texts"), verbalizer.text(pl.col("label"))),
        label=template.before_label(pl.col("texts")).str.len_chars(),
    )
    rendered_queries = pl.select(text=template.query(pl.lit(queries)))["text"]
    rows = places.reshape(demonstration_ids.shape) * n_labels + shown_labels
    prompts = render_prompts(template.instruction, rendered["text"], rows, rendered_queries)
    return pl.DataFrame(
        {"prompt": prompts, "spans": prompt_spans(template.instruction, rendered, rows, rendered_queries)}
    )
