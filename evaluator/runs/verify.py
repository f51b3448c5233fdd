"""`evaluator verify`: check every digest, schema, count, key and join of a run, and repair files that need no model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import polars as pl

from evaluator import schemas
from evaluator.errors import EvaluatorError, StoreError
from evaluator.files.digests import is_sealed
from evaluator.files.json_files import MANIFEST, read_json, read_record
from evaluator.files.whole import dead_partial_files, table_path
from evaluator.progress import Progress, Stage
from evaluator.record import command_for, score_command
from evaluator.run import folders, pipeline
from evaluator.run.build import build_prompts, check_config
from evaluator.run.folder import BuiltFolder, config_from_json, open_scored, read_table
from evaluator.run.folders import RUN_FILE, RunFolder, compared_models, is_measured
from evaluator.run.measure import complete_run, scored_run
from evaluator.runs.clean import MANIFESTS, Kind
from evaluator.scores.table import SCHEMAS, ScoreManifest
from evaluator.store import PromptStore, StoreManifest, changed, scan_arrow, scan_shards
from evaluator.suites import TABLES
from evaluator.tokens.table import TokenManifest

Damaged = Literal["record", "prompts", "scores", "tables", "receipt", "page", "partial"]

FileFaults = Iterator[tuple[Path, str]]
"""Files or folders that are not as they were written, each with its fault."""


class Fault(NamedTuple):
    """Something in a run's folder that is not as it was written."""

    damaged: Damaged
    path: Path
    what: str
    command: str | None  # command that makes the file again; None: not known

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" + (f" Run: {self.command}" if self.command else "")


def verify(out: Path, *, repair: bool = False) -> Stage[list[Fault]]:
    """Return the faults of a run, in the order of its stages; with `repair`, the faults that remain.

    The repair builds prompts, measures tables and writes the page again. Scores need the model: their faults only name
    the command. Raises StoreError for a folder without a run.
    """
    faults = yield from _found(out)
    if not repair or not faults:
        return faults
    try:
        yield from _repair(RunFolder(out), {fault.damaged for fault in faults})
    except EvaluatorError as error:
        left = yield from _found(out)
        return [*left, Fault("record", out, f"It could not be repaired: {error}", left[0].command if left else None)]
    return (yield from _found(out))


def _repair(run: RunFolder, damaged: set[Damaged]) -> Stage[None]:
    """Make damaged files again, and all files that depend on them."""
    if "record" in damaged:
        return  # the configuration of the run is not known any more
    out, prompts = run.out, run.record.prompts
    for model in [] if run.record.scores else compared_models(out):
        yield from verify(model, repair=True)
    if "prompts" in damaged and prompts is not None:
        config = config_from_json(prompts.config, where=str(out / RUN_FILE))
        check_config(config)  # whether this version has all its names
        built = yield from build_prompts(config, run.data.path)
        if built.store.fingerprint != prompts.fingerprint:
            raise StoreError(
                f"the data or the program have changed since, so that other prompts were built. Run "
                f"{run.record.commands.get('build', 'the first command')} again."
            )
        damaged = {fault.damaged for fault in (yield from _found(out))}  # with these prompts, the scores may be intact
    if "scores" in damaged:
        return
    measures = run.record.measures
    # A run with measure options is not measured again: files that the options name may have changed.
    if "tables" in damaged and run.record.scores and not (measures and measures.options):
        yield from pipeline.measure(out)
    if damaged & {"tables", "page"}:
        yield from pipeline.report(out)


def _found(out: Path) -> Stage[list[Fault]]:
    run = RunFolder(out)
    try:
        record = run.record
    except StoreError as error:
        if not (out / RUN_FILE).exists():
            raise
        return [Fault("record", out / RUN_FILE, str(error), "the command that made it")]
    clean = command_for("clean", out, "--yes")
    faults = [Fault("partial", path, "A process that was killed left it.", clean) for path in dead_partial_files(out)]
    steps = (_prompt_faults, _score_faults, _table_faults)
    for done, step in enumerate(steps):
        yield Progress(stage="Verifying", done=done, total=len(steps), unit="stages")
        faults += step(run)
    models = [] if record.scores else compared_models(out)
    for each in models:
        faults += yield from _found(each)
    pages = [folders.PAGE] if record.measures else []
    if models and all((one := folders.read_run_if_intact(each)) and is_measured(one) for each in models):
        pages = [folders.COMPARISON_FILE, folders.COMPARISON_PAGE]
    for path in (out / name for name in pages):
        if not path.is_file():
            faults.append(Fault("page", path, "It is missing.", command_for("report", out)))
        elif path.suffix == ".html" and not is_sealed(path):
            faults.append(Fault("page", path, "It is not as it was written.", command_for("report", out)))
    yield Progress(stage="Verifying", done=len(steps), total=len(steps), unit="stages")
    return faults


def _prompt_faults(run: RunFolder) -> Iterator[Fault]:
    if (prompts := run.record.prompts) is not None:
        counts = {"requests": prompts.requests, "prompts": prompts.distinct_prompts}
        store = run.data.store(prompts.fingerprint)
        command = command_for("verify", run.out, "--repair")
        if run.record.model and run.record.model.kind == "imported":  # its prompts come from the answers
            command = score_command(run.record, str(run.out))
        for path, what in _folder_faults("prompts", store, partial(_prompt_rows, counts=counts)):
            yield Fault("prompts", path, what, command)


