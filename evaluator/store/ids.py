"""Ids of prompts and of tokens in joins of millions of rows: as numbers, and some of them at a time."""

import math
from collections.abc import Callable

import polars as pl

ROWS_PER_BUCKET = 131_072
"""Prompts that are joined with their requests, tokens or scores at a time, about."""


def id_numbers(name: str) -> pl.Expr:
    """Return the ids in a column, 32 hex digits each, as numbers of 16 bytes: a third of what the texts take."""
    return pl.col(name).str.decode("hex").bin.reinterpret(dtype=pl.Int128, endianness="big")


def buckets(n_rows: int) -> list[pl.Expr]:
    """Return conditions on `prompt_id` that part this many rows; ids are hex digests, so that they spread evenly."""
    n = math.ceil(n_rows / ROWS_PER_BUCKET)
    if n <= 1:
        return [pl.lit(True)]
    edges = [f"{16**4 * number // n:04x}" for number in range(n)]
    prompt = pl.col("prompt_id")
    return [
        (prompt >= low) if high is None else (prompt >= low) & (prompt < high)
        for low, high in zip(edges, [*edges[1:], None], strict=True)
    ]


def bucket_by_bucket(n_rows: int, query: Callable[[pl.Expr], pl.LazyFrame]) -> pl.DataFrame:
    """Collect a query for each of `buckets`, and return all rows. What it joins must be filtered by the condition."""
    return pl.concat([query(bucket).collect(engine="streaming") for bucket in buckets(n_rows)])
