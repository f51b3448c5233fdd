"""Read and write DIR/run.json, the record of a run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import evaluator
from evaluator.errors import StoreError
from evaluator.files.json_files import read_record, write_record
from evaluator.record import RunRecord
from evaluator.run_log import LOG_FILE, command_line, now

RUN_FILE = "run.json"
COMPARISON_PAGE = "compare.html"


def read_run(out: Path) -> RunRecord:
    """Read the record of a run. Raises StoreError if nothing was built."""
    require_run(out)
    hint = f"Run the command that wrote it again: existing scores are kept. The commands are in {out / LOG_FILE}."
    record = read_record(out / RUN_FILE, RunRecord, hint)
    assert record is not None, "the file is there"
    return record


def require_run(out: Path) -> None:
    """Raise StoreError if a folder holds no run."""
    if not (out / RUN_FILE).is_file():
        raise StoreError(f"{out} holds no run. Make one with `evaluator build SUITE --out {out}` or `evaluator run`.")


def new_record(data: str, started: str) -> RunRecord:
    """Return the record of a run before its first stage.

    Args:
        data: folder of prompts and scores, relative to the output folder.
        started: time, as returned by now().
    """
    return RunRecord(evaluator=evaluator.__version__, started=started, finished=started, data=data)


def with_stage(record: RunRecord, stage: str, *, elapsed_s: dict[str, float], **sections: Any) -> RunRecord:
    """Return the record with the sections of a finished stage, its elapsed seconds and the command of this process."""
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
