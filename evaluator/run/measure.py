"""Measure a scored run: write the tables of its suites one at a time, without holding all of them in memory."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import polars as pl

from evaluator.files.json_files import to_builtins
from evaluator.files.whole import remove_tables, scan_parquet, table_path, write_rows, write_table
from evaluator.metrics.queries import query_frames, query_texts
from evaluator.progress import Progress, Stage
from evaluator.record import MeasuresRecord, RunRecord
from evaluator.run.build import Built
from evaluator.run.folder import scores_section
from evaluator.run.record import with_stage, write_run
from evaluator.run.scored_run import ScoredStore, complete_run, on_disk, scored_run
from evaluator.run_log import seconds_since
from evaluator.schemas import PREDICTIONS, QUERIES
from evaluator.store.prompt_store import ROWS_PER_SHARD
from evaluator.store.sorted_runs import SortedRuns
from evaluator.store.tables import kept, slices
from evaluator.suites import families_of


def measure_run(
    record: RunRecord, built: Built, parts: Sequence[ScoredStore], out: Path, options: Mapping[str, object]
) -> Stage[RunRecord]:
    """Write the tables of a scored run, and return its record with their digests.

    Args:
        record: of the run.
        built: the run's configuration and prompts.
        parts: its scored stores; every request has its score.
        out: folder of the run.
        options: of the measure stage, by suite.
    """
    clock = time.monotonic()
    scores = scores_section(record, out)
    model = record.model.title if record.model else out.name
    tables = _TablesOnDisk(out)
    run = scored_run(built, parts, model=model, options=options)
    run = replace(complete_run(run, parts), keep=tables.keep, in_order=tables.in_order)
    with on_disk(run, parts, out) as run:
        for name, table in chain.from_iterable(family.measure(run) for family in families_of(run.config.suites)):
            yield tables.progress(n_left=1)
            tables.write(name, table)
        predictions = tables.scan("predictions", PREDICTIONS)
        tables.keep("queries", QUERIES, query_frames(run.scored, query_texts(_prompts(parts)), predictions, out))
    remove_tables(out, record.measures.tables if record.measures else {}, tables.digests)
    chosen = {name: given for name, given in options.items() if given != type(given)()}
    measures = MeasuresRecord(
        scores=scores.fingerprint, tables=dict(sorted(tables.digests.items())), options=to_builtins(chosen)
    )
    record = with_stage(record, "measure", elapsed_s={"measure": seconds_since(clock)}, measures=measures)
    write_run(out, record)
    yield tables.progress(n_left=0)
    return record


class _TablesOnDisk:
    """The tables of the measure stage, on disk."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self.digests: dict[str, str] = {}

    def write(self, name: str, table: pl.DataFrame) -> None:
        self.digests[name] = write_table(self._out, name, table)

    def keep(self, name: str, schema: pl.Schema, frames: Iterable[pl.DataFrame]) -> pl.LazyFrame:
        """Write a table frame by frame, and return a scan of it (suites.base.Keep)."""
        with kept(frames, self._out, schema) as rows:
            self.digests[name] = write_rows(self._out, name, rows)
        return self.scan(name, schema)

    def in_order(self, rows: pl.LazyFrame, column: str) -> Iterator[pl.DataFrame]:
        """Sort rows that need not fit into memory (suites.base.InOrder)."""
        runs = SortedRuns(self._out, column, lambda some: some.sort(column))
        with kept(rows, self._out) as written:
            for some in slices(written, ROWS_PER_SHARD):
                runs.add(some)
        yield from (some for some, _ in runs.ranges(ROWS_PER_SHARD))

    def scan(self, name: str, schema: pl.Schema) -> pl.LazyFrame:
        """Return a table that was written; without rows if none was."""
        return scan_parquet(table_path(self._out, name)) if name in self.digests else pl.LazyFrame(schema=schema)

    def progress(self, *, n_left: int) -> Progress:
        done = len(self.digests)
        return Progress(stage="Measuring", done=done, total=done + n_left, unit="tables")


def _prompts(parts: Sequence[ScoredStore]) -> Iterator[pl.DataFrame]:
    return chain.from_iterable(part.store.prompts_by_shard() for part in parts)
