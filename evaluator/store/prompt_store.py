"""The prompt store: request rows and distinct prompts as Arrow files.

Everything that a suite or method requests is a row of REQUESTS; rows that request the same share one row of PROMPTS. A
store's folder is named by a fingerprint of everything that determines its content, so an outdated store is never read.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import polars as pl

from evaluator.errors import StoreError
from evaluator.files.json_files import MANIFEST, read_manifest, write_record
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
    left_out: dict[str, str] = field(default_factory=dict)  # dataset -> why it has no requests

    @property
    def files(self) -> dict[str, str]:
        """Every file with its SHA-256."""
        tables = {file: digest for table in self.tables.values() for file, digest in table.items()}
        return self.requests | self.prompts | tables


@dataclass(frozen=True)
class PromptStore:
    """A store on disk, each file of which is verified before this process first reads it."""

    folder: Path
    manifest: StoreManifest
    left_out: tuple[str, ...] = ()  # datasets whose rows are not read
    hint: str = "Run the same command again."  # what to do where a file is damaged
    verified: set[str] = field(default_factory=set, compare=False)  # files with the bytes that they were written with

    @property
    def fingerprint(self) -> str:
        return self.folder.name

    def without(self, datasets: Iterable[str]) -> "PromptStore":
        """Return the store without the rows of these datasets; on disk they stay."""
        return replace(self, left_out=tuple(sorted({*self.left_out, *datasets})))

    def requests(self) -> pl.LazyFrame:
        """Return all requests, sorted by their key."""
        return self._kept(self._scan(self.manifest.requests, REQUESTS))

    def prompts(self) -> pl.LazyFrame:
        """Return the distinct prompts, sorted by text, so that neighbours share long prefixes."""
        return self.requested(self._scan(self.manifest.prompts, PROMPTS))

    def prompts_by_shard(self) -> Iterator[pl.DataFrame]:
        """Yield the same rows, shard by shard."""
        for name, sha256 in self.manifest.prompts.items():
            yield self.requested(self._scan({name: sha256}, PROMPTS)).collect()

    def requested(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Return the rows whose `prompt_id` some request has."""
        if not self.left_out:
            return rows
        return rows.join(self.requests().select("prompt_id"), on="prompt_id", how="semi", maintain_order="left")

    def requests_with_prompts(self) -> pl.LazyFrame:
        """Return all requests with the prompt, ask and continuations of each."""
        return self.requests().join(self.prompts(), on=PROMPTS_KEY, how="left", maintain_order="left")

    def table(self, name: str, schema: pl.Schema) -> pl.LazyFrame:
        """Return a suite's side table; without rows if the suite wrote none."""
        rows = self._scan(self.manifest.tables.get(name, {}), schema)
        return self._kept(rows) if "dataset" in schema else rows

    def changed_files(self, files: Mapping[str, str] | None = None) -> list[str]:
        """Return the files that are missing or have other bytes than they were written with, of these or of all."""
        asked = self.manifest.files if files is None else files
        unverified = {name: sha256 for name, sha256 in asked.items() if name not in self.verified}
        changed = shards.changed(self.folder, unverified)
        self.verified.update(unverified.keys() - {*changed})
        return changed

    def require_whole(self, files: Mapping[str, str] | None = None) -> None:
        """Raise StoreError if one of these files, or of all, is missing or damaged."""
        if changed := self.changed_files(files):
            raise StoreError(
                f"{self.folder} holds no complete prompt store: {changed[0]} is missing or has other bytes than it was "
                f"written with. {self.hint}"
            )

    def _scan(self, files: Mapping[str, str], schema: pl.Schema) -> pl.LazyFrame:
        self.require_whole(files)
        return shards.scan_shards(self.folder, list(files), schema)

    def _kept(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        return rows.filter(~pl.col("dataset").is_in(self.left_out)) if self.left_out else rows


def with_prompt_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `prompt_id`, a digest of the prompt and its continuations: rows that request the same have the same id.

    Rows without `spans` are texts that ask nothing.
    """
    if "spans" not in rows.columns:
        rows = rows.with_columns(spans=pl.lit(None, PROMPTS["spans"]))
    # Polars' hash is too short for ids on disk, and differs between versions.
    asked = rows.select("prompt", "ask", "continuations").iter_slices(ROWS_PER_SHARD)
    parts = [[_digest(prompt, *_hashed(ask, texts)) for prompt, ask, texts in part.iter_rows()] for part in asked]
    ids = pl.concat([pl.Series("prompt_id", [], pl.String), *(pl.Series("prompt_id", part) for part in parts)])
    return _with_readings(rows.with_columns(ids))


def _with_readings(rows: pl.DataFrame) -> pl.DataFrame:
    """Tell prompts with the same text apart that have different spans: all but the first also hash the spans.

    One text can be read as two prompts, if a text field looks like a demonstration.
    """
    key = ["prompt_id", "spans"]
    repeated = rows.filter(pl.col("prompt_id").is_duplicated())
    readings = (
        repeated.select(key).unique().sort("spans").with_columns(reading=pl.int_range(pl.len()).over("prompt_id"))
    )
    again = readings.filter(pl.col("reading") > 0).select(key)
    if again.is_empty():
        return rows
    asked = repeated.select(*key, "prompt", "ask", "continuations").unique(key)
    again = again.join(asked, on=key, nulls_equal=True)
    ids = [
        _digest(prompt, *_hashed(ask, texts), *([] if spans is None else [repr(spans)]))
        for prompt, ask, texts, spans in again.select("prompt", "ask", "continuations", "spans").iter_rows()
    ]
    named = again.select(key).with_columns(other_id=pl.Series(ids, dtype=pl.String))
    joined = rows.join(named, on=key, how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(prompt_id=pl.coalesce("other_id", "prompt_id")).drop("other_id")


def _digest(*texts: str) -> str:
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=16).hexdigest()


def _hashed(ask: str, continuations: list[str]) -> list[str]:
    """Return what is hashed with the prompt: its continuations, or an empty text for the prompt's own likelihood."""
    return [""] if ask == "text" else continuations


def write_store(
    folder: Path, rows: pl.DataFrame, tables: Mapping[str, pl.DataFrame], left_out: Mapping[str, str] | None = None
) -> PromptStore:
    """Write request rows, their distinct prompts and the suites' side tables.

    Args:
        folder: of the store; its name is the store's fingerprint.
        rows: columns of REQUESTS and PROMPTS.
        tables: side tables by name, sorted.
        left_out: datasets without requests, and why.
    """
    requests = rows.select(pl.col(name).cast(dtype) for name, dtype in REQUESTS.items()).sort(REQUESTS_KEY)
    as_above = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift()) for name in REQUESTS_KEY)
    repeated = requests.filter(as_above)
    assert repeated.is_empty(), f"a suite or method used one position twice: {repeated.row(0, named=True)}"
    distinct = rows.filter(pl.col("prompt_id").is_first_distinct())
    prompts = distinct.select(pl.col(name).cast(dtype) for name, dtype in PROMPTS.items())
    # By text, then by id. One column at a time, as to sort by two Polars copies the texts.
    prompts = prompts.sort("prompt_id").sort("prompt", maintain_order=True)
    manifest = StoreManifest(
        n_requests=requests.height,
        n_prompts=prompts.height,
        requests=shards.write_shards(folder, "requests", [requests], rows=ROWS_PER_SHARD),
        prompts=shards.write_shards(folder, "prompts", [prompts], rows=ROWS_PER_SHARD),
        tables={
            name: shards.write_shards(folder, name, [table], rows=ROWS_PER_SHARD) for name, table in tables.items()
        },
        left_out=dict(left_out or {}),
    )
    write_record(folder / MANIFEST, manifest)
    return PromptStore(folder, manifest, verified={*manifest.files})


def open_store(folder: Path) -> PromptStore | None:
    """Open the store in a folder, whose files are verified when they are read; None if there is none."""
    manifest = read_manifest(folder / MANIFEST, StoreManifest)
    return None if manifest is None else PromptStore(folder, manifest)


def whole_store(folder: Path) -> PromptStore | None:
    """Open the store in a folder and verify all of it; None if there is none or a file is missing or damaged."""
    store = open_store(folder)
    return None if store is None or store.changed_files() else store


def require_store(folder: Path, hint: str) -> PromptStore:
    """Open the store in a folder as open_store does. Raises StoreError, ending in `hint`, if it is missing."""
    store = open_store(folder)
    if store is None:
        raise StoreError(f"{folder} holds no complete prompt store. {hint}")
    return replace(store, hint=hint)
