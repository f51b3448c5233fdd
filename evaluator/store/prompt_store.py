"""The prompt store: request rows and distinct prompts as Arrow files.

Everything that a suite or method requests is a row of REQUESTS; rows that request the same share one row of PROMPTS. A
store's folder is named by a fingerprint of everything that determines its content, so an outdated store is never read.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import polars as pl

from evaluator.errors import StoreError
from evaluator.files.json_files import MANIFEST, read_manifest
from evaluator.schemas import PROMPTS, PROMPTS_KEY, REQUESTS
from evaluator.store import shards
from evaluator.store.tables import id_numbers

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
    verified: set[str] = field(default_factory=set, compare=False)  # files whose SHA-256 was checked

    @property
    def fingerprint(self) -> str:
        return self.folder.name

    def without(self, datasets: Iterable[str]) -> "PromptStore":
        """Return the store without the rows of these datasets; on disk they stay."""
        left_out = {*self.left_out, *datasets} - self.manifest.left_out.keys()  # which have no rows
        return replace(self, left_out=tuple(sorted(left_out)))

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
        numbered = rows.with_columns(number=id_numbers("prompt_id"))
        return numbered.join(self._requested, on="number", how="semi", maintain_order="left").drop("number")

    @cached_property
    def _requested(self) -> pl.LazyFrame:
        """The ids of the prompts that some request has, in memory as numbers: they are compared with every shard."""
        ids = self.requests().select(number=id_numbers("prompt_id")).unique()
        return ids.collect(engine="streaming").lazy()

    def requests_with_prompts(self) -> pl.LazyFrame:
        """Return all requests with the prompt, ask and continuations of each."""
        return self.requests().join(self.prompts(), on=PROMPTS_KEY, how="left", maintain_order="left")

    def table(self, name: str, schema: pl.Schema) -> pl.LazyFrame:
        """Return a suite's side table; without rows if the suite wrote none."""
        rows = self._scan(self.manifest.tables.get(name, {}), schema)
        return self._kept(rows) if "dataset" in schema else rows

    def changed_files(self, files: Mapping[str, str] | None = None) -> list[str]:
        """Return the files, of these or of all, that are missing or whose SHA-256 differs from the manifest's."""
        checked = self.manifest.files if files is None else files
        unverified = {name: sha256 for name, sha256 in checked.items() if name not in self.verified}
        changed = shards.changed(self.folder, unverified)
        self.verified.update(unverified.keys() - {*changed})
        return changed

    def require_intact(self, files: Mapping[str, str] | None = None) -> None:
        """Raise StoreError if one of these files, or of all, is missing or damaged."""
        if changed := self.changed_files(files):
            raise StoreError(
                f"{self.folder} is not an intact prompt store: {changed[0]} is missing, or its SHA-256 is not the "
                f"one in the manifest. {self.hint}"
            )

    def _scan(self, files: Mapping[str, str], schema: pl.Schema) -> pl.LazyFrame:
        self.require_intact(files)
        return shards.scan_shards(self.folder, list(files), schema)

    def _kept(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        return rows.filter(~pl.col("dataset").is_in(self.left_out)) if self.left_out else rows


def open_store(folder: Path) -> PromptStore | None:
    """Open the store in a folder, whose files are verified when they are read; None if there is none."""
    manifest = read_manifest(folder / MANIFEST, StoreManifest)
    return None if manifest is None else PromptStore(folder, manifest)


def open_intact_store(folder: Path) -> PromptStore | None:
    """Open the store in a folder and verify all of it; None if there is none or a file is missing or damaged."""
    store = open_store(folder)
    return None if store is None or store.changed_files() else store


def require_store(folder: Path, hint: str) -> PromptStore:
    """Open the store in a folder as open_store does. Raises StoreError, ending in `hint`, if it is missing."""
    store = open_store(folder)
    if store is None:
        raise StoreError(f"{folder} holds no complete prompt store. {hint}")
    return replace(store, hint=hint)
