"""Examples, demonstrations and a template go in; request rows with their prompts come out."""

from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.lcg import Ints
from evaluator.errors import ConfigError
from evaluator.prompts.demonstrations import N_REPEATS, sample_demonstrations
from evaluator.templates.template import MetaTemplate, Verbalizer


class Places(NamedTuple):
    """Which query stands behind which demonstrations, one entry a prompt of the full benchmark."""

    repeat: Ints  # [n]
    query_id: Ints  # [n], rows of the test split
    demonstration_ids: Ints  # [n, n_shots], rows of the demonstration split


def benchmark_places(dataset: ClassificationDataset, *, n_shots: int, n_repeats: int = N_REPEATS) -> Places:
    """Every test query behind each of its demonstration sets, in the toolkit's order: all queries, then all again.

    Raises TemplateError where there are too few demonstrations.
    """
    n_test = dataset.test.height
    demonstration_ids = sample_demonstrations(
        n_shots=n_shots, n_demonstrations=dataset.demonstration.height, n_queries=n_test, n_repeats=n_repeats
    )
    repeat, query_id = (index.ravel() for index in np.indices((n_repeats, n_test)))
    return Places(repeat, query_id, demonstration_ids.reshape(n_repeats * n_test, n_shots))


def normal_requests(
    dataset: ClassificationDataset, *, n_shots: int, n_queries: int | None, n_repeats: int = N_REPEATS
) -> pl.DataFrame:
    """A request for each of benchmark_places. Columns and errors are those of `requests` and benchmark_places."""
    places = benchmark_places(dataset, n_shots=n_shots, n_repeats=n_repeats)
    return requests(dataset, **places._asdict(), n_queries=n_queries)


def requests(
    dataset: ClassificationDataset,
    *,
    repeat: Ints,
    query_id: Ints,
    demonstration_ids: Ints,
    shown_labels: Ints | None = None,
    queries: pl.Series | None = None,
    n_queries: int | None = None,
) -> pl.DataFrame:
    """One row a prompt, from row numbers of the test split [n] and of the demonstration split [n, n_shots].

    Columns of schemas.REQUESTS without suite, part and prompt_id, and with `prompt` and `continuations` of PROMPTS.
    `position` is query_id + repeat * the number of test queries, `variant` is 0.

    Args:
        shown_labels: label indices that demonstrations are shown with, [n, n_shots]; their own where left out.
        queries: List[String] [n], asked in place of the test split's texts.
        n_queries: only prompts of the first so many queries are written; what they say does not depend on it.

    Raises TemplateError where the template does not fit the dataset's text fields, ConfigError where more queries are
    asked for than there are.
    """
    n_test = dataset.test.height
    if n_queries is not None and n_queries > n_test:
        raise ConfigError(f"--queries {n_queries}: the test split of {dataset.name} has {n_test}. Ask for no more.")
    dataset.template.require_fields(dataset.text_fields)
    kept = np.flatnonzero(query_id < (n_test if n_queries is None else n_queries))
    repeat, query_id, demonstration_ids = repeat[kept], query_id[kept], demonstration_ids[kept]
    text = prompt_texts(
        dataset.template,
        dataset.verbalizer,
        queries=dataset.test["texts"].gather(query_id) if queries is None else queries.gather(kept),
        demonstrations=dataset.demonstration,
        demonstration_ids=demonstration_ids,
        shown_labels=None if shown_labels is None else shown_labels[kept],
    )
    label_names = list(dataset.verbalizer.label_names)
    return pl.DataFrame(
        {
            "dataset": pl.Series([dataset.name]).new_from_index(0, len(kept)),
            "position": query_id + repeat * n_test,
            "query_id": query_id,
            "repeat": repeat,
            "variant": pl.Series([0]).new_from_index(0, len(kept)),
            "demonstration_ids": pl.Series(demonstration_ids).cast(pl.List(pl.Int64)),
            "gold": dataset.test["gold"].gather(query_id),
            "prompt": text,
        }
    ).with_columns(label_names=pl.lit(label_names), continuations=pl.lit(label_names))


def prompt_texts(
    template: MetaTemplate,
    verbalizer: Verbalizer,
    *,
    queries: pl.Series,
    demonstrations: pl.DataFrame,
    demonstration_ids: Ints,
    shown_labels: Ints | None = None,
) -> pl.Series:
    """The text of each prompt, String [n]: instruction, demonstrations in the given order, query.

    Args:
        queries: List[String] [n], what is asked in each prompt, one text a field of the template.
        demonstrations: any split, of the schema datasets.base.EXAMPLES.
        demonstration_ids: its rows shown in each prompt, [n, n_shots].
        shown_labels: label indices they are shown with, [n, n_shots]; their own where left out.
    """
    if shown_labels is None:
        shown_labels = demonstrations["gold"].to_numpy()[demonstration_ids]
    # Each example is rendered once a label, however many prompts show it: place = row * number of labels + label.
    n_labels = len(verbalizer.label_names)
    each_label = demonstrations.select("texts", label=pl.lit(list(range(n_labels)))).explode("label")
    rendered = each_label.select(text=template.demonstration(pl.col("texts"), verbalizer.text(pl.col("label"))))
    places = demonstration_ids * n_labels + shown_labels
    asked = pl.select(text=template.query(pl.lit(queries)))["text"]
    parts = [*(rendered["text"].gather(column) for column in places.T), asked]
    return pl.select(prompt=pl.concat_str(pl.lit(template.instruction), *(pl.lit(part) for part in parts)))["prompt"]
