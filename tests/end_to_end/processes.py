"""The command as a process of its own, and what a run leaves behind."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

TABLES = ("metrics.parquet", "predictions.parquet")


def start(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "evaluator", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def command(*words: object, exits: int = 0) -> str:
    """Run to the end; both outputs. Fails when the exit code is another or the user would see a traceback."""
    process = start(*words)
    out, err = process.communicate(timeout=300)
    assert process.returncode == exits, f"exit {process.returncode}\n{out}\n{err}"
    assert "Traceback" not in err
    return out + err


def table_bytes(out: Path) -> dict[str, bytes]:
    return {name: (out / "tables" / name).read_bytes() for name in TABLES}


def wait_for_a_shard(out: Path, process: subprocess.Popen[str]) -> None:
    """Until the manifest names at least one shard of the scores."""
    give_up = time.monotonic() + 120
    while time.monotonic() < give_up and process.poll() is None:
        for manifest in out.glob("scores/*/manifest.json"):
            if json.loads(manifest.read_text())["shards"]:
                return
        time.sleep(0.02)
    process.kill()
    pytest.fail(f"no shard was written: {process.communicate()}")


def shards_done(out: Path) -> tuple[int, int]:
    (manifest,) = out.glob("scores/*/manifest.json")
    content = json.loads(manifest.read_text())
    return len(content["shards"]), content["n_shards"]
