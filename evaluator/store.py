"""The prompt store, and the tables between one step and the next.

Everything that a suite or method requests is a row of REQUESTS; rows that request the same share one row of PROMPTS:
requests get the ids of their prompts, and repeated prompts and requests are written once. A store's folder is named by
a fingerprint of everything that determines its content, so an outdated store is never read.

A shard, an Arrow file, is written under a temporary name, flushed to disk and renamed. It is valid once the manifest
names it, which is written after it in the same way. So a process killed at any moment leaves either the old state or
the new one.

Rows need not fit into memory: Polars' streaming engine sorts and joins tables of any size, and moves to disk what
exceeds its memory budget (`POLARS_OOC_MEMORY_BUDGET_MB` and `POLARS_OOC_SPILL_DIR`; the command sets the first, in
`evaluator/process.py`). A result that need not fit into memory is written by `kept`, to a temporary file without a
name, and read by `slices`.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from evaluator.errors import StoreError, WriteError
from evaluator.files.json_files import MANIFEST, read_manifest, write_record
from evaluator.files.whole import file_digest, reason, system_errors, write_bytes
from evaluator.schemas import PROMPTS, PROMPTS_KEY, REQUESTS, REQUESTS_KEY

ROWS_PER_SLICE = 65_536
"""Rows of a large table that are in memory together."""

ROWS_PER_GROUP = 16_384
"""Rows that a reader skips together if a condition on the columns that rows are sorted by excludes all of them."""

Rows = pl.LazyFrame | Iterable[pl.DataFrame]


@contextmanager
def kept(
    rows: Rows, folder: Path, schema: pl.Schema | None = None, *, rows_per_group: int = ROWS_PER_GROUP
) -> Iterator[pl.LazyFrame]:
    """Write rows to a temporary file without a name, and yield a scan of it. The file vanishes with the process.

    Args:
        rows: a query, which the streaming engine computes, or frames, of which one is in memory at a time.
        folder: of the file.
        schema: of the frames.
        rows_per_group: rows that a reader skips together.

    Raises WriteError if the file cannot be written.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(TemporaryFile(dir=folder))
            if isinstance(rows, pl.LazyFrame):
                with system_errors():
                    rows.sink_parquet(file, compression="lz4", row_group_size=rows_per_group, engine="streaming")
            else:
                assert schema is not None, "frames have a schema"
                _write_frames(file, rows, schema, rows_per_group)
            file.flush()
        except OSError as error:
            raise WriteError(
                f"Rows cannot be kept in {folder} for the next step: {reason(error)}. Make room there, and run the "
                "same command again."
            ) from error
        del rows  # which may hold frames in memory as long as this function waits
        yield pl.scan_parquet(f"/dev/fd/{file.fileno()}", glob=False)


def slices(rows: pl.LazyFrame, n_rows: int = ROWS_PER_SLICE) -> Iterator[pl.DataFrame]:
    """Yield the rows of a scan in order, `n_rows` at a time; without rows, one frame with the columns.

    (LazyFrame.collect_batches runs ahead of its reader.)
    """
    height = rows.select(pl.len()).collect().item()
    for first in range(0, max(height, 1), n_rows):
        yield rows.slice(first, n_rows).collect()


def id_numbers(name: str) -> pl.Expr:
    """Return the ids in a column, 32 hex digits each, as numbers of 16 bytes: a third of what the texts take."""
    return pl.col(name).str.decode("hex").bin.reinterpret(dtype=pl.Int128, endianness="big")


def _write_frames(file: IO[bytes], frames: Iterable[pl.DataFrame], schema: pl.Schema, rows_per_group: int) -> None:
    arrow = schema.to_frame().to_arrow(compat_level=pl.CompatLevel.oldest()).schema
    # Not as Arrow: pages of a mapped file that were read count as memory of this process.
    with pq.ParquetWriter(file, arrow, compression="lz4", use_dictionary=False) as writer:
        for frame in frames:
            writer.write_table(frame.to_arrow(compat_level=pl.CompatLevel.oldest()), rows_per_group)


def write_shard(path: Path, frame: pl.DataFrame) -> str:
    """Write one shard and return the SHA-256 of its bytes; equal frames give equal bytes."""
    # In plain Arrow layout, taken row by row: bytes of null values, and texts of other rows in lists and string views,
    # depend on how the frame was built.
    table = frame.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    table = table.take(pa.array(np.arange(frame.height)))
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    content = pa.BufferOutputStream()
    with pa.ipc.new_file(content, table.schema, options=options) as writer:
        writer.write_table(table)
    return write_bytes(path, memoryview(content.getvalue()))


def compact_copy(rows: pl.DataFrame) -> pl.DataFrame:
    """Return a copy of rows that holds only their own texts in memory; a view keeps those of all rows of its frame."""
    copied = pl.from_arrow(rows.to_arrow(compat_level=pl.CompatLevel.oldest()))
    assert isinstance(copied, pl.DataFrame), "it is a table"
    return copied


def write_shards(folder: Path, name: str, rows: pl.LazyFrame, *, rows_per_shard: int) -> dict[str, str]:
    """Write the rows of a scan as shards of `rows_per_shard` rows (at least one shard; the last may have fewer).

    Returns file name -> SHA-256, in order.
    """
    digests: dict[str, str] = {}
    for shard in slices(rows, rows_per_shard):
        file_name = f"{name}-{len(digests):05d}.arrow"
        digests[file_name] = write_shard(folder / file_name, shard)
    return digests


def changed(folder: Path, digests: Mapping[str, str]) -> list[str]:
    """Return the shards of a manifest that are missing or whose SHA-256 differs from it."""
    with ThreadPoolExecutor() as threads:  # hashing leaves the interpreter's lock
        whole = threads.map(_is_intact, [folder / name for name in digests], digests.values())
        return [name for name, is_whole in zip(digests, whole, strict=True) if not is_whole]


def _is_intact(path: Path, digest: str) -> bool:
    try:
        return path.is_file() and file_digest(path) == digest
    except OSError:
        return False  # what cannot be read counts as missing


def scan_shards(folder: Path, names: list[str], schema: pl.Schema) -> pl.LazyFrame:
    """Return the named shards as one lazy frame, in this order; without names, an empty frame.

    Raises StoreError if a shard is missing.
    """
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise StoreError(f"{folder} lacks {missing[0]}, which its manifest lists. Remove the folder and run again.")
    if not names:
        return pl.LazyFrame(schema=schema)
    return scan_arrow(*(folder / name for name in names))


def scan_arrow(*paths: Path) -> pl.LazyFrame:
    """Scan Arrow files of one schema, one or more, as one frame in this order; scan_parquet's note on paths holds."""
    return pl.scan_ipc([*paths], glob=False)  # one scan: of a scan each, Polars would read all at once


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
