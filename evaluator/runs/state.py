"""Report the content and progress of a run from its files alone: quickly, also while another process works on it."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from evaluator.errors import StoreError, plural
from evaluator.files.json_files import MANIFEST, read_record
from evaluator.files.whole import lock_holder, read_bytes, size_text, table_path
from evaluator.record import EngineRecord, RunRecord, command_for, score_command
from evaluator.run.folders import RUN_FILE, RunFolder, is_compared, is_measured, model_runs, read_run_if_intact
from evaluator.run_log import LOG_FILE
from evaluator.scores.table import ScoreManifest

State = Literal["running", "finished", "unfinished", "damaged"]

ENDED = " INFO finished"  # end of the last line of the log after a command that did not fail
MAX_DEPTH = 5  # levels of subfolders that are searched for runs
_NO_RUNS_INSIDE = {"store", "scores", "tables", "users", "data"}  # subfolders of a run


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """The progress of scoring: prompts with scores in finished shards."""

    model: str
    engine: str = ""  # "" if all scores are from earlier runs
    done: int = 0  # prompts with scores
    planned: int  # prompts to score, including those with scores
    elapsed_s: float = 0.0  # seconds for the finished shards
    last_s: float = 0.0  # time at which the last shard was finished, seconds since 1970; 0: none was


@dataclass(frozen=True, kw_only=True)
class RunState:
    """What is known about a run's folder."""

    folder: str
    state: State
    process: int | None  # id of the process that writes to the folder; None: none, or not visible from here
    problem: str  # why the record cannot be read; "" if it can
    suites: list[str]
    datasets: list[str]
    methods: list[str]
    model: str
    engine: str
    started: str  # time in ISO 8601, UTC; "" before there is a record
    finished: str
    stages: list[str]  # finished stages
    prompts: int
    scoring: list[Scoring]
    left_out: dict[str, str]
    command: str  # last command, other than `evaluator report`; after a build or scoring that has ended, the next one
    last_message: str  # last line of the log
    run_bytes: int  # bytes of the files in the folder
    data_bytes: int  # bytes of prompts and scores, if they are in another folder
    data: str  # folder of prompts and scores; "" if it is this folder


def find_runs(folder: Path) -> Iterator[Path]:
    """Yield the folders of runs in a folder and below it, sorted; hidden folders and links are left out."""

    def inside(_: Path, files: Sequence[str]) -> Collection[str] | None:
        is_run = RUN_FILE in files or (LOG_FILE in files and ".lock" in files)
        return _NO_RUNS_INSIDE if is_run else None

    return folders_below(folder, inside)


def folders_below(
    folder: Path, not_searched: Callable[[Path, Sequence[str]], Collection[str] | None]
) -> Iterator[Path]:
    """Yield chosen folders in a folder and below it, sorted; hidden folders and links are left out.

    Args:
        folder: folder to search, up to MAX_DEPTH levels down.
        not_searched: function of a folder and the names of its files: None if the folder is not chosen, otherwise the
            names of its subfolders that are not searched.
    """
    for parent, folders, files in os.walk(folder):
        path = Path(parent)
        depth, skipped = len(path.relative_to(folder).parts), not_searched(path, files)
        folders[:] = sorted(
            name for name in folders if name[0] != "." and name not in (skipped or ()) and depth < MAX_DEPTH
        )
        if skipped is not None:
            yield path


def run_state(out: Path) -> RunState:
    """Return the state of a run. Raises StoreError if the folder holds no run and no log of a run that has begun."""
    log, process = list[str](), lock_holder(out / ".lock")
    with suppress(OSError):
        log = read_bytes(out / LOG_FILE).decode("utf-8", "replace").splitlines()
    run, problem = RunFolder(out), ""
    record = RunRecord(evaluator="", started="", finished="", data="")  # for a run without a record
    if (out / RUN_FILE).is_file():
        try:
            record = run.record
        except StoreError as error:
            problem = str(error)
    elif not (out / LOG_FILE).is_file():
        raise StoreError(f"{out} holds no run. `evaluator list` finds those in a folder.")
    prompts, finished = record.prompts, _finished(out, record, log)
    stages = {
        "built": prompts is not None,
        "checked": record.preflight is not None,
        "scored": record.scores is not None,
        "measured": _has_tables(out, record),
        "compared": is_compared(out, record),
    }
    data = out / record.data if (out / record.data).resolve() != out.resolve() else None
    left_out = {name: why for each in (prompts, record.scores) if each for name, why in each.left_out.items()}
    listed: dict[str, Any] = {name: getattr(prompts, name, []) for name in ("suites", "datasets", "methods")}
    unfinished: State = "damaged" if problem else "finished" if finished else "unfinished"
    return RunState(
        folder=str(out),
        state=unfinished if process is None else "running",
        process=process or None,
        problem=problem,
        **listed,
        model=", ".join(_models(out, record)),
        engine=_engine_text(record.engine),
        started=record.started,
        finished=finished,
        stages=[name for name, is_done in stages.items() if is_done],
        prompts=prompts.distinct_prompts if prompts else 0,
        scoring=[] if prompts is None or finished else list(_scoring(run, record)),
        left_out=left_out,
        command=_command(out, record, log),
        last_message=log[-1] if log else "",
        run_bytes=_folder_bytes(out),
        data_bytes=_folder_bytes(data) if data else 0,
        data=str(data) if data else "",
    )


def _has_tables(out: Path, record: RunRecord) -> bool:
    """Return whether the tables of a run were computed from its present scores, and none was removed since."""
    tables = record.measures.tables if record.measures else {}
    return is_measured(record) and all(table_path(out, name).is_file() for name in tables)


