"""Build requests from a plan of queries and their demonstrations.

Templates render single examples; this module joins rendered demonstrations and queries to prompts.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from evaluator.arrays import Ints
from evaluator.datasets.base import ClassificationDataset, Labelled
from evaluator.errors import ConfigError
from evaluator.prompts.demonstrations import N_DEMONSTRATION_SETS, own_demonstrations, sample_demonstrations
from evaluator.schemas import PROMPTS

_SPAN = pl.Struct({"start": pl.Int32(), "label": pl.Int32(), "end": pl.Int32()})
NO_SPANS = pl.lit(None, PROMPTS["spans"])
"""The column `spans` of schemas.PROMPTS for texts without a query."""


def render_prompts(opening: str, demonstrations: pl.Series, rows: Ints, queries: pl.Series | None = None) -> pl.Series:
    """Join opening, demonstrations and query of each prompt, with nothing between them; return prompts, String, [n].

    Args:
        opening: text at the start of every prompt.
        demonstrations: String, rendered examples.
        rows: indices of each prompt's demonstrations, in prompt order, [n, n_shots].
        queries: String, [n], rendered queries; None: prompts end before the query.
    """
    openings = pl.Series([opening]).new_from_index(0, len(rows))
    shown = [demonstrations.gather(column) for column in rows.T]
    parts = [openings, *shown] if queries is None else [openings, *shown, queries]
    return pl.select(prompt=pl.concat_str(map(pl.lit, parts)))["prompt"]


def prompt_spans(opening: str, demonstrations: pl.DataFrame, rows: Ints, queries: pl.Series | None = None) -> pl.Series:
    """Return `spans` of schemas.PROMPTS for the prompts that render_prompts joins.

    Args:
        opening, rows, queries: as for render_prompts; queries end in front of their labels.
        demonstrations: `text`, the rendered example, and `label`, the number of characters before its label.
    """
    lengths, labels = (demonstrations.select(pl.col("text").str.len_chars(), "label").to_numpy().astype(np.int64)).T
    # Arrays with one column for each demonstration and one for the query.
    sizes, in_example = lengths[rows], labels[rows]
    if queries is not None:
        query_sizes = queries.str.len_chars().to_numpy()
        sizes, in_example = np.column_stack([sizes, query_sizes]), np.column_stack([in_example, query_sizes])
    # Examples follow the opening without gaps, so that ends are cumulative lengths.
    ends = len(opening) + np.cumsum(sizes, axis=1)
    spans = np.stack([ends - sizes, ends - sizes + in_example, ends], axis=-1).astype(np.int32)
    to_struct = pl.element().arr.to_struct(fields=[field.name for field in _SPAN.fields])
    return pl.Series("spans", spans).arr.to_list().list.eval(to_struct)


def with_query_span(shown: pl.Expr, before: pl.Expr, asked: pl.Expr, prompt: pl.Expr) -> pl.Expr:
    """Return `spans` with the query's span after the spans of the demonstrations.

    Args:
        shown: `spans` of the demonstrations.
        before: String, the prompt up to the query.
        asked: String, the prompt up to the query's label.
        prompt: String, the whole prompt.
    """
    query = pl.struct(start=before.str.len_chars(), label=asked.str.len_chars(), end=prompt.str.len_chars())
    return pl.concat_list(shown, query.cast(_SPAN)).cast(PROMPTS["spans"])


def shifted(spans: pl.Expr, n_characters: int) -> pl.Expr:
    """Return spans moved by `n_characters`, the change in length of the text before the first example."""
    moved = [pl.element().struct.field(name) + n_characters for name in ("start", "label", "end")]
    return spans.list.eval(pl.struct(*moved)).cast(PROMPTS["spans"])


def classification_prompts(
    dataset: Labelled,
    *,
    queries: pl.Series,
    demonstrations: pl.DataFrame,
    demonstration_ids: Ints,
    shown_labels: Ints | None = None,
) -> pl.DataFrame:
    """Render demonstrations and queries, and join them to prompts that ask for labels, [n].

    Args:
        dataset: gives the template and the label names.
        queries: List[String], [n], the texts of each prompt's query, one for each field of the template.
        demonstrations: a split, in the schema datasets.base.EXAMPLES.
        demonstration_ids: rows of `demonstrations` that each prompt shows, [n, n_shots].
        shown_labels: indices of the labels that the demonstrations show, [n, n_shots]; None: the gold labels.

    Returns:
        `prompt`, `spans`, `n_shots`, `demonstration_ids`, and the columns of asks_labels.
    """
    template, verbalizer = dataset.template, dataset.verbalizer
    if shown_labels is None:
        shown_labels = demonstrations["gold"].to_numpy()[demonstration_ids]
    shown, places = np.unique(demonstration_ids, return_inverse=True)
    # Render each example once with every label, for all prompts: row = example * number of labels + label.
    n_labels = len(verbalizer.label_names)
    each_label = demonstrations[shown].select("texts", label=pl.lit(list(range(n_labels)))).explode("label")
    rendered = each_label.select(
        text=template.demonstration(pl.col("texts"), verbalizer.text(pl.col("label"))),
        label=template.before_label(pl.col("texts")).str.len_chars(),
    )
    rendered_queries = pl.select(text=template.query(pl.lit(queries)))["text"]
    rows = places.reshape(demonstration_ids.shape) * n_labels + shown_labels
    prompts = {
        "prompt": render_prompts(template.instruction, rendered["text"], rows, rendered_queries),
        "spans": prompt_spans(template.instruction, rendered, rows, rendered_queries),
        "demonstration_ids": pl.Series(demonstration_ids).cast(pl.List(pl.Int64)),
    }
    return pl.DataFrame(prompts).with_columns(n_shots=pl.lit(rows.shape[1], pl.Int64), **asks_labels(dataset))


ROWS_PER_FRAME = 32_768
"""Maximum number of requests that are built together: the requests of all prompts may not fit into memory."""

NOT_VARIED: dict[str, pl.Expr] = {
    "demonstration_set": pl.lit(0, pl.Int64),
    "template": pl.lit(0, pl.Int64),
    "noise_rate": pl.lit(0.0, pl.Float64),
    "n_wrong_labels": pl.lit(0, pl.Int64),
    "label_tried": pl.lit(None, pl.Int64),
    "ordering": pl.lit(None, pl.Int64),
    "training_row": pl.lit(None, pl.Int64),
}
"""Default values of the columns of schemas.REQUESTS that suites and methods vary."""

NO_CONTINUATIONS = pl.lit([], pl.List(pl.String))
ASKS_TEXT: dict[str, pl.Expr] = {"ask": pl.lit("text"), "continuations": NO_CONTINUATIONS}
"""Columns of requests for the log-likelihood of the prompt itself."""
ASKS_STATE: dict[str, pl.Expr] = {"ask": pl.lit("state"), "continuations": NO_CONTINUATIONS}
"""Columns of requests for the hidden state at the end of the prompt."""


def asks_labels(dataset: Labelled) -> dict[str, pl.Expr]:
    """Return the columns of requests for the log-likelihoods of a dataset's labels."""
    names = pl.lit(list(dataset.verbalizer.label_names))
    return {"dataset": pl.lit(dataset.name), "label_names": names, "ask": pl.lit("labels"), "continuations": names}


