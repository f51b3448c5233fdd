"""Ids of prompts and of tokens in joins of millions of rows: as numbers, and some of them at a time."""

import math

import polars as pl


def id_numbers(name: str) -> pl.Expr:
    """Return the ids in a column, 32 hex digits each, as numbers of 16 bytes: a third of what the texts take."""
    return pl.col(name).str.decode("hex").bin.reinterpret(dtype=pl.Int128, endianness="big")


def buckets(n_rows: int, rows_per_bucket: int) -> list[pl.Expr]:
    """Return conditions on `prompt_id` that part this many rows; ids are hex digests, so that they spread evenly."""
    n = math.ceil(n_rows / rows_per_bucket)
    if n <= 1:
        return [pl.lit(True)]
    edges = [f"{16**4 * number // n:04x}" for number in range(n)]
    prompt = pl.col("prompt_id")
    return [
        (prompt >= low) if high is None else (prompt >= low) & (prompt < high)
        for low, high in zip(edges, [*edges[1:], None], strict=True)
    ]
