"""DIR/run.json: what a run was, one section a stage."""

import shlex
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import evaluator
from evaluator.errors import StoreError
from evaluator.files import read_record, write_record
from evaluator.record import RunRecord

RUN_FILE = "run.json"


def read_run(out: Path) -> RunRecord:
    """Read the record of a run. Raises StoreError where nothing was built."""
    require_run(out)
    record = read_record(out / RUN_FILE, RunRecord)
    assert record is not None, "the file is there"
    return record


def require_run(out: Path) -> None:
    """Raise StoreError where a folder holds no run."""
    if not (out / RUN_FILE).is_file():
        raise StoreError(f"{out} holds no run. Make one with `evaluator build SUITE --out {out}` or `evaluator run`.")


def new_record(data: str, started: str) -> RunRecord:
    """The record of a run of which nothing is done yet.

    Args:
        data: folder of its prompts and scores, relative to the run's.
        started: as now() gives it.
    """
    return RunRecord(evaluator=evaluator.__version__, started=started, finished=started, data=data)


def with_stage(record: RunRecord, stage: str, *, elapsed_s: dict[str, float], **sections: Any) -> RunRecord:
    """The record with a finished stage: its sections, the command of this process, and its seconds."""
    return replace(
        record,
        evaluator=evaluator.__version__,
        finished=now(),
        commands=record.commands | {stage: command_line()},
        elapsed_s=record.elapsed_s | elapsed_s,
        **sections,
    )


def write_run(out: Path, record: RunRecord) -> None:
    write_record(out / RUN_FILE, record)


def command_line() -> str:
    """The command this process was started with, as it can be typed again."""
    return shlex.join(["evaluator", *sys.argv[1:]])


def now() -> str:
    """The time, as the record has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
