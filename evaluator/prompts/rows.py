"""Build request rows from a plan of which demonstrations each query is shown with."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from evaluator.arrays import Ints
from evaluator.datasets.base import ClassificationDataset
from evaluator.errors import ConfigError
from evaluator.prompts.demonstrations import N_DEMONSTRATION_SETS, labels_in_turn, sample_demonstrations
from evaluator.prompts.render import classification_prompts

ROWS_PER_FRAME = 32_768
"""Rows that are built together: those of all prompts may not fit into memory."""

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
"""Columns of schemas.PROMPTS: the log-likelihood of the prompt itself."""
ASKS_STATE: dict[str, pl.Expr] = {"ask": pl.lit("state"), "continuations": NO_CONTINUATIONS}
"""Columns of schemas.PROMPTS: the hidden state at the end of the prompt."""


@dataclass(frozen=True, kw_only=True)
class PromptPlan:
    """The query and demonstrations of each prompt."""

    demonstration_set: Ints  # [n], which demonstration set of the query
    query_id: Ints  # [n], rows of the test split
    demonstration_ids: Ints  # [n, n_shots], rows of the demonstration split


def benchmark_plan(
    dataset: ClassificationDataset, *, n_shots: int, n_demonstration_sets: int = N_DEMONSTRATION_SETS
) -> PromptPlan:
    """Plan a prompt for every test query with each of its demonstration sets, all queries of the first set first.

    Demonstrations are the toolkit's draws, or show labels in turn if the dataset says so. Raises TemplateError if there
    are too few of them.
    """
    n_test = dataset.test.height
    if dataset.labels_in_turn:
        sample = partial(labels_in_turn, gold=dataset.demonstration["gold"].to_numpy())
    else:
        sample = partial(sample_demonstrations, n_demonstrations=dataset.demonstration.height)
    demonstration_ids = sample(
        n_shots=n_shots,
        n_queries=n_test,
        n_demonstration_sets=n_demonstration_sets,
    )
    demonstration_set, query_id = (index.ravel() for index in np.indices((n_demonstration_sets, n_test)))
    return PromptPlan(
        demonstration_set=demonstration_set,
        query_id=query_id,
        demonstration_ids=demonstration_ids.reshape(n_demonstration_sets * n_test, n_shots),
    )


def normal_requests(
    dataset: ClassificationDataset,
    *,
    n_shots: int,
    n_queries: int | None,
    n_demonstration_sets: int = N_DEMONSTRATION_SETS,
) -> Iterator[pl.DataFrame]:
    """Build a request for each prompt of benchmark_plan. Yields the frames of `requests`, and raises as both do."""
    plan = benchmark_plan(dataset, n_shots=n_shots, n_demonstration_sets=n_demonstration_sets)
    yield from requests(dataset, plan, n_queries=n_queries)


def requests(
    dataset: ClassificationDataset,
    plan: PromptPlan,
    *,
    shown_labels: Ints | None = None,
    queries: pl.Series | None = None,
    n_queries: int | None = None,
) -> Iterator[pl.DataFrame]:
    """Build one row per prompt of the plan, in frames of at most ROWS_PER_FRAME rows.

    Yields the columns of schemas.REQUESTS without suite, part, for_part and prompt_id, and those of schemas.PROMPTS
    without prompt_id. `position` is query_id + demonstration_set * number of test queries; other varied columns have
    the defaults of NOT_VARIED.

    Args:
        shown_labels: indices of the labels that demonstrations are shown with, [n, n_shots]; the gold labels if left
            out.
        queries: List[String] [n], used instead of the test split's texts.
        n_queries: number of queries to build, from the first; it does not change their prompts.

    Raises TemplateError if the template does not fit the dataset's text fields, ConfigError if the test split has fewer
    than `n_queries` queries.
    """
    n_test = dataset.test.height
    if n_queries is not None and n_queries > n_test:
        raise ConfigError(f"--queries {n_queries}: the test split of {dataset.name} has {n_test}. Ask for no more.")
    dataset.template.require_fields(dataset.text_fields)
    prompts = np.flatnonzero(plan.query_id < (n_test if n_queries is None else n_queries))
    for first in range(0, len(prompts), ROWS_PER_FRAME):
        chosen = prompts[first : first + ROWS_PER_FRAME]
        yield _rows(
            dataset,
            PromptPlan(
                demonstration_set=plan.demonstration_set[chosen],
                query_id=plan.query_id[chosen],
                demonstration_ids=plan.demonstration_ids[chosen],
            ),
            None if shown_labels is None else shown_labels[chosen],
            None if queries is None else queries.gather(chosen),
        )


def _rows(
    dataset: ClassificationDataset, plan: PromptPlan, shown_labels: Ints | None, queries: pl.Series | None
) -> pl.DataFrame:
    text = classification_prompts(
        dataset.template,
        dataset.verbalizer,
        queries=dataset.test["texts"].gather(plan.query_id) if queries is None else queries,
        demonstrations=dataset.demonstration,
        demonstration_ids=plan.demonstration_ids,
        shown_labels=shown_labels,
    )
    label_names = pl.lit(list(dataset.verbalizer.label_names))
    return pl.DataFrame(
        {
            "position": plan.query_id + plan.demonstration_set * dataset.test.height,
            "query_id": plan.query_id,
            "demonstration_set": plan.demonstration_set,
            "demonstration_ids": pl.Series(plan.demonstration_ids).cast(pl.List(pl.Int64)),
            "gold": dataset.test["gold"].gather(plan.query_id),
            **text.to_dict(),
        }
    ).with_columns(
        **{name: value for name, value in NOT_VARIED.items() if name != "demonstration_set"},
        dataset=pl.lit(dataset.name),
        n_shots=pl.lit(plan.demonstration_ids.shape[1], pl.Int64),
        label_names=label_names,
        ask=pl.lit("labels"),
        continuations=label_names,
    )


def of_parts(parts: Mapping[str, Iterable[pl.DataFrame]]) -> Iterator[pl.DataFrame]:
    """Yield the frames of each part with its name in the column `part`."""
    for part, frames in parts.items():
        for rows in frames:
            yield rows.with_columns(part=pl.lit(part))


def variations(
    variants: Iterable[tuple[Mapping[str, Any], Iterable[pl.DataFrame]]], n_positions: int
) -> Iterator[pl.DataFrame]:
    """Yield the frames of each variation of the same prompts; `position` continues from one variation to the next.

    Args:
        variants: the columns that a variation sets, and its frames.
        n_positions: number of positions of one variation; its frames have positions from 0 to n_positions - 1.
    """
    for number, (columns, frames) in enumerate(variants):
        for rows in frames:
            yield rows.with_columns(**columns, position=pl.col("position") + number * n_positions)
