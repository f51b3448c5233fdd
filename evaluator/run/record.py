"""DIR/run.json: what a run was, one section a stage."""

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import evaluator
from evaluator.errors import StoreError
from evaluator.files import read_json, write_json

RUN_FILE = "run.json"


def read_run(out: Path) -> dict[str, Any]:
    """The record of a run. Raises StoreError where nothing was built."""
    record = read_json(out / RUN_FILE)
    if record is None:
        raise StoreError(f"{out} holds no run. Make one with `evaluator build SUITE --out {out}` or `evaluator run`.")
    return record


def stage_fingerprint(out: Path, stage: Literal["store", "scores"]) -> str:
    """The folder name of what a stage wrote last. Raises StoreError when that stage has not been run."""
    record = read_run(out)
    if stage not in record:
        command = {"store": f"build SUITE --out {out}", "scores": f"score {out} --model MODEL"}[stage]
        raise StoreError(f"{out} has no {stage} yet. Run `evaluator {command}` first.")
    return str(record[stage]["fingerprint"])


def data_folder(out: Path) -> Path:
    """Where the prompts and scores of a run lie: in its own folder, or in the one that several models' runs share."""
    return out / str(read_run(out).get("data", "."))


def record_stage(out: Path, **sections: Any) -> None:
    """Write these sections into the record; what an earlier stage wrote into the same section stays beside it."""
    record = read_json(out / RUN_FILE) or {}
    for name, content in sections.items():
        record[name] = record.get(name, {}) | content if isinstance(content, dict) else content
    write_json(out / RUN_FILE, record | {"evaluator": evaluator.__version__, "finished": now()})


def command_line() -> str:
    """The command this process was started with, as it can be typed again."""
    return shlex.join(["evaluator", *sys.argv[1:]])


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
