"""Join many requests with their scores: each table is read once, sorted on disk, and joined range by range."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from evaluator.schemas import PROMPTS_KEY
from evaluator.scores.prompts import scores_by_prompt, token_ids
from evaluator.scores.table import ScoreTable
from evaluator.store.sorted_runs import SortedRuns, merged
from evaluator.store.tables import slices

ROWS_JOINED_IN_MEMORY = 131_072
ROWS_TOGETHER = 131_072
"""Rows that are in memory at once, about."""


def are_many(n_requests: int) -> bool:
    """Return whether so many requests are better joined by this module than in memory."""
    return n_requests > ROWS_JOINED_IN_MEMORY


def joined_requests(
    requests: pl.LazyFrame, tokens: pl.LazyFrame, table: ScoreTable, folder: Path
) -> Iterator[pl.DataFrame]:
    """Yield schemas.REQUESTS with their schemas.SCORES, in their order; requests without scores are left out.

    Args:
        requests: to join, read twice.
        tokens: schemas.TOKENS of their prompts, and of others.
        table: scores of these tokens.
        folder: of temporary files without a name.
    """
    by_prompt, of_requests, in_order = (SortedRuns(folder, key) for key in ("prompt_id", "prompt_id", "row"))
    for ids, scores in merged(*_by_token(tokens, table, folder), n_rows=ROWS_TOGETHER):
        by_prompt.add(ids.join(scores.unique("token_id", keep="first"), on="token_id").drop("token_id"))
    n_rows = 0
    for rows in slices(requests.select("prompt_id"), ROWS_TOGETHER):
        of_requests.add(rows.with_row_index("row", n_rows))
        n_rows += rows.height
    for rows, scores in merged(of_requests, by_prompt, n_rows=ROWS_TOGETHER):
        of_rows = rows.lazy().join(scores_by_prompt(scores.lazy()), on=PROMPTS_KEY)
        in_order.add(of_rows.drop("prompt_id").collect())
    n_rows = 0
    for rows in slices(requests, ROWS_TOGETHER):
        numbered = rows.with_row_index("row", n_rows)
        n_rows += rows.height
        yield numbered.join(in_order.take(n_rows), on="row", maintain_order="left").drop("row")


def _by_token(tokens: pl.LazyFrame, table: ScoreTable, folder: Path) -> tuple[SortedRuns, SortedRuns]:
    """Sort the ids of tokens and the scores by token."""
    ids, scores = SortedRuns(folder, "token_id"), SortedRuns(folder, "token_id")
    for rows in slices(token_ids(tokens), ROWS_TOGETHER):
        ids.add(rows)
    for rows in table.frames("scores"):
        scores.add(rows)
    return ids, scores
