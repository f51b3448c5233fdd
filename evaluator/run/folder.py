"""Open a run's output folder: its record, stores, scores and tables. Includes the public read functions for scripts."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, cached_property
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.config import RunConfig
from evaluator.errors import ConfigError, StoreError, WriteError, require_known
from evaluator.files.json_files import from_builtins
from evaluator.files.whole import file_digest, reason, scan_parquet, table_path, writing_to
from evaluator.imports.answers import IMPORTED
from evaluator.record import MeasuredRecord, RunRecord, command_for, measured_record, score_command
from evaluator.run.build import Built
from evaluator.run.folders import RUN_FILE, DataFolder, RunFolder, mark_user, require_run
from evaluator.run.measure import ScoredStore, scored_run
from evaluator.scores.table import open_scores
from evaluator.store import PromptStore, compact_copy, require_store
from evaluator.suites import SUITES, TABLES, methods_of
from evaluator.tokens.table import require_tokens


class BuiltFolder(RunFolder):
    """A run on disk whose prompts are built."""

    @cached_property
    def built(self) -> Built:
        """Return the configuration and prompts of the last build.

        Raises StoreError if nothing was built, or if the record names suites or methods that this version lacks.
        """
        out, prompts = self.out, self.record.prompts
        if prompts is None:
            raise StoreError(f"{out} has no prompts yet. Run `{command_for('build', 'SUITE', '--out', out)}` first.")
        where = str(out / RUN_FILE)
        config = config_from_json(prompts.config, where=where)
        lacks = f"{where} is of another version: this one has no"
        require_known(f"{lacks} suite", config.suites, [*SUITES, IMPORTED], StoreError)
        require_known(f"{lacks} method", config.methods, methods_of(config.suites), StoreError)
        hint = f"Run `{command_for('verify', out, '--repair')}`, which builds it again."
        store = require_store(self.data.store(prompts.fingerprint), hint)
        with suppress(WriteError):
            mark_user(out, self.data.path)  # so that a run that was moved is registered at its new path
        return Built(config, store, prompts.parts).without(prompts.left_out)

    def refuse_imported_answers(self) -> None:
        """Raise ConfigError for a run of imported answers, because its prompts are not stored."""
        if self.record.model is not None and self.record.model.kind == "imported":
            raise ConfigError(
                f"{self.out} holds imported answers. Their prompts are not stored, so no model can score them: make a "
                "run with `evaluator run`."
            )


@contextmanager
def opened_run(out: Path) -> Iterator[BuiltFolder]:
    """Open a run, and lock its folder until the context ends.

    Raises StoreError if the folder holds no run, and what writing_to raises.
    """
    require_run(out)  # before locking, which would create the folder
    with writing_to(out, holds_run=True):
        yield BuiltFolder(out)


def config_from_json(content: dict[str, Any], *, where: str) -> RunConfig:
    """Convert values read from JSON to a configuration. Raises StoreError, which names the file (`where`) and field."""
    given = content.get("suite_options", {})
    if not isinstance(given, dict):
        raise StoreError(f"{where} is damaged or of another version (suite_options must be an object).")
    config = from_builtins(content | {"suite_options": {}}, RunConfig, where=where)
    options: dict[str, object] = {
        name: from_builtins(values, kind, where=where)
        for name, values in given.items()
        if name in SUITES and (kind := SUITES[name].options)
    }
    return replace(config, suite_options=options)


def open_scored(folder: BuiltFolder) -> list[ScoredStore]:
    """Open the scored stores of a run: of the first round, then of the second round if there is one.

    Raises StoreError if nothing was scored, and for scores that are damaged or differ from the recorded ones.
    """
    built, scores = folder.built, folder.scores
    hint = f"Run `{score_command(folder.record, str(folder.out))}`: what is intact is kept."
    parts, stores = [], _stores(built.store, folder.record, folder.out)
    for store, paths in zip(stores, folder.data.scored(scores), strict=True):
        store.require_intact()
        parts.append(ScoredStore(store, require_tokens(paths.tokens, hint), open_scores(paths.scores)))
    # Another run that shares the data folder may have replaced damaged scores by new ones with other numbers. They are
    # refused, because the prompts of the second round follow from the recorded scores.
    intact = {name: sha256 for part in parts for name, sha256 in part.scores.files().items()}
    changed = [name for name, sha256 in scores.files.items() if intact.get(name) != sha256]
    if changed:
        raise StoreError(
            f"{len(changed)} of {len(scores.files)} files of scores are missing, damaged or made again since they were "
            f"recorded; the first is {changed[0]}. {hint}"
        )
    return parts


def read_requests(out: str | PathLike[str]) -> pl.LazyFrame:
    """Read every request of a run with its prompt: the columns of schemas.REQUESTS and schemas.PROMPTS.

    Rows are in the benchmark's order; requests of the second round come last. Raises StoreError if nothing was built.
    """
    folder = BuiltFolder(Path(out))
    stores = _stores(folder.built.store, folder.record, folder.out)
    return pl.concat(store.requests_with_prompts() for store in stores)


def _stores(first: PromptStore, record: RunRecord, out: Path) -> Iterator[PromptStore]:
    """Yield the prompt store of each round, the first round first, without datasets that cannot be scored."""
    scores, hint = record.scores, f"Run `{score_command(record, str(out))}`."
    for name in scores.stores if scores else [first.fingerprint]:
        is_first = name == first.fingerprint
        store = first if is_first else require_store(DataFolder(out / record.data).store(name), hint)
        yield store.without(scores.left_out if scores else ())


def read_scores(out: str | PathLike[str]) -> pl.LazyFrame:
    """Read every scored request of a run: the columns of read_requests and of schemas.SCORES (nats).

    Raises StoreError if nothing was scored, and what open_scored raises.
    """
    folder = BuiltFolder(Path(out))
    parts = open_scored(folder)
    rows = scored_run(folder.built, parts).scored.rows
    prompts = pl.concat(part.store.prompts() for part in parts).unique("prompt_id", keep="first", maintain_order=True)
    return rows.join(prompts, on="prompt_id", how="left", maintain_order="left")


def read_table(out: Path, name: str, digests: Mapping[str, str]) -> pl.DataFrame:
    """Read OUT/tables/NAME.parquet. Arguments and errors are those of scan_table."""
    return scan_table(out, name, digests).collect()


_WRITTEN_BY = {"comparison": "compare", "receipt": "receipt"}
"""Table -> command that writes it; `measure` writes all other tables."""


def scan_table(out: Path, name: str, digests: Mapping[str, str]) -> pl.LazyFrame:
    """Return a scan of OUT/tables/NAME.parquet, which need not fit into memory.

    Args:
        out: the run's folder.
        name: name of the table.
        digests: table -> SHA-256, as in MeasuresRecord.tables.

    Raises StoreError if the table is missing, if its SHA-256 is not the recorded one (the file is then not parsed), or
    if its columns are those of another version.
    """
    path = table_path(out, name)

    def fault(what: str, end: str = ".") -> StoreError:
        command = command_for(_WRITTEN_BY.get(name, "measure"), out)
        return StoreError(f"{path} {what}. Run `{command}`{end}")

    if name not in digests or not path.is_file():
        raise fault("is not there", " first.")
    try:
        digest = file_digest(path)
    except OSError as error:
        raise fault(f"cannot be read: {reason(error)}") from error
    if digest != digests[name]:
        raise fault(f"is damaged or of another run: its SHA-256 is not the one in {out / RUN_FILE}")
    rows = scan_parquet(path)
    columns = rows.collect_schema()
    expected = TABLES.get(name, (columns, ()))[0]
    if different := columns.items() ^ expected.items():
        names = ", ".join(sorted({column for column, _ in different}))
        what = f"was written by another version of evaluator: its columns differ in {names}"
        raise fault(what, ", which writes it again.")
    return rows


class MeasuredFolder:
    """A measured run in an output folder (report.section.MeasuredRun). Each table is verified and read at most once."""

    def __init__(self, out: Path, record: RunRecord, store: PromptStore) -> None:
        self.record: MeasuredRecord = measured_record(record, str(out))
        self.out, self._store = out, store.without(self.record.scores.left_out)
        tables = self.record.measures.tables
        self.scan = scan = cache(lambda name: scan_table(out, name, tables))
        self.table = cache(lambda name: scan(name).collect())

    def side_table(self, name: str, schema: pl.Schema) -> pl.DataFrame:
        """Return a side table that a suite stored with its prompts."""
        return self._store.table(name, schema).collect()

    def prompts(self, prompt_ids: pl.Series) -> pl.DataFrame:
        """Return prompt_id, prompt and spans of the given prompts; ids that the run does not have are ignored."""
        wanted = pl.col("prompt_id").is_in(prompt_ids.implode())
        stores = _stores(self._store, self.record, self.out)
        shards = chain.from_iterable(store.prompts_by_shard() for store in stores)
        found = [compact_copy(rows.select("prompt_id", "prompt", "spans").filter(wanted)) for rows in shards]
        return pl.concat(found).unique("prompt_id", keep="first", maintain_order=True)
