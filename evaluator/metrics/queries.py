"""Join the requests of a run with their texts and scores, one row a request: the table of single queries."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from evaluator.methods.base import ScoredRequests
from evaluator.schemas import PREDICTIONS, PROMPTS_KEY, QUERIES, QUERIES_KEY
from evaluator.store.tables import kept, slices

ROWS_JOINED = 131_072
"""Rows that are joined with their texts and scores at once; all texts and scores are read for each so many rows."""

assert {*QUERIES_KEY} < {*PREDICTIONS}, "answers say which query they are of"


def query_texts(prompts: pl.LazyFrame) -> pl.LazyFrame:
    """Return prompt_id and `query` of schemas.PROMPTS. The query is what follows the last demonstration."""
    start = pl.col("spans").list.last().struct.field("start").fill_null(0)
    return prompts.select("prompt_id", query=pl.col("prompt").str.slice(start).str.strip_chars())


def queries_table(
    scored: ScoredRequests, texts: pl.LazyFrame, predictions: pl.LazyFrame, folder: Path
) -> Iterator[pl.DataFrame]:
    """Yield schemas.QUERIES, sorted by its key, some rows at a time: every prompt that a method answered a query with.

    Args:
        scored: of the run.
        texts: query_texts of all its stores, where an id may be in several.
        predictions: schemas.PREDICTIONS.
        folder: for a temporary file.
    """
    columns = [*QUERIES_KEY, "n_wrong_labels", "gold", "label_names"]
    scores = scored.rows.select(*PROMPTS_KEY, "label_log_likelihoods")
    # Most methods answer the same prompts. Sorted first: rows are moved to disk by a sort, and not by `unique`.
    distinct = predictions.select(columns).sort(QUERIES_KEY).unique(QUERIES_KEY, keep="first", maintain_order=True)
    with kept(distinct, folder) as answers:
        for rows in slices(answers, ROWS_JOINED):
            # The ids of the slice are what a join holds: a join with all texts and scores would hold these.
            ids = rows.lazy().select(PROMPTS_KEY).unique()
            joined = rows
            for by_prompt in (texts, scores):
                found = by_prompt.join(ids, on=PROMPTS_KEY, how="semi").unique(PROMPTS_KEY, keep="any")
                joined = joined.join(
                    found.collect(engine="streaming"), on=PROMPTS_KEY, how="left", maintain_order="left"
                )
            yield joined.select(pl.col(name).cast(dtype) for name, dtype in QUERIES.items())
