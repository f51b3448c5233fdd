"""The command as a process of its own, for tests that kill or stop one, and what a run leaves behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

INTERRUPTED = Path(__file__).with_name("interrupted.py")
TABLES = ("metrics.parquet", "predictions.parquet")


def start(*words: object, program: tuple[str, ...] = ("-m", "evaluator")) -> subprocess.Popen[str]:
    command = [sys.executable, *program, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def killed(*words: object, at_call: int) -> None:
    """Run the command in a process that is killed (-9) when its engine is called for the n-th time."""
    process = start("SIGKILL", at_call, *words, program=(str(INTERRUPTED),))
    outputs = process.communicate()
    assert process.returncode == -signal.SIGKILL, outputs


def stopped(*words: object, at_call: int) -> subprocess.Popen[str]:
    """Run the command in a process until its engine is called for the n-th time; there it stands still."""
    process = start("SIGSTOP", at_call, *words, program=(str(INTERRUPTED),))
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), process.communicate()
    return process


def shards_done(out: Path) -> int:
    """Number of shards that the manifests of the scores name."""
    return sum(len(content["shards"]) for content in _manifests(out))


def prompts_left(out: Path) -> int:
    """Number of prompts that are planned and not scored."""
    contents = _manifests(out)
    planned = [plan["prompts"] for content in contents for plan in content["plans"].values()]
    scored = [shard["prompts"] for content in contents for shard in content["shards"].values()]
    return sum(planned) - sum(scored)


def _manifests(out: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in out.glob("scores/*/*/manifest.json")]


def table_bytes(out: Path) -> dict[str, bytes]:
    return {name: (out / "tables" / name).read_bytes() for name in TABLES}
