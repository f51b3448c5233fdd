"""The mean accuracy over all prompts of a search, as samples of queries and of prompts."""

from collections.abc import Iterator

import polars as pl

from evaluator.arrays import Floats
from evaluator.metrics.design_study import Design
from evaluator.metrics.total_error import (
    CrossedAnswers,
    components_and_design,
    crossed_cells,
    crossed_headline,
    total_error,
)
from evaluator.suites.prompt_search.schema import SEARCH_GROUP

NAMES = {"query": "query", "level": "prompt", "interaction": "query x prompt and residual"}


def total_error_tables(answers: pl.DataFrame, prompts: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield variance_components, total_error and design_study, with the columns of schemas, of searches in which no
    prompt was stopped: those that went on were chosen by their answers.

    Args:
        answers, prompts: as returned by answers.answers and tables.prompts_table.
    """
    cases = [
        CrossedAnswers(
            {**key, "suite": "prompt-search", "definition": "paper", "metric": "accuracy"},
            cells,
            n_left_out,
            NAMES,
            Design(len(cells), cells.shape[1], 1),
        )
        for key, (cells, n_left_out) in complete_searches(answers, prompts)
    ]
    components, design = components_and_design(cases)
    yield "variance_components", components
    yield "total_error", total_error([crossed_headline(case, (0.0, 1.0), "queries and prompts") for case in cases])
    yield "design_study", design


def complete_searches(
    answers: pl.DataFrame, prompts: pl.DataFrame
) -> Iterator[tuple[dict[str, object], tuple[Floats, int]]]:
    """Yield SEARCH_GROUP and crossed_cells [query, different prompt, 1] of every search without stopped prompts."""
    complete = prompts.filter(~pl.col("is_stopped").any().over(SEARCH_GROUP))
    different = complete.filter(pl.col("prompt_number") == pl.col("first_alike"))
    marked = answers.join(different, on=[*SEARCH_GROUP, "prompt_number"], how="semi").rename({"place": "query_id"})
    for values, rows in marked.partition_by(SEARCH_GROUP, as_dict=True, maintain_order=True).items():
        key = dict(zip(SEARCH_GROUP, values, strict=True))
        yield key, crossed_cells(rows, "is_correct", "prompt_number", None)
