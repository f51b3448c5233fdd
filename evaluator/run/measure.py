"""Measure a scored run: write the tables of its suites one at a time, without holding all of them in memory."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import polars as pl

from evaluator.files.json_files import to_builtins
from evaluator.files.whole import remove_tables, scan_parquet, table_path, write_rows, write_table
from evaluator.metrics.queries import queries_table, query_texts
from evaluator.progress import Progress, Stage
from evaluator.record import MeasuresRecord, RunRecord
from evaluator.run.build import Built
from evaluator.run.folder import scores_section
from evaluator.run.record import with_stage, write_run
from evaluator.run.scored_run import ScoredStore, complete_run, on_disk, scored_run
from evaluator.run_log import seconds_since
from evaluator.schemas import PREDICTIONS
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
    digests: dict[str, str] = {}

    def keep(name: str, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Write a table that need not fit into memory, and return a scan of it (suites.base.Keep)."""
        digests[name] = write_rows(out, name, rows)
        return scan_parquet(table_path(out, name))

    def progress(*, n_left: int) -> Progress:
        return Progress(stage="Measuring", done=len(digests), total=len(digests) + n_left, unit="tables")

    run = replace(complete_run(scored_run(built, parts, model=model, options=options), parts), keep=keep)
    with on_disk(run, out) as run:
        for name, table in chain.from_iterable(family.measure(run) for family in families_of(run.config.suites)):
            yield progress(n_left=1)
            digests[name] = write_table(out, name, table)
        has_predictions = "predictions" in digests
        path = table_path(out, "predictions")
        predictions = scan_parquet(path) if has_predictions else pl.LazyFrame(schema=PREDICTIONS)
        texts = query_texts(pl.concat(part.store.prompts() for part in parts))
        keep("queries", queries_table(run.scored, texts, predictions))
    remove_tables(out, record.measures.tables if record.measures else {}, digests)
    chosen = {name: given for name, given in options.items() if given != type(given)()}
    measures = MeasuresRecord(
        scores=scores.fingerprint, tables=dict(sorted(digests.items())), options=to_builtins(chosen)
    )
    record = with_stage(record, "measure", elapsed_s={"measure": seconds_since(clock)}, measures=measures)
    write_run(out, record)
    yield progress(n_left=0)
    return record
