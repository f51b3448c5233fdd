"""Read and write the prompt store, and temporary tables between processing steps.

Every request of a suite or method is a row of REQUESTS. Requests with the same prompt share one row of PROMPTS:
requests refer to prompts by id, and repeated prompts and requests are written once. The name of a store's folder is a
fingerprint of everything that determines its content, so an outdated store is never read.

A shard is an Arrow file. It is written under a temporary name, flushed to disk and renamed. A shard is valid once the
manifest names it; the manifest is written last, in the same way. So a process killed at any moment leaves either the
old state or the new state.

Rows need not fit into memory: Polars' streaming engine sorts and joins tables of any size, and moves to disk what
exceeds its memory budget (`POLARS_OOC_MEMORY_BUDGET_MB` and `POLARS_OOC_SPILL_DIR`; the command sets the first, in
`evaluator/process.py`). `kept` writes a large result to an unnamed temporary file, and `slices` reads it in pieces.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from evaluator.errors import StoreError, WriteError
from evaluator.files.json_files import MANIFEST, read_manifest, write_record
from evaluator.files.whole import file_digest, reason, system_errors, write_bytes
from evaluator.schemas import PROMPTS, PROMPTS_KEY, REQUESTS, REQUESTS_KEY

ROWS_PER_SLICE = 65_536
"""Number of rows of a large table that are in memory at a time."""

ROWS_PER_GROUP = 16_384
"""Rows of a Parquet row group. A reader skips a group if its filter on the sort columns excludes the whole group."""

Rows = pl.LazyFrame | Iterable[pl.DataFrame]


@contextmanager
def kept(
    rows: Rows, folder: Path, schema: pl.Schema | None = None, *, rows_per_group: int = ROWS_PER_GROUP
) -> Iterator[pl.LazyFrame]:
    """Write rows to an unnamed temporary Parquet file, and yield a scan of it. The file ends with the context.

    Args:
        rows: a query, which the streaming engine computes, or frames, of which one is in memory at a time.
        folder: folder of the file.
        schema: schema of the frames; not needed for a query.
        rows_per_group: rows of a Parquet row group.

    Raises WriteError if the file cannot be written.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context(TemporaryFile(dir=folder))
            if isinstance(rows, pl.LazyFrame):
                with system_errors(file):
                    rows.sink_parquet(file, compression="lz4", row_group_size=rows_per_group, engine="streaming")
            else:
                assert schema is not None, "frames have a schema"
                _write_frames(file, rows, schema, rows_per_group)
            file.flush()
        except OSError as error:
            with suppress(OSError):  # closing the file writes what it could not write before
                stack.close()
            raise WriteError(
                f"Rows cannot be kept in {folder} for the next step: {reason(error)}. Make room there, and run the "
                "same command again."
            ) from error
        del rows  # frees frames that `rows` may hold, while the caller uses the scan
        yield pl.scan_parquet(f"/dev/fd/{file.fileno()}", glob=False)


def slices(rows: pl.LazyFrame, n_rows: int = ROWS_PER_SLICE) -> Iterator[pl.DataFrame]:
    """Yield the rows of a scan in order, in frames of `n_rows` rows; for an empty scan, one empty frame.

    LazyFrame.collect_batches is not used because it reads ahead and so holds more rows in memory.
    """
    height = rows.select(pl.len()).collect().item()
    for first in range(0, max(height, 1), n_rows):
        yield rows.slice(first, n_rows).collect()


def id_numbers(name: str) -> pl.Expr:
    """Return a column's ids of 32 hex digits as 128-bit integers, which take a third of the texts' memory."""
    return pl.col(name).str.decode("hex").bin.reinterpret(dtype=pl.Int128, endianness="big")


