"""Collect what was asked of a model and what it answered, one row a request: the table of single queries."""

import polars as pl

from evaluator.methods.base import ScoredRequests
from evaluator.schemas import PROMPTS_KEY, QUERIES, QUERIES_KEY


def queries_table(scored: ScoredRequests, prompts: pl.LazyFrame, predictions: pl.DataFrame) -> pl.DataFrame:
    """Return schemas.QUERIES, sorted by its key: every prompt that some method answered a query with.

    Args:
        scored: of the run.
        prompts: schemas.PROMPTS of all its stores, where an id may be in several.
        predictions: schemas.PREDICTIONS.
    """
    answered = predictions.select(*QUERIES_KEY, "n_wrong_labels", "gold", "label_names").unique(QUERIES_KEY)
    texts = prompts.select(*PROMPTS_KEY, query=_query()).unique(PROMPTS_KEY)
    scores = scored.rows.select(*PROMPTS_KEY, "label_log_likelihoods").unique(PROMPTS_KEY, keep="first")
    rows = answered.lazy().join(texts, on=PROMPTS_KEY, how="left").join(scores, on=PROMPTS_KEY, how="left")
    table = rows.select(pl.col(name).cast(dtype) for name, dtype in QUERIES.items()).sort(QUERIES_KEY)
    return table.collect(engine="streaming")  # whole texts are never all in memory


def _query() -> pl.Expr:
    """Return the text of the query: what follows the last demonstration."""
    return pl.col("prompt").str.slice(pl.col("spans").list.last().struct.field("start").fill_null(0)).str.strip_chars()
