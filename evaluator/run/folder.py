"""Open a run's output folder: its record, stores, scores and tables. Includes the public read functions for scripts."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from shlex import join
from typing import Any, NamedTuple

import polars as pl

from evaluator.config import RunConfig
from evaluator.errors import ConfigError, StoreError, WriteError
from evaluator.files.json_files import from_builtins
from evaluator.files.whole import file_digest, reason, scan_parquet, table_path
from evaluator.imports.answers import IMPORTED
from evaluator.record import RunRecord, ScoresRecord, no_scores
from evaluator.run.build import Built
from evaluator.run.folders import RUN_FILE, DataFolder, mark_user, read_run
from evaluator.run.measure import ScoredStore, scored_run
from evaluator.scores.table import open_scores
from evaluator.store.prompt_store import PromptStore, require_store
from evaluator.suites import SUITES, TABLES, methods_of
from evaluator.tokens.table import require_tokens


class BuiltFolder(NamedTuple):
    """A run with a complete prompt store."""

    record: RunRecord
    data: Path  # folder of prompts and scores
    built: Built


def open_built(out: Path) -> BuiltFolder:
    """Open the prompts of the last build in an output folder. Raises StoreError if there are none."""
    record = read_run(out)
    prompts = record.prompts
    if prompts is None:
        raise StoreError(f"{out} has no prompts yet. Run `{command_for('build', 'SUITE', '--out', out)}` first.")
    data = out / record.data
    config = config_from_json(prompts.config, where=str(out / RUN_FILE))
    _require_known_names(config, out / RUN_FILE)
    hint = f"Run `{command_for('verify', out, '--repair')}`, which builds it again."
    built = Built(config, require_store(data / "store" / prompts.fingerprint, hint), prompts.parts)
    with suppress(WriteError):
        mark_user(out, data)  # a run that was moved is known at its new place from now on
    return BuiltFolder(record, data, built.without(prompts.left_out))


def config_from_json(content: dict[str, Any], *, where: str) -> RunConfig:
    """Convert values read from JSON to a configuration. Raises StoreError, naming `where` and the field."""
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


def _require_known_names(config: RunConfig, path: Path) -> None:
    methods = methods_of(config.suites)
    for field, given, known in (("suite", config.suites, {*SUITES, IMPORTED}), ("method", config.methods, {*methods})):
        if unknown := [name for name in given if name not in known]:
            raise StoreError(f"{path} is of another version: this one has no {field} {', '.join(unknown)}.")


def open_scored(folder: BuiltFolder, out: Path) -> list[ScoredStore]:
    """Open the scored stores of a run: that of the first round, then that of the second if there is one.

    Raises StoreError if nothing was scored, and for scores that are damaged or not those that the run recorded.
    """
    scores = scores_section(folder.record, out)
    hint = f"Run `{score_command(folder.record, out)}`: what is intact is kept."
    parts = []
    for paths in DataFolder(folder.data).scored(scores):
        is_first = paths.store.name == folder.built.store.fingerprint
        store = folder.built.store if is_first else require_store(paths.store, hint)
        store.require_intact()
        store = store.without(scores.left_out)
        table = open_scores(paths.scores)
        if not table.manifest.plans:
            raise StoreError(f"{table.folder} holds no scores. {hint}")
        parts.append(ScoredStore(store, require_tokens(paths.tokens, hint), table))
    # Another run that shares the data may have made damaged scores again, with other numbers; the second round follows
    # from the recorded ones.
    intact = {name: sha256 for part in parts for name, sha256 in part.scores.files().items()}
    changed = [name for name, sha256 in scores.files.items() if intact.get(name) != sha256]
    if changed:
        raise StoreError(
            f"{len(changed)} of {len(scores.files)} files of scores are missing, damaged or made again since they were "
            f"recorded; the first is {changed[0]}. {hint}"
        )
    return parts


def score_command(record: RunRecord, out: Path) -> str:
    """Return the recorded command that scored this run, with its options; a general one if none is recorded."""
    return record.commands.get("score", command_for("score", out, "--model", "MODEL"))


def command_for(*words: str | Path) -> str:
    """Return the command `evaluator` with these words, as it can be typed."""
    return join(["evaluator", *map(str, words)])


def scores_section(record: RunRecord, out: Path) -> ScoresRecord:
    """Return the record of a run's scores. Raises StoreError if nothing was scored."""
    if record.scores is None:
        raise StoreError(no_scores(record, str(out)))
    return record.scores