@dataclass(frozen=True, kw_only=True)
class PromptPlan:
    """The query and demonstrations of each prompt."""

    demonstration_set: Ints  # [n], number of the query's demonstration set, from 0
    query_id: Ints  # [n], rows of the test split
    demonstration_ids: Ints  # [n, n_shots], rows of the demonstration split


def n_sets(dataset: ClassificationDataset) -> int:
    """Return the number of demonstration sets of each query."""
    return dataset.own_demonstrations.n_sets if dataset.own_demonstrations else N_DEMONSTRATION_SETS


def benchmark_plan(
    dataset: ClassificationDataset,
    *,
    n_shots: int,
    n_demonstration_sets: int | None = None,
    n_queries: int | None = None,
) -> PromptPlan:
    """Plan one prompt for each query and demonstration set: all queries with the first set, then with the second.

    Demonstrations are drawn as in the toolkit, or by `own_demonstrations` of the dataset.

    Args:
        dataset: the dataset.
        n_shots: demonstrations in a prompt.
        n_demonstration_sets: sets of each query; None: n_sets of the dataset.
        n_queries: number of queries, from the first; None: all.

    Raises TemplateError if there are fewer demonstrations than shots.
    """
    n_test = n_drawn = dataset.test.height
    n_queries, n_demonstration_sets = min(n_queries or n_test, n_test), n_demonstration_sets or n_sets(dataset)
    sample = partial(sample_demonstrations, n_demonstrations=dataset.demonstration.height)
    if own := dataset.own_demonstrations:
        sample = partial(own_demonstrations, own.how, dataset.demonstration["gold"].to_numpy(), seed=own.seed)
        n_drawn = n_queries  # enough, as every set has its own generator: fewer queries change no other prompt
    drawn = sample(n_shots=n_shots, n_queries=n_drawn, n_demonstration_sets=n_demonstration_sets)
    demonstration_set, query_id = (index.ravel() for index in np.indices((n_demonstration_sets, n_queries)))
    return PromptPlan(
        demonstration_set=demonstration_set,
        query_id=query_id,
        demonstration_ids=drawn[:, :n_queries].reshape(n_demonstration_sets * n_queries, n_shots),
    )


