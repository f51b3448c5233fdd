"""Write a prompt store: requests get the ids of their prompts, and repeated prompts and requests are written once.

Rows need not fit into memory: Polars sorts them into temporary files around the store (`evaluator.store.tables`).
"""

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import polars as pl

from evaluator.files.json_files import MANIFEST, write_record
from evaluator.schemas import PROMPTS, PROMPTS_KEY, REQUESTS, REQUESTS_KEY
from evaluator.store import shards
from evaluator.store.prompt_store import ROWS_PER_SHARD, PromptStore, StoreManifest
from evaluator.store.tables import id_numbers, kept

REQUEST_ROWS = pl.Schema({**REQUESTS, **PROMPTS})
"""Columns of requests with their prompts."""


def as_request_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of REQUEST_ROWS, with `prompt_id` of with_digests; other columns that are missing are null."""
    return with_digests(rows).select(
        pl.col(name).cast(dtype) if name in rows.columns or name == "prompt_id" else pl.lit(None, dtype).alias(name)
        for name, dtype in REQUEST_ROWS.items()
    )


def kept_requests(frames: Iterable[pl.DataFrame], folder: Path) -> AbstractContextManager[pl.LazyFrame]:
    """Write requests to a temporary file in a folder until the context ends; return a scan of REQUEST_ROWS."""
    return kept(map(as_request_rows, frames), folder, REQUEST_ROWS)


def write_store(
    folder: Path,
    rows: pl.LazyFrame,
    tables: Mapping[str, pl.DataFrame] | None = None,
    left_out: Mapping[str, str] | None = None,
) -> PromptStore:
    """Write requests, once where they repeat, their distinct prompts and the suites' side tables.

    Args:
        folder: of the store; its name is the store's fingerprint.
        rows: REQUEST_ROWS, read several times.
        tables: side tables by name, sorted.
        left_out: datasets without requests, and why.
    """
    digests = {
        name: shards.write_shards(folder, name, table.lazy(), rows_per_shard=ROWS_PER_SHARD)
        for name, table in (tables or {}).items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    named = with_other_ids(rows)
    with kept(_distinct_prompts(named), folder) as prompts, kept(_distinct_requests(named), folder) as requests:
        repeated = requests.filter(_repeats(REQUESTS_KEY)).head(1).collect()
        assert repeated.is_empty(), f"a suite or method used one position twice: {repeated.row(0, named=True)}"
        manifest = StoreManifest(
            n_requests=requests.select(pl.len()).collect().item(),
            n_prompts=prompts.select(pl.len()).collect().item(),
            requests=shards.write_shards(folder, "requests", requests, rows_per_shard=ROWS_PER_SHARD),
            prompts=shards.write_shards(folder, "prompts", prompts, rows_per_shard=ROWS_PER_SHARD),
            tables=digests,
            left_out=dict(left_out or {}),
        )
    write_record(folder / MANIFEST, manifest)
    return PromptStore(folder, manifest, verified={*manifest.files})


def _distinct_prompts(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return schemas.PROMPTS, each prompt once, sorted by text."""
    return rows.select(PROMPTS.names()).sort("prompt", *PROMPTS_KEY).filter(~_repeats(PROMPTS_KEY))


def _distinct_requests(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return schemas.REQUESTS, sorted by key, without rows that repeat the key and the prompt of the row above."""
    in_order = rows.select(REQUESTS.names()).with_row_index("row").sort(*REQUESTS_KEY, "row").drop("row")
    return in_order.filter(~_repeats([*REQUESTS_KEY, *PROMPTS_KEY]))


def _repeats(columns: list[str]) -> pl.Expr:
    """Return whether a row has the same values in these columns as the row above."""
    return pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift()) for name in columns)


def with_prompt_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `prompt_id` to all request rows of a store. Rows without `spans` are texts that ask nothing."""
    if "spans" not in rows.columns:
        rows = rows.with_columns(spans=pl.lit(None, PROMPTS["spans"]))
    return with_other_ids(with_digests(rows).lazy()).collect()


def with_digests(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `prompt_id`, a digest of ask, prompt and continuations, which does not tell other spans apart."""
    # Polars' hash is too short for ids on disk, and differs between versions.
    texts = rows.select("prompt", "ask", "continuations").iter_rows()
    return rows.with_columns(prompt_id=pl.Series([_digest(*row) for row in texts], dtype=pl.String))


def with_other_ids(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Give a prompt that has the text of another and other spans an id of its own: a digest of the spans as well.

    One text can be read as two prompts, if a text field looks like a demonstration. The first by spans keeps its id.

    Args:
        rows: all that have the same digests (with_digests), with `spans`.
    """
    key, spans = ["prompt_id", "spans"], pl.col("spans").hash()
    readings = rows.group_by(number=id_numbers("prompt_id")).agg(lowest=spans.min(), highest=spans.max())
    several = readings.filter(pl.col("lowest") != pl.col("highest")).collect(engine="streaming")["number"]
    if several.is_empty():
        return rows
    repeated = rows.filter(id_numbers("prompt_id").is_in(several.implode()))
    distinct = repeated.select(*key, "prompt", "ask", "continuations").unique(key).sort(key).collect()
    again = distinct.filter(_repeats(["prompt_id"]))
    texts = again.select("prompt", "ask", "continuations", "spans").iter_rows()
    others = again.select(key).with_columns(other_id=pl.Series([_digest(*row) for row in texts], dtype=pl.String))
    joined = rows.join(others.lazy(), on=key, how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(prompt_id=pl.coalesce("other_id", "prompt_id")).drop("other_id")


def _digest(prompt: str, ask: str, continuations: list[str], spans: list[dict[str, int]] | None = None) -> str:
    # The prompt's own likelihood has an empty text for its continuations.
    texts = [prompt, *([""] if ask == "text" else continuations), *([] if spans is None else [repr(spans)])]
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=16).hexdigest()
