"""The command as a process of its own, for tests that kill or stop one, and what a run leaves behind."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

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


def shards_done(out: Path) -> tuple[int, int]:
    """Shards that the manifests of the scores name, and how many there will be."""
    manifests = [json.loads(path.read_text()) for path in out.glob("scores/*/*/manifest.json")]
    planned = [plan["n_shards"] for content in manifests for plan in content["plans"].values()]
    return sum(len(content["shards"]) for content in manifests), sum(planned)


def table_bytes(out: Path) -> dict[str, bytes]:
    return {name: (out / "tables" / name).read_bytes() for name in TABLES}
