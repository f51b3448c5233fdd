"""Join the requests of a run with their texts and scores, one row a request: the table of single queries."""

import polars as pl

from evaluator.methods.base import ScoredRequests
from evaluator.schemas import PREDICTIONS, PROMPTS_KEY, QUERIES, QUERIES_KEY

assert {*QUERIES_KEY} < {*PREDICTIONS}, "answers say which query they are of"


def query_texts(prompts: pl.LazyFrame) -> pl.LazyFrame:
    """Return prompt_id and `query` of schemas.PROMPTS. The query is what follows the last demonstration."""
    start = pl.col("spans").list.last().struct.field("start").fill_null(0)
    return prompts.select("prompt_id", query=pl.col("prompt").str.slice(start).str.strip_chars())


def queries_table(scored: ScoredRequests, texts: pl.LazyFrame, predictions: pl.LazyFrame) -> pl.LazyFrame:
    """Return schemas.QUERIES, sorted by its key: every prompt that some method answered a query with.

    Args:
        scored: of the run.
        texts: query_texts of all its stores, where an id may be in several.
        predictions: schemas.PREDICTIONS.
    """
    # Most methods answer the same prompts. Sorted first: rows are moved to disk by a sort, and not by `unique`.
    columns = [*QUERIES_KEY, "n_wrong_labels", "gold", "label_names"]
    rows = predictions.select(columns).sort(QUERIES_KEY).unique(QUERIES_KEY, keep="first", maintain_order=True)
    scores = scored.rows.select(*PROMPTS_KEY, "label_log_likelihoods")
    for by_prompt in (texts, scores):
        distinct = by_prompt.unique(PROMPTS_KEY, keep="any")
        rows = rows.join(distinct, on=PROMPTS_KEY, how="left", maintain_order="left")
    return rows.select(pl.col(name).cast(dtype) for name, dtype in QUERIES.items())