def _write_frames(file: IO[bytes], frames: Iterable[pl.DataFrame], schema: pl.Schema, rows_per_group: int) -> None:
    arrow = schema.to_frame().to_arrow(compat_level=pl.CompatLevel.oldest()).schema
    # Parquet and not Arrow, because the pages of a memory-mapped Arrow file count as memory of this process.
    with pq.ParquetWriter(file, arrow, compression="lz4", use_dictionary=False) as writer:
        for frame in frames:
            writer.write_table(frame.to_arrow(compat_level=pl.CompatLevel.oldest()), rows_per_group)


def write_shard(path: Path, frame: pl.DataFrame) -> str:
    """Write one shard and return the SHA-256 of its bytes; equal frames give equal bytes."""
    # Copy the rows into a plain Arrow layout: in the frame's own layout, the bytes of null values and the unused texts
    # in buffers of lists and string views depend on how the frame was built.
    table = frame.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    table = table.take(pl.int_range(frame.height, eager=True).to_arrow())
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    content = pa.BufferOutputStream()
    with pa.ipc.new_file(content, table.schema, options=options) as writer:
        writer.write_table(table)
    return write_bytes(path, memoryview(content.getvalue()))


def compact_copy(rows: pl.DataFrame) -> pl.DataFrame:
    """Return a copy of rows that shares no memory with the larger frame they are a view of."""
    return pl.DataFrame(rows.to_arrow(compat_level=pl.CompatLevel.oldest()))


def write_shards(folder: Path, name: str, rows: pl.LazyFrame, *, rows_per_shard: int) -> dict[str, str]:
    """Write the rows of a scan as shards NAME-00000.arrow, NAME-00001.arrow, ... of `rows_per_shard` rows.

    At least one shard is written; the last shard may have fewer rows. Returns file name -> SHA-256, in order.
    """
    digests: dict[str, str] = {}
    for shard in slices(rows, rows_per_shard):
        file_name = f"{name}-{len(digests):05d}.arrow"
        digests[file_name] = write_shard(folder / file_name, shard)
    return digests


def changed(folder: Path, digests: Mapping[str, str]) -> list[str]:
    """Return the names of files that are missing or have another SHA-256 than in `digests` (file name -> SHA-256)."""
    with ThreadPoolExecutor() as threads:  # threads help because hashing releases the interpreter's lock
        whole = threads.map(_is_intact, [folder / name for name in digests], digests.values())
        return [name for name, is_whole in zip(digests, whole, strict=True) if not is_whole]


def _is_intact(path: Path, digest: str) -> bool:
    try:
        return path.is_file() and file_digest(path) == digest
    except OSError:
        return False  # a file that cannot be read counts as missing


def scan_shards(folder: Path, names: list[str], schema: pl.Schema) -> pl.LazyFrame:
    """Return the named shards as one lazy frame, in the order of `names`; without names, an empty frame.

    Raises StoreError if a shard is missing.
    """
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise StoreError(f"{folder} lacks {missing[0]}, which its manifest lists. Remove the folder and run again.")
    if not names:
        return pl.LazyFrame(schema=schema)
    return scan_arrow(*(folder / name for name in names))


def scan_arrow(*paths: Path) -> pl.LazyFrame:
    """Scan one or more Arrow files of one schema as one frame, in the order of `paths`, without glob patterns."""
    return pl.scan_ipc([*paths], glob=False)  # a single scan: Polars would read several scans at the same time


ROWS_PER_SHARD = 65_536


@dataclass(frozen=True, kw_only=True)
class StoreManifest:
    """The content of a store's manifest.json."""

    n_requests: int
    n_prompts: int  # number of distinct prompts
    requests: dict[str, str]  # file of requests -> SHA-256
    prompts: dict[str, str]  # file of prompts -> SHA-256
    tables: dict[str, dict[str, str]]  # side tables of suites: table name -> file -> SHA-256
    left_out: dict[str, str] = field(default_factory=dict)  # dataset without requests -> reason

    @property
    def files(self) -> dict[str, str]:
        """Return all files: name -> SHA-256."""
        tables = {file: digest for table in self.tables.values() for file, digest in table.items()}
        return self.requests | self.prompts | tables


