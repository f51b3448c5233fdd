"""`evaluator verify`: check every digest, schema, count, key and join of a run, and make again what needs no model."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import split
from typing import Literal, NamedTuple, TypeVar

import polars as pl

from evaluator import schemas
from evaluator.errors import EvaluatorError, StoreError
from evaluator.files.json_files import MANIFEST, read_record
from evaluator.files.whole import dead_partial_files, scan_arrow
from evaluator.progress import Progress, Stage
from evaluator.record import RunRecord, measured_record
from evaluator.run import pipeline
from evaluator.run.build import build_prompts
from evaluator.run.folder import command_for, config_from_json, open_built, open_scored, read_table, score_command
from evaluator.run.record import RUN_FILE, read_run
from evaluator.run.report import PAGE
from evaluator.run.scored_run import complete_run, scored_run
from evaluator.scores.table import SCHEMAS, Kind, ScoreManifest
from evaluator.store import shards
from evaluator.store.prompt_store import PromptStore, StoreManifest
from evaluator.tokens.table import TokenManifest

Damaged = Literal["record", "prompts", "scores", "tables", "receipt", "page", "partial"]
T = TypeVar("T")

TABLES: Mapping[str, tuple[pl.Schema, Sequence[str]]] = {
    "predictions": (schemas.PREDICTIONS, schemas.PREDICTIONS_KEY),
    "metrics": (schemas.METRICS, schemas.METRICS_KEY),
    "group_metrics": (schemas.GROUP_METRICS, schemas.GROUP_METRICS_KEY),
    "reliability": (schemas.RELIABILITY, schemas.RELIABILITY_KEY),
    "confusion": (schemas.CONFUSION, schemas.CONFUSION_KEY),
    "receipt": (schemas.RECEIPT, schemas.RECEIPT_KEY),
}
"""Tables that several suites have: schema and key. Those of one suite are checked by their digests alone."""


class Fault(NamedTuple):
    """Something in a run's folder that is not as it was written."""

    damaged: Damaged
    path: Path
    what: str
    command: str | None  # that makes it again; None: not known

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" + (f" Run: {self.command}" if self.command else "")


def verify(out: Path, *, repair: bool = False) -> Stage[list[Fault]]:
    """Return what is wrong with a run, in the order of its stages; with `repair`, what is still wrong after it.

    Prompts are built, tables measured and the page written again; scores need the model, so their command is named.
    Raises StoreError for a folder without a run.
    """
    faults = yield from _found(out)
    if not repair or not faults:
        return faults
    try:
        yield from _repair(out, {fault.damaged for fault in faults})
    except EvaluatorError as error:
        left = yield from _found(out)
        return [*left, Fault("record", out, f"It could not be repaired: {error}", left[0].command if left else None)]
    return (yield from _found(out))


def _repair(out: Path, damaged: set[Damaged]) -> Stage[None]:
    """Make again what is damaged and what follows from it."""
    if "record" in damaged:
        return  # what was run is not known any more
    record = read_run(out)
    if "prompts" in damaged and record.prompts is not None:
        config = config_from_json(record.prompts.config, where=str(out / RUN_FILE))
        built = yield from build_prompts(config, out / record.data)
        if built.store.fingerprint != record.prompts.fingerprint:
            raise StoreError(
                f"the data or the program have changed since, so that other prompts were built. Run "
                f"{record.commands.get('build', 'the first command')} again."
            )
        damaged = {fault.damaged for fault in (yield from _found(out))}  # the scores may be whole with these prompts
    if "scores" in damaged:
        return
    if "tables" in damaged and not _own_measure(record):
        yield from pipeline.measure(out)
    if damaged & {"tables", "page"}:
        yield from pipeline.report(out)


def _own_measure(record: RunRecord) -> str | None:
    """Return the command `evaluator measure` where one was typed, which may have had options; else None."""
    command = record.commands.get("measure", "")
    return command if command.startswith("evaluator measure ") and len(split(command)) > 3 else None


def _found(out: Path) -> Stage[list[Fault]]:
    try:
        record = read_run(out)
    except StoreError as error:
        if not (out / RUN_FILE).exists():
            raise
        return [Fault("record", out / RUN_FILE, str(error), "the command that made it")]
    faults: list[Fault] = list(_partial_files(out))
    steps = (_prompt_faults, _score_faults, _table_faults, _receipt_faults)
    for done, step in enumerate(steps):
        yield Progress(stage="Verifying", done=done, total=len(steps), unit="stages")
        faults += step(out, record)
    if record.measures is not None and not (out / PAGE).is_file():
        faults.append(Fault("page", out / PAGE, "It is missing.", command_for("report", out)))
    yield Progress(stage="Verifying", done=len(steps), total=len(steps), unit="stages")
    return faults


def _partial_files(out: Path) -> Iterator[Fault]:
    for path in dead_partial_files(out):
        yield Fault("partial", path, "A process that was killed left it.", command_for("clean", out, "--yes"))


def _prompt_faults(out: Path, record: RunRecord) -> Iterator[Fault]:
    if record.prompts is None:
        return
    folder = out / record.data / "store" / record.prompts.fingerprint
    command = command_for("verify", out, "--repair")
    counts = {"requests": record.prompts.requests, "prompts": record.prompts.distinct_prompts}
    for path, what in _store_faults(folder, counts):
        yield Fault("prompts", path, what, command)