def _models(out: Path, record: RunRecord) -> list[str]:
    """Return the name of a run's model, or of every model in a folder of several models."""
    records = [record] if record.model else map(read_run_if_intact, model_runs(out))
    return [each.model.title for each in records if each and each.model]


def _finished(out: Path, record: RunRecord, log: Sequence[str]) -> str:
    """Return the time at which a run, a comparison or a board was finished (ISO 8601, UTC); "" if it is not."""
    if _has_tables(out, record):
        return record.finished
    is_board = not (out / RUN_FILE).exists() and log and log[-1].endswith(ENDED)
    ends = (line.partition(" ")[0] for line in reversed(log) if line.endswith(ENDED))
    return next(ends, record.finished) if is_board or (record.scores is None and is_compared(out, record)) else ""


def _command(out: Path, record: RunRecord, log: Sequence[str]) -> str:
    """Return the last command, other than `evaluator report`; after a build or scoring that has ended, the next one."""
    if record.prompts and not _has_tables(out, record) and not model_runs(out) and log and log[-1].endswith(ENDED):
        return command_for("measure", out) if record.scores else score_command(record, str(out))
    started = [line.partition("started: ")[2] for line in log if " started: " in line]
    return next((typed for typed in reversed(started) if not typed.startswith("evaluator report ")), "")


def _scoring(run: RunFolder, record: RunRecord) -> Iterator[Scoring]:
    """Yield the progress of scoring for each folder of scores of a run, or of the runs of several models.

    While the record does not name the folder of its model's scores, the scores of other models are included.
    """
    if record.model is None and (models := [RunFolder(each) for each in model_runs(run.out)]):
        for each in models:
            with suppress(StoreError):
                model, prompts = each.record.model, each.record.prompts
                planned = prompts.distinct_prompts if prompts else 0
                not_begun = Scoring(model=model.title if model else "", planned=planned)
                yield from [*_scoring(each, each.record)] or [not_begun]
        return
    stores = {record.prompts.fingerprint} if record.prompts else set()
    stores |= {*record.scores.stores} if record.scores else set()
    begun = [run.data.begun(store, record.scores_folder or "*") for store in sorted(stores)]
    for folder in sorted({folder for tokens in begun for _, scores in tokens for folder in scores}):
        with suppress(StoreError):  # another process may be about to write the manifest
            if manifest := read_record(folder / MANIFEST, ScoreManifest):
                shards = manifest.counted_shards
                reused = sum(plan.reused_prompts for plan in manifest.plans.values())
                yield Scoring(
                    model=record.model.title if record.model else "",
                    engine=_engine_text(manifest.engine),
                    done=sum(shard.prompts for shard in shards) + reused,
                    planned=sum(plan.prompts for plan in manifest.plans.values()) + reused,
                    elapsed_s=sum(shard.elapsed_s for shard in shards),
                    last_s=max((shard.finished_s for shard in shards), default=0.0),
                )


def _engine_text(engine: EngineRecord | None) -> str:
    return f"{engine.name}, {engine.dtype}, {engine.device}" if engine else ""


def _folder_bytes(folder: Path) -> int:
    """Return the bytes of all files in a folder and below it."""
    return bytes_of(Path(parent, name) for parent, _, names in os.walk(folder) for name in names)


def bytes_of(files: Iterable[Path]) -> int:
    """Return the bytes of some files; files that disappear meanwhile are not counted."""
    total = 0
    for file in files:
        with suppress(OSError):
            total += file.lstat().st_size
    return total


def state_lines(state: RunState) -> Iterator[str]:
    """Yield what `evaluator show` prints about a run."""
    by = f" (process {state.process})" if state.process else ""
    yield f"{state.folder}: {how_far(state)}{by}"
    facts = {
        "damaged": state.problem,
        "suites": ", ".join(state.suites),
        "datasets": ", ".join(state.datasets),
        "methods": ", ".join(state.methods),
        "prompts": f"{state.prompts:,} distinct" if state.prompts else "",
        "model": state.model,
        "engine": state.engine,
        "stages": ", ".join(state.stages),
        "started": state.started,
        "finished": state.finished,
        **{f"left out: {name}": why for name, why in state.left_out.items()},
        "disk": size_text(state.run_bytes)
        + (f", and {size_text(state.data_bytes)} in {state.data}" if state.data else ""),
        "last logged": state.last_message,
    }
    yield from (f"  {name:12}  {value}" for name, value in facts.items() if value)
    yield from (f"  {'scoring':12}  {_scored(one)}" for one in state.scoring)
    if state.state == "unfinished" and state.command:
        yield f"  {'to go on':12}  {state.command}"


def how_far(state: RunState) -> str:
    """Return the state of a run with the share of scored prompts, or with its last stage."""
    parts: list[str] = [state.state]
    if planned := sum(one.planned for one in state.scoring):
        parts.append(f"{sum(one.done for one in state.scoring) / planned:.0%} scored")
    elif state.state in ("running", "unfinished"):
        parts.append(state.stages[-1] if state.stages else "building prompts")
    return ", ".join(parts)


def _scored(one: Scoring) -> str:
    speed = f", {one.done / one.elapsed_s:,.0f} prompts/s" if one.elapsed_s else ""
    ago = f", the last {max(time.time() - one.last_s, 0):,.0f} s ago" if one.last_s else ""
    where = ", ".join(filter(None, (one.model, one.engine)))
    return f"{one.done:,} of {plural(one.planned, 'planned prompt')}{speed}{ago}{f' ({where})' if where else ''}"
