"""Collect what was asked of a model and what it answered, one row a request: the table of single queries."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from evaluator.methods.base import ScoredRequests
from evaluator.schemas import PREDICTIONS, PROMPTS_KEY, QUERIES, QUERIES_KEY
from evaluator.store.key_order import PLACE, in_order_of_places, place
from evaluator.store.sorted_runs import SortedRuns, merged
from evaluator.store.tables import slices

ROWS_ADDED, ROWS_TOGETHER = 131_072, 32_768
"""Rows that are sorted at once, and prompts of which the texts, scores and answers, many of one, are joined at once."""

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
    columns = [*QUERIES_KEY, "n_wrong_labels", "gold", "label_names"]
    scores = scored.rows.select(*PROMPTS_KEY, "label_log_likelihoods")
    by_prompt, answers_by_prompt, scores_by_prompt = (SortedRuns(folder, "prompt_id") for _ in range(3))
    for rows in texts:
        by_prompt.add(rows)
    for rows in slices(predictions.select(columns), ROWS_ADDED):
        answers_by_prompt.add(rows.unique(QUERIES_KEY, keep="first", maintain_order=True))
    for rows in slices(scores, ROWS_ADDED):
        scores_by_prompt.add(rows.unique(PROMPTS_KEY, keep="first", maintain_order=True))
    in_order = SortedRuns(folder, PLACE, in_order_of_places)
    for of_prompts in merged(by_prompt, answers_by_prompt, scores_by_prompt, n_rows=ROWS_TOGETHER):
        in_order.add(_joined(*of_prompts))
    for rows, _ in in_order.ranges(ROWS_TOGETHER):
        yield rows.drop(PLACE)


def _joined(texts: pl.DataFrame, answers: pl.DataFrame, scores: pl.DataFrame) -> pl.DataFrame:
    """Return QUERIES of some prompts, and the order of their keys as a text."""
    # Most methods answer the same prompts.
    rows = answers.unique(QUERIES_KEY, keep="first", maintain_order=True)
    for others in (texts, scores):
        rows = rows.join(others.unique(PROMPTS_KEY, keep="first"), on=PROMPTS_KEY, how="left")
    table = rows.select(pl.col(name).cast(dtype) for name, dtype in QUERIES.items())
    return table.with_columns(place(QUERIES_KEY, QUERIES))


assert {*QUERIES_KEY} < {*PREDICTIONS}, "answers say which query they are of"