@dataclass(frozen=True)
class PromptStore:
    """A store on disk. The SHA-256 of a file is checked before this process first reads the file."""

    folder: Path
    manifest: StoreManifest
    left_out: tuple[str, ...] = ()  # datasets whose rows are not read
    hint: str = "Run the same command again."  # last sentence of the error message about a damaged file
    verified: set[str] = field(default_factory=set, compare=False)  # names of files whose SHA-256 was checked

    @property
    def fingerprint(self) -> str:
        return self.folder.name

    def without(self, datasets: Iterable[str]) -> "PromptStore":
        """Return the store without the rows of these datasets; files are not changed."""
        left_out = {*self.left_out, *datasets} - self.manifest.left_out.keys()  # the manifest's have no rows anyway
        return replace(self, left_out=tuple(sorted(left_out)))

    def requests(self) -> pl.LazyFrame:
        """Return all requests, sorted by their key."""
        return self._kept(self._scan(self.manifest.requests, REQUESTS))

    def prompts(self) -> pl.LazyFrame:
        """Return the distinct prompts, sorted by text, so that neighbours share long prefixes."""
        return self.requested(self._scan(self.manifest.prompts, PROMPTS))

    def prompts_by_shard(self) -> Iterator[pl.DataFrame]:
        """Yield the rows of `prompts`, one frame for each shard."""
        for name, sha256 in self.manifest.prompts.items():
            yield self.requested(self._scan({name: sha256}, PROMPTS)).collect()

    def requested(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Return the rows whose `prompt_id` occurs in a request of this store, left-out datasets excluded."""
        if not self.left_out:
            return rows
        numbered = rows.with_columns(number=id_numbers("prompt_id"))
        return numbered.join(self._requested, on="number", how="semi", maintain_order="left").drop("number")

    @cached_property
    def _requested(self) -> pl.LazyFrame:
        """Return the distinct prompt ids of all requests as numbers, in memory, as every shard is joined with them."""
        ids = self.requests().select(number=id_numbers("prompt_id")).unique()
        return ids.collect(engine="streaming").lazy()

    def requests_with_prompts(self) -> pl.LazyFrame:
        """Return all requests with the columns of their prompts: REQUESTS left-joined with PROMPTS."""
        return self.requests().join(self.prompts(), on=PROMPTS_KEY, how="left", maintain_order="left")

    def table(self, name: str, schema: pl.Schema) -> pl.LazyFrame:
        """Return a side table of a suite; an empty table if the suite wrote none of this name."""
        rows = self._scan(self.manifest.tables.get(name, {}), schema)
        return self._kept(rows) if "dataset" in schema else rows

    def changed_files(self, files: Mapping[str, str] | None = None) -> list[str]:
        """Return the names of files that are missing or have another SHA-256 than in the manifest.

        Args:
            files: file name -> SHA-256 of the files to check; None: all files of the store.
        """
        checked = self.manifest.files if files is None else files
        unverified = {name: sha256 for name, sha256 in checked.items() if name not in self.verified}
        faulty = changed(self.folder, unverified) if unverified else []
        self.verified.update(unverified.keys() - {*faulty})
        return faulty

    def require_intact(self, files: Mapping[str, str] | None = None) -> None:
        """Raise StoreError if one of `files`, as for changed_files, is missing or damaged."""
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
    """Open the store in a folder; None if there is no manifest. Files are verified when they are read."""
    manifest = read_manifest(folder / MANIFEST, StoreManifest)
    return None if manifest is None else PromptStore(folder, manifest)


def open_intact_store(folder: Path) -> PromptStore | None:
    """Open the store in a folder and verify all files; None if there is no store, or a file is missing or damaged."""
    store = open_store(folder)
    return None if store is None or store.changed_files() else store


def require_store(folder: Path, hint: str) -> PromptStore:
    """Open the store in a folder as open_store does; its errors end in `hint`. Raises StoreError if it is missing."""
    store = open_store(folder)
    if store is None:
        raise StoreError(f"{folder} holds no complete prompt store. {hint}")
    return replace(store, hint=hint)


REQUEST_ROWS = pl.Schema({**REQUESTS, **PROMPTS})
"""Columns of requests with their prompts."""


def as_request_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows in the columns of REQUEST_ROWS, with the `prompt_id` of with_digests; missing columns are null."""
    return with_digests(rows).select(
        pl.col(name).cast(dtype) if name in rows.columns or name == "prompt_id" else pl.lit(None, dtype).alias(name)
        for name, dtype in REQUEST_ROWS.items()
    )


def kept_requests(frames: Iterable[pl.DataFrame], folder: Path) -> AbstractContextManager[pl.LazyFrame]:
    """Return a context that writes requests to a temporary file in `folder`, and gives a scan of REQUEST_ROWS."""
    return kept(map(as_request_rows, frames), folder, REQUEST_ROWS)


def write_store(
    folder: Path,
    rows: pl.LazyFrame,
    tables: Mapping[str, pl.DataFrame] | None = None,
    left_out: Mapping[str, str] | None = None,
) -> PromptStore:
    """Write a store: its distinct requests, their distinct prompts and the suites' side tables.

    Args:
        folder: folder of the store; its name is the store's fingerprint.
        rows: REQUEST_ROWS; the scan is read several times.
        tables: side tables by name, each sorted by its key.
        left_out: dataset without requests -> reason.
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
    """Return whether a row has the same values in these columns as the previous row."""
    return pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift()) for name in columns)


def with_prompt_ids(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `prompt_id` to the request rows of a store; a missing column `spans` counts as null."""
    if "spans" not in rows.columns:
        rows = rows.with_columns(spans=pl.lit(None, PROMPTS["spans"]))
    return with_other_ids(with_digests(rows).lazy()).collect()


def with_digests(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `prompt_id`, a digest of ask, prompt and continuations; `spans` do not change it (see with_other_ids)."""
    # Polars' hash is not used: it is too short for ids on disk, and differs between versions.
    texts = rows.select("prompt", "ask", "continuations").iter_rows()
    return rows.with_columns(prompt_id=pl.Series([_digest(*row) for row in texts], dtype=pl.String))


def with_other_ids(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Change the ids of prompts that have the text of another prompt but other spans: their digests include the spans.

    Two prompts can have one text if a text field looks like a demonstration. The prompt whose spans sort first keeps
    its id.

    Args:
        rows: rows with the ids of with_digests and `spans`; all rows of a store, so that equal ids are seen together.
    """
    # Ids with several distinct spans, found by the smallest and largest hash.
    key, spans = ["prompt_id", "spans"], pl.col("spans").hash()
    readings = rows.group_by(number=id_numbers("prompt_id")).agg(lowest=spans.min(), highest=spans.max())
    several = readings.filter(pl.col("lowest") != pl.col("highest")).collect(engine="streaming")["number"]
    if several.is_empty():
        return rows
    # All spans of these ids but the first get a new id.
    repeated = rows.filter(id_numbers("prompt_id").is_in(several.implode()))
    distinct = repeated.select(*key, "prompt", "ask", "continuations").unique(key).sort(key).collect()
    again = distinct.filter(_repeats(["prompt_id"]))
    texts = again.select("prompt", "ask", "continuations", "spans").iter_rows()
    others = again.select(key).with_columns(other_id=pl.Series([_digest(*row) for row in texts], dtype=pl.String))
    joined = rows.join(others.lazy(), on=key, how="left", nulls_equal=True, maintain_order="left")
    return joined.with_columns(prompt_id=pl.coalesce("other_id", "prompt_id")).drop("other_id")


def _digest(prompt: str, ask: str, continuations: list[str], spans: list[dict[str, int]] | None = None) -> str:
    # For ask "text" one empty text stands for the continuations, so that the digest differs from that of ask "state".
    texts = [prompt, *([""] if ask == "text" else continuations), *([] if spans is None else [repr(spans)])]
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=16).hexdigest()
