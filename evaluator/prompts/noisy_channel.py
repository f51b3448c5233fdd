"""Build the prompts of the noisy channel, which show the label before the text: a request for each query and label."""

import dataclasses

import numpy as np
import polars as pl

from evaluator.datasets.base import ClassificationDataset
from evaluator.prompts.render import prompt_spans, render_prompts, with_query_span
from evaluator.prompts.rows import ASKS_TEXT
from evaluator.schemas import Definition

# The toolkit uses these instead of the affixes of the dataset's template.
LABEL_AFFIX = " "
LAST_INPUT_AFFIX = "\n"


def noisy_channel_requests(
    dataset: ClassificationDataset, rows: pl.DataFrame, *, part: str, n_shots: int, definition: Definition
) -> pl.DataFrame:
    r"""Build noisy-channel requests with the queries and demonstrations of `rows`, one for each label.

    With one demonstration of one text field, a text reads

        instruction
        label_prefix label " " prefix_0 text_0 "\n"                 (the demonstration)
        label_prefix label " " query_prefix prefix_0 text_0 "\n"    (the query, after the label that is tried)

    with nothing between the parts. Under `released` the request is for the likelihood of the whole text, under `paper`
    for that of the query alone, from its first text to the "\n". So the end of a text is scored too, as it is with the
    end token in the code of Min et al. 2022, and even an empty text has a likelihood. The words between several fields
    are scored as well; they are the same after every label. In `spans`, the text stands in the place of the label.

    Args:
        rows: Normal requests with n_shots demonstrations, in the columns of Suite.requests.
        part: of the new rows.

    Returns rows with the columns of `rows`: `label_tried` is the label, `position` that of the Normal request times the
    number of labels plus the label; other columns are those of the Normal request.
    """
    n_labels = len(dataset.verbalizer.label_names)
    label = _label(dataset, pl.col("label_tried"))
    start = dataset.template.input_prefixes[0]
    before, query = pl.concat_str("before", label, pl.lit(dataset.template.query_prefix)), pl.col("query")
    if definition == "paper":
        columns = {
            "prompt": pl.concat_str(before, pl.lit(start)),
            "ask": pl.lit("labels"),
            "continuations": pl.concat_list(query.str.strip_prefix(start)),
        }
    else:
        columns = {"prompt": pl.concat_str(before, query), **ASKS_TEXT}
    spans = with_query_span(pl.col("shown"), pl.col("before"), pl.concat_str(before, pl.lit(start)), columns["prompt"])
    labels = pl.lit(list(range(n_labels)), pl.List(pl.Int64))
    each_label = _with_texts(dataset, rows, n_shots).with_columns(label_tried=labels).explode("label_tried")
    position = pl.col("position") * n_labels + pl.col("label_tried")
    return each_label.with_columns(part=pl.lit(part), position=position, spans=spans, **columns).select(rows.columns)


def _with_texts(dataset: ClassificationDataset, rows: pl.DataFrame, n_shots: int) -> pl.DataFrame:
    """Add `before`, the text in front of the query's label, `shown`, the spans of its demonstrations, and `query`, the
    text after the label.
    """
    template = dataset.template
    template.require_fields(dataset.text_fields)
    label_first = dataclasses.replace(template, input_affixes=(*template.input_affixes[:-1], LAST_INPUT_AFFIX))
    inputs = label_first.inputs(pl.col("texts"))
    label = _label(dataset, pl.col("gold"))
    ids = rows["demonstration_ids"].list.to_array(n_shots).to_numpy().reshape(rows.height, n_shots)
    distinct, places = np.unique(ids, return_inverse=True)
    shown = dataset.demonstration[distinct].select(
        text=pl.concat_str(label, inputs),
        label=pl.concat_str(label, pl.lit(template.input_prefixes[0])).str.len_chars(),
    )
    shown_rows = places.reshape(ids.shape)
    return rows.with_columns(
        before=render_prompts(template.instruction, shown["text"], shown_rows),
        shown=prompt_spans(template.instruction, shown, shown_rows),
        query=dataset.test[rows["query_id"]].select(text=inputs)["text"],
    )


def _label(dataset: ClassificationDataset, index: pl.Expr) -> pl.Expr:
    prefix = pl.lit(dataset.template.label_prefix)
    return pl.concat_str(prefix, dataset.verbalizer.text(index), pl.lit(LABEL_AFFIX))
