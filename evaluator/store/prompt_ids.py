"""Give requests the ids of their prompts: rows that request the same have the same id, in every store."""

import hashlib

import polars as pl

from evaluator.schemas import PROMPTS

ROWS_PER_BATCH = 65_536


def with_prompt_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `prompt_id` to all request rows of a store. Rows without `spans` are texts that ask nothing."""
    if "spans" not in rows.columns:
        rows = rows.with_columns(spans=pl.lit(None, PROMPTS["spans"]))
    rows = with_digests(rows)
    return with_other_ids(rows, other_ids(rows))


def with_digests(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `prompt_id`, a digest of the prompt and its continuations, which does not tell other spans apart."""
    # Polars' hash is too short for ids on disk, and differs between versions.
    asked = rows.select("prompt", "ask", "continuations").iter_slices(ROWS_PER_BATCH)
    parts = [[_digest(prompt, *_hashed(ask, texts)) for prompt, ask, texts in part.iter_rows()] for part in asked]
    ids = pl.concat([pl.Series("prompt_id", [], pl.String), *(pl.Series("prompt_id", part) for part in parts)])
    return rows.with_columns(ids)


def other_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the ids of prompts that have the text of another and other spans: all but the first also hash the spans.

    One text can be read as two prompts, if a text field looks like a demonstration.

    Args:
        rows: of with_digests, all that have the same digests, with `spans`.

    Returns prompt_id (the digest), spans and other_id.
    """
    key = ["prompt_id", "spans"]
    repeated = rows.filter(pl.col("prompt_id").is_duplicated())
    readings = (
        repeated.select(key).unique().sort("spans").with_columns(reading=pl.int_range(pl.len()).over("prompt_id"))
    )
    again = readings.filter(pl.col("reading") > 0).select(key)
    asked = repeated.select(*key, "prompt", "ask", "continuations").unique(key)
    again = again.join(asked, on=key, nulls_equal=True)
    ids = [
        _digest(prompt, *_hashed(ask, texts), *([] if spans is None else [repr(spans)]))
        for prompt, ask, texts, spans in again.select("prompt", "ask", "continuations", "spans").iter_rows()
    ]
    return again.select(*key, other_id=pl.Series(ids, dtype=pl.String))


def with_other_ids(rows: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """Replace the digests of rows by the ids of other_ids."""
    if others.is_empty():
        return rows
    joined = rows.join(others, on=["prompt_id", "spans"], how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(prompt_id=pl.coalesce("other_id", "prompt_id")).drop("other_id")


def _digest(*texts: str) -> str:
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=16).hexdigest()


def _hashed(ask: str, continuations: list[str]) -> list[str]:
    """Return what is hashed with the prompt: its continuations, or an empty text for the prompt's own likelihood."""
    return [""] if ask == "text" else continuations