def read_requests(out: str | PathLike[str]) -> pl.LazyFrame:
    """Read every request of a run with its prompt: the columns of schemas.REQUESTS, and prompt, ask and continuations.

    Rows are in the benchmark's order; those of the second round come last. Raises StoreError if nothing was built.
    """
    folder = open_built(Path(out))
    names = folder.record.scores.stores[1:] if folder.record.scores else []
    hint = f"Run `{score_command(folder.record, Path(out))}`."
    second = [require_store(folder.data / "store" / name, hint) for name in names]
    stores: list[PromptStore] = [folder.built.store, *second]
    if folder.record.scores:
        stores = [store.without(folder.record.scores.left_out) for store in stores]
    return pl.concat(store.requests_with_prompts() for store in stores)


def read_scores(out: str | PathLike[str]) -> pl.LazyFrame:
    """Read every request of a run with its prompt and scores: read_requests with the columns of schemas.SCORES (nats).

    Requests that are not scored yet are left out. Raises StoreError if nothing was scored.
    """
    folder = open_built(Path(out))
    parts = open_scored(folder, Path(out))
    rows = scored_run(folder.built, parts).scored.rows
    prompts = pl.concat(part.store.prompts() for part in parts).unique("prompt_id", keep="first", maintain_order=True)
    return rows.join(prompts, on="prompt_id", how="left", maintain_order="left")


def read_table(out: Path, name: str, digests: Mapping[str, str]) -> pl.DataFrame:
    """Read OUT/tables/NAME.parquet. Takes and raises what scan_table does."""
    return scan_table(out, name, digests).collect()


_WRITTEN_BY = {"comparison": "compare", "receipt": "receipt"}
"""Commands that write a table; `measure` writes all others."""


def scan_table(out: Path, name: str, digests: Mapping[str, str]) -> pl.LazyFrame:
    """Return a scan of OUT/tables/NAME.parquet, which need not fit into memory.

    Args:
        out: the run's folder.
        name: of the table.
        digests: MeasuresRecord.tables.

    Raises StoreError where it is missing or not the one that was measured; such a file is never parsed. As well for a
    table with the columns of another version.
    """
    command, path = command_for(_WRITTEN_BY.get(name, "measure"), out), table_path(out, name)
    if name not in digests or not path.is_file():
        raise StoreError(f"{path} is not there. Run `{command}` first.")
    try:
        digest = file_digest(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {reason(error)}. Run `{command}`.") from error
    if digest != digests[name]:
        raise StoreError(
            f"{path} is damaged or of another run: its SHA-256 is not the one in {out / RUN_FILE}. Run `{command}`."
        )
    rows = scan_parquet(path)
    columns = rows.collect_schema()
    expected = TABLES.get(name, (columns, ()))[0]
    if different := sorted(column for column, _ in {*columns.items()} ^ {*expected.items()}):
        raise StoreError(
            f"{path} was written by another version of evaluator: its columns differ in {', '.join(different)}. Run "
            f"`{command}`, which writes it again."
        )
    return rows


def refuse_imported_answers(record: RunRecord, out: Path) -> None:
    """Raise ConfigError for a run of `evaluator import`: its prompts are not stored."""
    if record.model is not None and record.model.kind == "imported":
        raise ConfigError(
            f"{out} holds imported answers. Their prompts are not stored, so no model can score them: "
            "make a run with `evaluator run`."
        )
