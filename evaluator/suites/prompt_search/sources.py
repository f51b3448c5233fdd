"""Add to an error about labels the file and row of the query that has them as choices."""

import polars as pl

from evaluator.errors import LabelError
from evaluator.store.prompt_store import PromptStore
from evaluator.suites.prompt_search.schema import SEARCH_EXAMPLES
from evaluator.templates.choice_template import LABEL_SPACE


def with_source(error: LabelError, store: PromptStore) -> LabelError:
    """Return the error with the file and row of the first query that has its labels as choices, if any."""
    choices = [label.removeprefix(LABEL_SPACE) for label in error.labels]
    sources = (
        store.requests()
        .filter(pl.col("label_names") == pl.lit(choices, pl.List(pl.String)))
        .join(store.table("search_examples", SEARCH_EXAMPLES), on=["dataset", "query_id"])
        .select("source")
        .head(1)
        .collect()
    )
    if not error.labels or sources.is_empty():
        return error
    return LabelError(f"{sources.item()}: {error} Or change or remove the example.", error.labels)
