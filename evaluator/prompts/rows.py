"""Build request rows from a plan: which query stands behind which demonstrations."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.lcg import Ints
from evaluator.errors import ConfigError
from evaluator.prompts.demonstrations import N_DEMONSTRATION_SETS, sample_demonstrations
from evaluator.prompts.render import classification_prompts

NOT_VARIED: dict[str, pl.Expr] = {
    "demonstration_set": pl.lit(0, pl.Int64),
    "template": pl.lit(0, pl.Int64),
    "noise_rate": pl.lit(0.0, pl.Float64),
    "label_tried": pl.lit(None, pl.Int64),
    "ordering": pl.lit(None, pl.Int64),
    "training_row": pl.lit(None, pl.Int64),
}
"""The columns of schemas.REQUESTS that say what varies, in a row where nothing does."""

NO_CONTINUATIONS = pl.lit([], pl.List(pl.String))
ASKS_TEXT: dict[str, pl.Expr] = {"ask": pl.lit("text"), "continuations": NO_CONTINUATIONS}
"""Columns of schemas.PROMPTS: the log-likelihood of the prompt itself."""
ASKS_STATE: dict[str, pl.Expr] = {"ask": pl.lit("state"), "continuations": NO_CONTINUATIONS}
"""Columns of schemas.PROMPTS: the hidden state at the end of the prompt."""


@dataclass(frozen=True, kw_only=True)
class PromptPlan:
    """Which query stands behind which demonstrations, one entry a prompt."""

    demonstration_set: Ints  # [n], which demonstration set of the query
    query_id: Ints  # [n], rows of the test split
    demonstration_ids: Ints  # [n, n_shots], rows of the demonstration split


def benchmark_plan(
    dataset: ClassificationDataset, *, n_shots: int, n_demonstration_sets: int = N_DEMONSTRATION_SETS
) -> PromptPlan:
    """Place every test query behind each of its demonstration sets, in the toolkit's order: all queries, then all
    again.

    Raises TemplateError where there are too few demonstrations.
    """
    n_test = dataset.test.height
    demonstration_ids = sample_demonstrations(
        n_shots=n_shots,
        n_demonstrations=dataset.demonstration.height,
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
) -> pl.DataFrame:
    """Build a request for each prompt of benchmark_plan. Columns and errors are those of `requests` and
    benchmark_plan."""
    plan = benchmark_plan(dataset, n_shots=n_shots, n_demonstration_sets=n_demonstration_sets)
    return requests(dataset, plan, n_queries=n_queries)


def requests(
    dataset: ClassificationDataset,
    plan: PromptPlan,
    *,
    shown_labels: Ints | None = None,
    queries: pl.Series | None = None,
    n_queries: int | None = None,
) -> pl.DataFrame:
    """Build one row a prompt of the plan.

    Columns of schemas.REQUESTS without suite, part and prompt_id, and those of schemas.PROMPTS without prompt_id.
    `position` is query_id + demonstration_set * the number of test queries; but for the demonstration set, nothing
    varies.

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
    kept = np.flatnonzero(plan.query_id < (n_test if n_queries is None else n_queries))
    demonstration_set, query_id = plan.demonstration_set[kept], plan.query_id[kept]
    demonstration_ids = plan.demonstration_ids[kept]
    text = classification_prompts(
        dataset.template,
        dataset.verbalizer,
        queries=dataset.test["texts"].gather(query_id) if queries is None else queries.gather(kept),
        demonstrations=dataset.demonstration,
        demonstration_ids=demonstration_ids,
        shown_labels=None if shown_labels is None else shown_labels[kept],
    )
    label_names = pl.lit(list(dataset.verbalizer.label_names))
    return pl.DataFrame(
        {
            "position": query_id + demonstration_set * n_test,
            "query_id": query_id,
            "demonstration_set": demonstration_set,
            "demonstration_ids": pl.Series(demonstration_ids).cast(pl.List(pl.Int64)),
            "gold": dataset.test["gold"].gather(query_id),
            "prompt": text,
        }
    ).with_columns(
        **{name: value for name, value in NOT_VARIED.items() if name != "demonstration_set"},
        dataset=pl.lit(dataset.name),
        n_shots=pl.lit(demonstration_ids.shape[1], pl.Int64),
        label_names=label_names,
        ask=pl.lit("labels"),
        continuations=label_names,
    )
