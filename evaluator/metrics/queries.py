"""Collect what was asked of a model and what it answered, one row a request: the table of single queries."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from evaluator.methods.base import ScoredRequests
from evaluator.schemas import PREDICTIONS, PROMPTS_KEY, QUERIES, QUERIES_KEY
from evaluator.store.key_order import PLACE, in_order_of_places, place
from evaluator.store.sorted_runs import SortedRuns

ROWS_TOGETHER = 131_072
"""Prompts of which the texts, scores and answers are joined at once; the answers are read once for each so many."""

QUERY_TEXTS = pl.Schema({"prompt_id": pl.String(), "query": pl.String()})


def query_texts(prompts: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield QUERY_TEXTS of frames of schemas.PROMPTS. The query is what follows the last demonstration."""
    start = pl.col("spans").list.last().struct.field("start").fill_null(0)
    for rows in prompts:
        yield rows.select("prompt_id", query=pl.col("prompt").str.slice(start).str.strip_chars())


def query_frames(
    scored: ScoredRequests, texts: Iterable[pl.DataFrame], predictions: pl.LazyFrame, folder: Path
) -> Iterator[pl.DataFrame]:
    """Yield schemas.QUERIES, sorted by its key, frame by frame: every prompt that some method answered a query with.

    Args:
        scored: of the run.
        texts: QUERY_TEXTS of all its stores, where an id may be in several.
        predictions: schemas.PREDICTIONS.
        folder: for rows that do not fit into memory, in files without a name.
    """
    by_prompt = SortedRuns(folder, "prompt_id", lambda rows: rows.sort("prompt_id", maintain_order=True))
    for rows in texts:
        by_prompt.add(rows)
    in_order, first = SortedRuns(folder, PLACE, in_order_of_places), ""
    for some, before in by_prompt.ranges(ROWS_TOGETHER):
        is_here = pl.col("prompt_id") >= first
        if before is not None:
            is_here, first = is_here & (pl.col("prompt_id") < before), before
        in_order.add(_joined(scored, some.unique(PROMPTS_KEY, keep="first"), predictions, is_here))
    for rows, _ in in_order.ranges(ROWS_TOGETHER):
        yield rows.drop(PLACE)


def _joined(scored: ScoredRequests, texts: pl.DataFrame, predictions: pl.LazyFrame, is_here: pl.Expr) -> pl.DataFrame:
    """Return QUERIES of the prompts for which a condition on the id holds, and the order of their keys as a text."""
    columns = [*QUERIES_KEY, "n_wrong_labels", "gold", "label_names"]
    # Most methods answer the same prompts.
    answered = predictions.filter(is_here).select(columns).unique(QUERIES_KEY, keep="first", maintain_order=True)
    scores = scored.rows.filter(is_here).select(*PROMPTS_KEY, "label_log_likelihoods").unique(PROMPTS_KEY, keep="first")
    rows = answered.join(texts.lazy(), on=PROMPTS_KEY, how="left").join(scores, on=PROMPTS_KEY, how="left")
    table = rows.select(pl.col(name).cast(dtype) for name, dtype in QUERIES.items())
    return table.with_columns(place(QUERIES_KEY, QUERIES)).collect(engine="streaming")


assert {*QUERIES_KEY} < {*PREDICTIONS}, "answers say which query they are of"
