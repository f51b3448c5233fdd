"""Prompts on disk: request rows and distinct prompts as Arrow files, whole or absent.

Everything that a suite or method requests is a row of REQUESTS; rows that request the same share one row of PROMPTS. A
store's folder is named by a fingerprint of all that decides its content, so a stale store can be left behind but never
be read.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from evaluator.errors import StoreError
from evaluator.files import MANIFEST, read_record, write_record
from evaluator.schemas import PROMPTS, PROMPTS_KEY, REQUESTS, REQUESTS_KEY
from evaluator.store import shards

ROWS_PER_SHARD = 65_536


@dataclass(frozen=True, kw_only=True)
class StoreManifest:
    """manifest.json of a store."""

    n_requests: int
    n_prompts: int
    requests: dict[str, str]  # file -> SHA-256
    prompts: dict[str, str]
    tables: dict[str, dict[str, str]]  # what suites wrote next to their requests: name -> file -> SHA-256


@dataclass(frozen=True)
class PromptStore:
    """A store on disk, whole."""

    folder: Path
    manifest: StoreManifest

    @property
    def fingerprint(self) -> str:
        return self.folder.name

    def requests(self) -> pl.LazyFrame:
        """All requests, in the order of their key."""
        return shards.scan_shards(self.folder, list(self.manifest.requests), REQUESTS)

    def prompts(self) -> pl.LazyFrame:
        """Distinct prompts, in the order of their text, so that neighbours share the longest prefix."""
        return shards.scan_shards(self.folder, list(self.manifest.prompts), PROMPTS)

    def requests_with_prompts(self) -> pl.LazyFrame:
        """All requests with the prompt, ask and continuations of each."""
        return self.requests().join(self.prompts(), on=PROMPTS_KEY, how="left", maintain_order="left")

    def table(self, name: str, schema: pl.Schema) -> pl.LazyFrame:
        """A table that a suite wrote next to its requests; without rows where it wrote none."""
        return shards.scan_shards(self.folder, list(self.manifest.tables.get(name, {})), schema)


def with_prompt_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """Give rows that request the same the same id: a digest of the prompt and its continuations."""
    distinct = rows.select("prompt", "ask", "continuations").unique()
    # Polars' own hash is neither wide enough nor the same in every version, and ids are kept on disk.
    ids = [
        hashlib.blake2b("\0".join([prompt, *_hashed(ask, continuations)]).encode(), digest_size=16).hexdigest()
        for prompt, ask, continuations in distinct.iter_rows()
    ]
    identified = distinct.with_columns(prompt_id=pl.Series(ids, dtype=pl.String))
    return rows.join(identified, on=["prompt", "ask", "continuations"])


def _hashed(ask: str, continuations: list[str]) -> list[str]:
    """What is hashed next to the prompt; an empty text where the prompt's own likelihood is requested."""
    return [""] if ask == "text" else continuations


def write_store(folder: Path, rows: pl.DataFrame, tables: Mapping[str, pl.DataFrame]) -> PromptStore:
    """Write request rows with their prompts, and the suites' own tables.

    Args:
        folder: of the store; its name is the store's fingerprint.
        rows: columns of REQUESTS and PROMPTS.
        tables: by name, sorted.
    """
    requests = rows.select(pl.col(name).cast(dtype) for name, dtype in REQUESTS.items()).sort(REQUESTS_KEY)
    repeated = requests.filter(requests.select(REQUESTS_KEY).is_duplicated())
    assert repeated.is_empty(), f"a suite or method gave one position twice: {repeated.row(0, named=True)}"
    prompts = (
        rows.select(pl.col(name).cast(dtype) for name, dtype in PROMPTS.items())
        .unique(PROMPTS_KEY)
        .sort("prompt", "prompt_id")
    )
    manifest = StoreManifest(
        n_requests=requests.height,
        n_prompts=prompts.height,
        requests=shards.write_shards(folder, "requests", requests, rows=ROWS_PER_SHARD),
        prompts=shards.write_shards(folder, "prompts", prompts, rows=ROWS_PER_SHARD),
        tables={name: shards.write_shards(folder, name, table, rows=ROWS_PER_SHARD) for name, table in tables.items()},
    )
    write_record(folder / MANIFEST, manifest)
    return PromptStore(folder, manifest)


def open_store(folder: Path) -> PromptStore | None:
    """The store in this folder, or None when there is none or a shard of it is missing or changed."""
    manifest = read_record(folder / MANIFEST, StoreManifest)
    if manifest is None:
        return None
    tables = {file: digest for table in manifest.tables.values() for file, digest in table.items()}
    if not shards.intact(folder, manifest.requests | manifest.prompts | tables):
        return None
    return PromptStore(folder, manifest)


def require_store(folder: Path) -> PromptStore:
    """As open_store. Raises StoreError where there is no whole store."""
    store = open_store(folder)
    if store is None:
        raise StoreError(f"{folder} holds no whole prompt store. Run `evaluator build` for this output folder again.")
    return store