def _store_faults(folder: Path, counts: Mapping[str, int] | None) -> Iterator[tuple[Path, str]]:
    """Yield what is wrong with a prompt store; `counts` are those that the record states, where it does."""
    manifest, what = _manifest(folder / MANIFEST, StoreManifest)
    if manifest is None:
        yield folder / MANIFEST, what
        return
    damaged = list(_changed_files(folder, manifest.files))
    yield from damaged
    if damaged:
        return
    store = PromptStore(folder, manifest, verified={*manifest.files})
    requests, prompts = store.requests().collect(), store.prompts().collect()
    yield from _frame_faults(folder, "requests", requests, schemas.REQUESTS, schemas.REQUESTS_KEY)
    yield from _frame_faults(folder, "prompts", prompts, schemas.PROMPTS, schemas.PROMPTS_KEY)
    stated = {"requests": manifest.n_requests, "prompts": manifest.n_prompts}
    actual = {"requests": requests.height, "prompts": prompts.height}
    for source, expected in ((folder / MANIFEST, stated), (folder, counts or actual)):
        if expected != actual:
            yield source, f"It states {expected}, and there are {actual}."
    lost = (
        requests.join(prompts, on="prompt_id", how="anti").height
        + prompts.join(requests, on="prompt_id", how="anti").height
    )
    if lost:
        yield folder, f"{lost} requests have no prompt, or prompts no request."


def _score_faults(out: Path, record: RunRecord) -> Iterator[Fault]:
    scores = record.scores
    if scores is None:
        return
    command = score_command(record, out)
    data = out / record.data
    faults: list[tuple[Path, str]] = []
    for number, (store, tokens, table) in enumerate(zip(scores.stores, scores.tokens, scores.tables, strict=True)):
        if number:  # the first is the run's own
            faults += _store_faults(data / "store" / store, None)
        faults += _token_faults(data / "store" / store / tokens)
        faults += _table_of_scores_faults(data / "scores" / table)
    faults += _changed_files(data / "scores", scores.files)
    if not faults:
        try:
            built = open_built(out)
            parts = open_scored(built, out)
            complete_run(scored_run(built.built, parts), parts)
        except EvaluatorError as error:
            faults.append((data / "scores", str(error)))
    for path, what in dict.fromkeys(faults):
        yield Fault("scores", path, what, command)


def _token_faults(folder: Path) -> Iterator[tuple[Path, str]]:
    manifest, what = _manifest(folder / MANIFEST, TokenManifest)
    if manifest is None:
        yield folder / MANIFEST, what
        return
    damaged = list(_changed_files(folder, manifest.shards))
    yield from damaged
    if not damaged:
        tokens = shards.scan_shards(folder, list(manifest.shards), schemas.TOKENS).collect()
        yield from _frame_faults(folder, "tokens", tokens, schemas.TOKENS, ["prompt_id", "ask"])
        lengths = tokens.filter(pl.col("ask") != "last_tokens")["context"].list.len().sum()
        if lengths != manifest.counts.tokens:
            yield folder / MANIFEST, f"It states {manifest.counts.tokens} tokens, and there are {lengths}."


def _table_of_scores_faults(folder: Path) -> Iterator[tuple[Path, str]]:
    manifest, what = _manifest(folder / MANIFEST, ScoreManifest)
    if manifest is None:
        yield folder / MANIFEST, what
        return
    damaged = [*_changed_files(folder, manifest.written), *_changed_files(folder.parent, manifest.reused)]
    yield from damaged
    if damaged:
        return
    for name, shard in manifest.shards.items():
        kind: Kind = "states" if name.startswith("states") else "scores"
        rows = scan_arrow(folder / name).collect()
        yield from _frame_faults(folder, name, rows, SCHEMAS[kind], ["token_id"])
        if shard.prompts > rows.height:
            yield folder / name, f"It holds {rows.height} rows, and its manifest states {shard.prompts} prompts."


def _receipt_faults(out: Path, record: RunRecord) -> Iterator[Fault]:
    if record.receipts:
        for _, (path, what) in _damaged_tables(out, {"receipt": record.receipt_table}):
            yield Fault("receipt", path, what, command_for("receipt", out))


def _table_faults(out: Path, record: RunRecord) -> Iterator[Fault]:
    if record.measures is None:
        return
    command = _own_measure(record) or command_for("measure", out)
    try:
        tables = measured_record(record, str(out)).tables
    except StoreError as error:
        yield Fault("tables", out / "tables", str(error), command)
        return
    for name, (path, what) in _damaged_tables(out, tables):
        yield Fault("tables", path, f"{name}: {what}", command)


def _damaged_tables(out: Path, tables: Mapping[str, str]) -> Iterator[tuple[str, tuple[Path, str]]]:
    for name in tables:
        path = out / "tables" / f"{name}.parquet"
        try:
            table = read_table(out, name, tables)
        except StoreError as error:
            yield name, (path, str(error))
            continue
        schema, key = TABLES.get(name, (table.schema, ()))
        for fault in _frame_faults(path.parent, path.name, table, schema, key):
            yield name, fault


def _manifest(path: Path, kind: type[T]) -> tuple[T | None, str]:
    """Return a manifest, or None and what is wrong with it."""
    try:
        return read_record(path, kind), "It is missing."
    except StoreError as error:
        return None, str(error)


def _changed_files(folder: Path, digests: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    for name in shards.changed(folder, digests):
        there = (folder / name).exists()
        yield folder / name, "Its SHA-256 is not the one that was recorded." if there else "It is missing."


def _frame_faults(
    folder: Path, name: str, rows: pl.DataFrame, schema: pl.Schema, key: Sequence[str]
) -> Iterator[tuple[Path, str]]:
    if rows.schema != schema:
        different = sorted(column for column, _ in set(rows.schema.items()) ^ set(schema.items()))
        yield folder / name, f"Its columns are those of another version: {', '.join(different)}."
    elif key and (repeated := rows.select(pl.struct(key).is_duplicated().sum()).item()):
        yield folder / name, f"{repeated} rows share their key ({', '.join(key)}) with another."
