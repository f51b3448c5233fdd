"""Write a prompt store from request rows that need not fit into memory: they are sorted in temporary files."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from evaluator.files.json_files import MANIFEST, write_record
from evaluator.schemas import PROMPTS, REQUESTS, REQUESTS_KEY
from evaluator.store import shards
from evaluator.store.key_order import PLACE, in_order_of_places, place
from evaluator.store.prompt_ids import other_ids, with_digests, with_other_ids
from evaluator.store.prompt_store import ROWS_PER_SHARD, PromptStore, StoreManifest
from evaluator.store.sorted_runs import SortedRuns

REQUEST_ROWS = pl.Schema({name: dtype for name, dtype in {**REQUESTS, **PROMPTS}.items() if name != "prompt_id"})
"""Columns of requests with their prompts, before prompts have ids."""


def as_request_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of REQUEST_ROWS; those that are missing are null."""
    return rows.select(
        pl.col(name).cast(dtype) if name in rows.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in REQUEST_ROWS.items()
    )


class StoreWriter:
    """Requests of a store, which are added frame by frame and then written.

    Args:
        folder: of the store; its name is the store's fingerprint. Rows that wait are in the folder around it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._requests = SortedRuns(folder.parent, PLACE, in_order_of_places)
        self._prompts = SortedRuns(folder.parent, "prompt", _by_text)
        self._others: list[pl.DataFrame] = []

    def add(self, rows: pl.DataFrame) -> None:
        """Add requests: the columns of REQUEST_ROWS, and of prompts that have ids already `prompt_id`.

        Raises WriteError where they cannot be kept.
        """
        if "prompt_id" not in rows.columns:
            rows = with_digests(rows)
        prompts = rows.select(pl.col(name).cast(dtype) for name, dtype in PROMPTS.items())
        self._prompts.add(prompts.unique(["prompt_id", "spans"], keep="first", maintain_order=True))
        requests = rows.select(pl.col(name).cast(dtype) for name, dtype in REQUESTS.items())
        self._requests.add(requests.with_columns(rows["spans"], place(REQUESTS_KEY, REQUESTS)))

    def write(
        self, tables: Mapping[str, pl.DataFrame] | None = None, left_out: Mapping[str, str] | None = None
    ) -> PromptStore:
        """Write the requests, once where they repeat, their distinct prompts and the suites' side tables.

        Args:
            tables: side tables by name, sorted.
            left_out: datasets without requests, and why.
        """
        written = {
            name: shards.write_shards(self._folder, name, [table], rows=ROWS_PER_SHARD)
            for name, table in (tables or {}).items()
        }
        prompts, requests = _Counted(self._distinct_prompts()), _Counted(self._distinct_requests())
        files = shards.write_shards(self._folder, "prompts", prompts, rows=ROWS_PER_SHARD)
        manifest = StoreManifest(
            requests=shards.write_shards(self._folder, "requests", requests, rows=ROWS_PER_SHARD),
            n_requests=requests.n_rows,
            prompts=files,
            n_prompts=prompts.n_rows,
            tables=written,
            left_out=dict(left_out or {}),
        )
        write_record(self._folder / MANIFEST, manifest)
        return PromptStore(self._folder, manifest, verified={*manifest.files})

    def _distinct_prompts(self) -> Iterator[pl.DataFrame]:
        for rows, _ in self._prompts.ranges(ROWS_PER_SHARD):
            others = other_ids(rows)
            self._others.append(others)
            distinct = with_other_ids(rows, others).unique("prompt_id", keep="first", maintain_order=True)
            yield distinct if others.is_empty() else _by_text(distinct)

    def _distinct_requests(self) -> Iterator[pl.DataFrame]:
        others = pl.concat(self._others)
        for rows, _ in self._requests.ranges(ROWS_PER_SHARD):
            named = with_other_ids(rows, others)
            repeats = named[PLACE] == named[PLACE].shift()
            another = named.filter(repeats & (named["prompt_id"] != named["prompt_id"].shift()))
            assert another.is_empty(), f"a suite or method used one position twice: {another.row(0, named=True)}"
            yield named.filter(~repeats.fill_null(False)).select(REQUESTS.names())


def write_store(folder: Path, rows: pl.DataFrame, tables: Mapping[str, pl.DataFrame] | None = None) -> PromptStore:
    """Write a store of these requests: the columns that StoreWriter.add takes."""
    writer = StoreWriter(folder)
    writer.add(rows)
    return writer.write(tables)


def _by_text(prompts: pl.DataFrame) -> pl.DataFrame:
    # Then by id. One column at a time, as to sort by two Polars copies the texts.
    return prompts.sort("prompt_id").sort("prompt", maintain_order=True)


class _Counted:
    """Frames, of which the rows are counted on their way."""

    def __init__(self, frames: Iterator[pl.DataFrame]) -> None:
        self._frames, self.n_rows = frames, 0

    def __iter__(self) -> Iterator[pl.DataFrame]:
        for frame in self._frames:
            self.n_rows += frame.height
            yield frame
