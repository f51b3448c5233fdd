"""Collect what was asked of a model and what it answered, one row a request: the table of single queries."""

from collections.abc import Iterable, Iterator
from itertools import groupby

import polars as pl

from evaluator.methods.base import ScoredRequests
from evaluator.metrics.per_request import by_group
from evaluator.schemas import PREDICTIONS, PROMPTS_KEY, QUERIES, QUERIES_KEY
from evaluator.store.shards import of_height

ROWS_TOGETHER = 65_536
"""Rows whose texts are in memory at once; the texts are read once for each so many."""

QUERY_TEXTS = pl.Schema({"prompt_id": pl.String(), "query": pl.String()})


def query_texts(prompts: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Yield QUERY_TEXTS of frames of schemas.PROMPTS. The query is what follows the last demonstration."""
    start = pl.col("spans").list.last().struct.field("start").fill_null(0)
    for rows in prompts:
        yield rows.select("prompt_id", query=pl.col("prompt").str.slice(start).str.strip_chars())


def query_frames(scored: ScoredRequests, texts: pl.LazyFrame, predictions: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Yield schemas.QUERIES, sorted by its key, frame by frame: every prompt that some method answered a query with.

    Args:
        scored: of the run.
        texts: QUERY_TEXTS of all its stores, where an id may be in several.
        predictions: schemas.PREDICTIONS.
    """
    for some in of_height(_answered(predictions), ROWS_TOGETHER):
        ids = some.lazy().select(PROMPTS_KEY)
        scores = _of_prompts(scored.rows, ids).select(*PROMPTS_KEY, "label_log_likelihoods")
        rows = some.lazy()
        for columns in (_of_prompts(texts, ids), scores):
            by_prompt = columns.unique(PROMPTS_KEY, keep="first")
            rows = rows.join(by_prompt, on=PROMPTS_KEY, how="left", maintain_order="left")
        yield rows.select(pl.col(name).cast(dtype) for name, dtype in QUERIES.items()).collect(engine="streaming")


def _answered(predictions: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """Yield the rows of QUERIES without texts and scores, sorted by its key, one part and dataset after the other."""
    place, key = QUERIES_KEY[:3], QUERIES_KEY[3:]
    columns = [*key, "n_wrong_labels", "gold", "label_names"]
    yield PREDICTIONS.to_frame().select(*place, *columns)
    frames = by_group(predictions, columns)
    for values, of_place in groupby(frames, key=lambda frame: frame.select(place).row(0)):
        distinct: list[pl.DataFrame] = []  # most methods answer the same prompts
        for frame in of_place:
            rows = frame.select(columns)
            distinct += [] if any(rows.equals(other) for other in distinct) else [rows]
        ordered = pl.concat(distinct).sort(key)
        as_above = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift()) for name in key)
        is_first = pl.int_range(pl.len()) == 0
        shared = (pl.lit(value).alias(name) for name, value in zip(place, values, strict=True))
        yield ordered.filter(is_first | ~as_above).select(*shared, pl.all())


def _of_prompts(rows: pl.LazyFrame, ids: pl.LazyFrame) -> pl.LazyFrame:
    return rows.join(ids, on=PROMPTS_KEY, how="semi")
