"""The prompt store: request rows and distinct prompts as Arrow files.

Everything that a suite or method requests is a row of REQUESTS; rows that request the same share one row of PROMPTS. A
store's folder is named by a fingerprint of everything that determines its content, so an outdated store is never read.

Write a prompt store: requests get the ids of their prompts, and repeated prompts and requests are written once.

Rows need not fit into memory: Polars sorts them into temporary files around the store (`evaluator.store.tables`).
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import polars as pl

from evaluator.errors import StoreError
from evaluator.files.json_files import MANIFEST, read_manifest, write_record
from evaluator.schemas import PROMPTS, PROMPTS_KEY, REQUESTS, REQUESTS_KEY
from evaluator.store.tables import changed, id_numbers, kept, scan_shards, write_shards

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
        faulty = changed(self.folder, unverified) if unverified else []
        self.verified.update(unverified.keys() - {*faulty})
        return faulty

    def require_intact(self, files: Mapping[str, str] | None = None) -> None:
        """Raise StoreError if one of these files, or of all, is missing or damaged."""
        if faulty := self.changed_files(files):
            raise StoreError(
                f"{self.folder} is not an intact prompt store: {faulty[0]} is missing, or its SHA-256 is not the "
                f"one in the manifest. {self.hint}"
            )

    def _scan(self, files: Mapping[str, str], schema: pl.Schema) -> pl.LazyFrame:
        self.require_intact(files)
        return scan_shards(self.folder, list(files), schema)

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
        name: write_shards(folder, name, table.lazy(), rows_per_shard=ROWS_PER_SHARD)
        for name, table in (tables or {}).items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    named = with_other_ids(rows)
    distinct_prompts = named.select(PROMPTS.names()).sort("prompt", *PROMPTS_KEY).filter(~_repeats(PROMPTS_KEY))
    # Rows that repeat the key and the prompt of the row above are one request.
    in_order = named.select(REQUESTS.names()).with_row_index("row").sort(*REQUESTS_KEY, "row").drop("row")
    distinct_requests = in_order.filter(~_repeats([*REQUESTS_KEY, *PROMPTS_KEY]))
    with kept(distinct_prompts, folder) as prompts, kept(distinct_requests, folder) as requests:
        repeated = requests.filter(_repeats(REQUESTS_KEY)).head(1).collect()
        assert repeated.is_empty(), f"a suite or method used one position twice: {repeated.row(0, named=True)}"
        manifest = StoreManifest(
            n_requests=requests.select(pl.len()).collect().item(),
            n_prompts=prompts.select(pl.len()).collect().item(),
            requests=write_shards(folder, "requests", requests, rows_per_shard=ROWS_PER_SHARD),
            prompts=write_shards(folder, "prompts", prompts, rows_per_shard=ROWS_PER_SHARD),
            tables=digests,
            left_out=dict(left_out or {}),
        )
    write_record(folder / MANIFEST, manifest)
    return PromptStore(folder, manifest, verified={*manifest.files})


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
