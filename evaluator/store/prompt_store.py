"""The prompt store: request rows and distinct prompts as Arrow files.

Everything that a suite or method requests is a row of REQUESTS; rows that request the same share one row of PROMPTS. A
store's folder is named by a fingerprint of everything that determines its content, so an outdated store is never read.
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
    tables: dict[str, dict[str, str]]  # the suites' side tables: name -> file -> SHA-256


@dataclass(frozen=True)
class PromptStore:
    """A complete store on disk."""

    folder: Path
    manifest: StoreManifest

    @property
    def fingerprint(self) -> str:
        return self.folder.name

    def requests(self) -> pl.LazyFrame:
        """Return all requests, sorted by their key."""
        return shards.scan_shards(self.folder, list(self.manifest.requests), REQUESTS)

    def prompts(self) -> pl.LazyFrame:
        """Return the distinct prompts, sorted by text, so that neighbours share long prefixes."""
        return shards.scan_shards(self.folder, list(self.manifest.prompts), PROMPTS)

    def requests_with_prompts(self) -> pl.LazyFrame:
        """Return all requests with the prompt, ask and continuations of each."""
        return self.requests().join(self.prompts(), on=PROMPTS_KEY, how="left", maintain_order="left")

    def table(self, name: str, schema: pl.Schema) -> pl.LazyFrame:
        """Return a suite's side table; without rows if the suite wrote none."""
        return shards.scan_shards(self.folder, list(self.manifest.tables.get(name, {})), schema)


def with_prompt_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `prompt_id`, a digest of the prompt and its continuations: rows that request the same have the same id."""
    distinct = rows.select("prompt", "ask", "continuations").unique()
    # Polars' hash is too short for ids on disk, and differs between versions.
    ids = [
        hashlib.blake2b("\0".join([prompt, *_hashed(ask, continuations)]).encode(), digest_size=16).hexdigest()
        for prompt, ask, continuations in distinct.iter_rows()
    ]
    identified = distinct.with_columns(prompt_id=pl.Series(ids, dtype=pl.String))
    return rows.join(identified, on=["prompt", "ask", "continuations"])


def _hashed(ask: str, continuations: list[str]) -> list[str]:
    """Return what is hashed with the prompt: its continuations, or an empty text for the prompt's own likelihood."""
    return [""] if ask == "text" else continuations


def write_store(folder: Path, rows: pl.DataFrame, tables: Mapping[str, pl.DataFrame]) -> PromptStore:
    """Write request rows, their distinct prompts and the suites' side tables.

    Args:
        folder: of the store; its name is the store's fingerprint.
        rows: columns of REQUESTS and PROMPTS.
        tables: side tables by name, sorted.
    """
    requests = rows.select(pl.col(name).cast(dtype) for name, dtype in REQUESTS.items()).sort(REQUESTS_KEY)
    repeated = requests.filter(requests.select(REQUESTS_KEY).is_duplicated())
    assert repeated.is_empty(), f"a suite or method used one position twice: {repeated.row(0, named=True)}"
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
    """Open the store in a folder; None if there is none or a shard is missing or changed."""
    manifest = read_record(folder / MANIFEST, StoreManifest)
    if manifest is None:
        return None
    tables = {file: digest for table in manifest.tables.values() for file, digest in table.items()}
    if not shards.intact(folder, manifest.requests | manifest.prompts | tables):
        return None
    return PromptStore(folder, manifest)


def require_store(folder: Path) -> PromptStore:
    """Open the store in a folder. Raises StoreError if it is missing or incomplete."""
    store = open_store(folder)
    if store is None:
        raise StoreError(
            f"{folder} holds no complete prompt store. Run `evaluator build` for this output folder again."
        )
    return store
