"""Examples, demonstrations and a template go in; request rows with their prompts come out."""

import numpy as np
import polars as pl

from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.lcg import Ints
from evaluator.errors import ConfigError
from evaluator.prompts.demonstrations import sample_demonstrations


def normal_requests(dataset: ClassificationDataset, *, n_shots: int, n_queries: int | None) -> pl.DataFrame:
    """Every test query behind each of its demonstration sets, in the toolkit's order: all queries, then all again.

    Columns of schemas.REQUESTS without suite, part and prompt_id, and with `prompt` and `continuations` of PROMPTS.
    `position` is the place in the full benchmark: with `n_queries`, the rows are a subset of the full benchmark's.

    Raises TemplateError where the template does not fit the dataset's text fields or there are too few demonstrations,
    ConfigError where more queries are asked for than there are.
    """
    n_test = dataset.test.height
    if n_queries is not None and n_queries > n_test:
        raise ConfigError(f"--queries {n_queries}: the test split of {dataset.name} has {n_test}. Ask for no more.")
    sampled = sample_demonstrations(n_shots=n_shots, n_demonstrations=dataset.demonstration.height, n_queries=n_test)
    shown = sampled[:, :n_queries]
    repeat, query_id = (index.ravel() for index in np.indices(shown.shape[:2]))
    return requests(dataset, repeat=repeat, query_id=query_id, demonstration_ids=shown.reshape(len(query_id), n_shots))


def requests(
    dataset: ClassificationDataset,
    *,
    repeat: Ints,
    query_id: Ints,
    demonstration_ids: Ints,
    shown_labels: Ints | None = None,
) -> pl.DataFrame:
    """One row a prompt, from row numbers of the test split [n] and of the demonstration split [n, n_shots].

    `shown_labels` [n, n_shots] are the label indices that demonstrations are shown with, their own where left out.
    """
    label_names = list(dataset.verbalizer.label_names)
    text = prompts(dataset, query_id=query_id, demonstration_ids=demonstration_ids, shown_labels=shown_labels)
    return pl.DataFrame(
        {
            "dataset": pl.Series([dataset.name]).new_from_index(0, len(query_id)),
            "position": query_id + repeat * dataset.test.height,
            "query_id": query_id,
            "repeat": repeat,
            "variant": pl.Series([0]).new_from_index(0, len(query_id)),
            "demonstration_ids": pl.Series(demonstration_ids).cast(pl.List(pl.Int64)),
            "gold": dataset.test["gold"].gather(query_id),
            "prompt": text,
        }
    ).with_columns(label_names=pl.lit(label_names), continuations=pl.lit(label_names))


def prompts(
    dataset: ClassificationDataset, *, query_id: Ints, demonstration_ids: Ints, shown_labels: Ints | None = None
) -> pl.Series:
    """The text of each prompt: instruction, demonstrations in the given order, query."""
    template = dataset.template
    template.require_fields(dataset.text_fields)
    queries = dataset.test.select(text=template.query(pl.col("texts")))["text"]
    if shown_labels is None:
        shown_labels = dataset.demonstration["gold"].to_numpy()[demonstration_ids]
    # Each example is rendered once a label, however many prompts show it: place = row * number of labels + label.
    n_labels = len(dataset.verbalizer.label_names)
    each_label = dataset.demonstration.select("texts", label=pl.lit(list(range(n_labels)))).explode("label")
    rendered = each_label.select(text=template.demonstration(pl.col("texts"), dataset.verbalizer.text(pl.col("label"))))
    places = demonstration_ids * n_labels + shown_labels
    parts = [*(rendered["text"].gather(column) for column in places.T), queries.gather(query_id)]
    return pl.select(prompt=pl.concat_str(pl.lit(template.instruction), *(pl.lit(part) for part in parts)))["prompt"]