def normal_requests(
    dataset: ClassificationDataset,
    *,
    n_shots: int,
    n_queries: int | None,
    n_demonstration_sets: int | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield the requests for the prompts of benchmark_plan, in frames. Raises as benchmark_plan and `requests` do."""
    plan = benchmark_plan(dataset, n_shots=n_shots, n_demonstration_sets=n_demonstration_sets, n_queries=n_queries)
    yield from requests(dataset, plan, n_queries=n_queries)


def requests(
    dataset: ClassificationDataset,
    plan: PromptPlan,
    *,
    shown_labels: Ints | None = None,
    queries: pl.Series | None = None,
    n_queries: int | None = None,
) -> Iterator[pl.DataFrame]:
    """Yield one request for each prompt of the plan, in frames of at most ROWS_PER_FRAME rows.

    Frames have the columns of schemas.REQUESTS without suite, part, for_part and prompt_id, and those of
    schemas.PROMPTS without prompt_id. `position` is query_id + demonstration_set * number of test queries; other varied
    columns have the defaults of NOT_VARIED.

    Args:
        dataset: the dataset.
        plan: queries and demonstrations of the prompts, [n].
        shown_labels: indices of the labels that the demonstrations show, [n, n_shots]; None: the gold labels.
        queries: List[String], [n], texts of the queries; None: the texts of the test split.
        n_queries: only prompts of the first n_queries queries are built, unchanged; None: all.

    Raises TemplateError if the template does not fit the dataset's text fields, ConfigError if the test split has fewer
    than `n_queries` queries.
    """
    n_test = dataset.test.height
    if n_queries is not None and n_queries > n_test:
        raise ConfigError(f"--queries {n_queries}: the test split of {dataset.name} has {n_test}. Ask for no more.")
    dataset.template.require_fields(dataset.text_fields)
    chosen = np.flatnonzero(plan.query_id < (n_test if n_queries is None else n_queries))
    for first in range(0, len(chosen), ROWS_PER_FRAME):
        some = chosen[first : first + ROWS_PER_FRAME]
        query_id, shown = plan.query_id[some], plan.demonstration_ids[some]
        demonstration_set = plan.demonstration_set[some]
        prompts = classification_prompts(
            dataset,
            queries=dataset.test["texts"].gather(query_id) if queries is None else queries.gather(some),
            demonstrations=dataset.demonstration,
            demonstration_ids=shown,
            shown_labels=None if shown_labels is None else shown_labels[some],
        )
        yield prompts.with_columns(
            **NOT_VARIED | {"demonstration_set": pl.lit(pl.Series(demonstration_set))},
            position=pl.Series(query_id + demonstration_set * n_test),
            query_id=pl.Series(query_id),
            gold=dataset.test["gold"].gather(query_id),
        )


def of_parts(parts: Mapping[str, Iterable[pl.DataFrame]]) -> Iterator[pl.DataFrame]:
    """Yield the frames of all parts, with the part's name in the column `part`."""
    for part, frames in parts.items():
        for rows in frames:
            yield rows.with_columns(part=pl.lit(part))