def _score_faults(run: RunFolder) -> Iterator[Fault]:
    scores, data = run.record.scores, run.data
    if scores is None:
        return
    faults: list[tuple[Path, str]] = []
    for number, paths in enumerate(data.scored(scores)):
        if number:  # _prompt_faults checks the prompts of the first round
            faults += _folder_faults("prompts", paths.store, _prompt_rows)
        faults += _folder_faults("tokens", paths.tokens, _token_rows)
        faults += _folder_faults("scores", paths.scores, _score_rows)
    faults += _changed_files(data.scores(""), scores.files)
    if not faults:
        try:
            folder = BuiltFolder(run.out)
            parts = open_scored(folder)
            complete_run(scored_run(folder.built, parts), parts)
        except EvaluatorError as error:
            faults.append((data.scores(""), str(error)))
    for path, what in dict.fromkeys(faults):
        yield Fault("scores", path, what, score_command(run.record, str(run.out)))


def _table_faults(run: RunFolder) -> Iterator[Fault]:
    """Yield the faults of the tables of the measure stage, and of the table of receipts."""
    record, out = run.record, run.out
    if record.measures is not None:
        command = record.commands["measure"] if record.measures.options else command_for("measure", out)
        try:
            tables = run.measured.tables
        except StoreError as error:
            yield Fault("tables", out / "tables", str(error), command)
            tables = {}
        for name in tables:
            for path, what in _damaged_table(out, name, tables):
                yield Fault("tables", path, f"{name}: {what}", command)
    command = command_for("report", out) if folders.model_runs(out) else "evaluator compare"  # with the same runs
    try:
        compared = (read_json(out / folders.COMPARISON_FILE) or {}).get("tables", {})
    except StoreError as error:
        yield Fault("page", out / folders.COMPARISON_FILE, str(error), command)
        compared = {}
    for path, what in _changed_files(out / "tables", {f"{name}.parquet": sha256 for name, sha256 in compared.items()}):
        yield Fault("page", path, what, command)
    if record.receipts:
        for path, what in _damaged_table(out, "receipt", {"receipt": record.receipt_table}):
            yield Fault("receipt", path, what, command_for("receipt", out))


def _damaged_table(out: Path, name: str, digests: Mapping[str, str]) -> FileFaults:
    path = table_path(out, name)
    try:
        table = read_table(out, name, digests)
    except StoreError as error:
        yield path, str(error)
    else:
        yield from _frame_faults(path, table, *TABLES.get(name, (table.schema, ())))


def _folder_faults(kind: Kind, folder: Path, rows: Callable[[Path, Any], FileFaults]) -> FileFaults:
    """Yield the faults of a folder's manifest and files; if there are none, the faults that `rows` finds in rows."""
    manifest_type, listed = MANIFESTS[kind]
    try:
        manifest, what = read_record(folder / MANIFEST, manifest_type), "It is missing."
    except StoreError as error:
        manifest, what = None, str(error)
    if manifest is None:
        yield folder / MANIFEST, what
        return
    damaged = list(_changed_files(folder, getattr(manifest, listed)))
    yield from damaged or rows(folder, manifest)


def _prompt_rows(folder: Path, manifest: StoreManifest, counts: Mapping[str, int] | None = None) -> FileFaults:
    """Yield the faults of the rows of a prompt store; `counts`: numbers of rows in the record."""
    store = PromptStore(folder, manifest, verified={*manifest.files})
    requests, prompts = store.requests().collect(), store.prompts().collect()
    yield from _frame_faults(folder / "requests", requests, schemas.REQUESTS, schemas.REQUESTS_KEY)
    yield from _frame_faults(folder / "prompts", prompts, schemas.PROMPTS, schemas.PROMPTS_KEY)
    stated = {"requests": manifest.n_requests, "prompts": manifest.n_prompts}
    actual = {"requests": requests.height, "prompts": prompts.height}
    for source, expected in ((folder / MANIFEST, stated), (folder, counts or actual)):
        if expected != actual:
            yield source, f"It states {expected}, and there are {actual}."
    pairs = ((requests, prompts), (prompts, requests))
    if lost := sum(rows.join(others, on="prompt_id", how="anti").height for rows, others in pairs):
        yield folder, f"Requests without a prompt, or prompts without a request: {lost}."


def _token_rows(folder: Path, manifest: TokenManifest) -> FileFaults:
    tokens = scan_shards(folder, list(manifest.shards), schemas.TOKENS).collect()
    yield from _frame_faults(folder / "tokens", tokens, schemas.TOKENS, ["prompt_id", "ask"])
    lengths = tokens.filter(pl.col("ask") != "last_tokens")["context"].list.len().sum()
    if lengths != manifest.counts.tokens:
        yield folder / MANIFEST, f"It states {manifest.counts.tokens} tokens, and there are {lengths}."


def _score_rows(folder: Path, manifest: ScoreManifest) -> FileFaults:
    reused = list(_changed_files(folder.parent, manifest.reused))
    yield from reused
    for name, shard in {} if reused else manifest.shards.items():
        rows = scan_arrow(folder / name).collect()
        schema = SCHEMAS["states" if name.startswith("states") else "scores"]
        yield from _frame_faults(folder / name, rows, schema, ["token_id"])
        if shard.prompts > rows.height:
            yield folder / name, f"It holds {rows.height} rows, and its manifest states {shard.prompts} prompts."


def _changed_files(folder: Path, digests: Mapping[str, str]) -> FileFaults:
    for name in changed(folder, digests):
        there = (folder / name).exists()
        yield folder / name, "Its SHA-256 is not the one that was recorded." if there else "It is missing."


def _frame_faults(path: Path, rows: pl.DataFrame, schema: pl.Schema, key: Sequence[str]) -> FileFaults:
    if rows.schema != schema:
        different = sorted(column for column, _ in set(rows.schema.items()) ^ set(schema.items()))
        yield path, f"Its columns are those of another version: {', '.join(different)}."
    elif key and (repeated := rows.select(pl.struct(key).is_duplicated().sum()).item()):
        yield path, f"{repeated} rows share their key ({', '.join(key)}) with another."
