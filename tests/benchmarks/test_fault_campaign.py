"""A part of the fault campaign in every run of the tests: one trial of each kind."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KINDS = (
    "kill at a file event", "kill at a moment", "kill within a write", "kills in a row", "SIGTERM", "SIGINT",
    "SIGINT twice", "SIGSTOP, another writer", "disk full or failing", "limit on the size of files", "corrupt tables",
    "corrupt run.json", "corrupt scores", "corrupt scores manifest", "corrupt store", "corrupt store manifest",
    "writers of one folder", "writers of one store", "removed while it runs", "threads and shard sizes",
    "hostile model", "hostile data", "hostile text", "odd file system", "kill with kept answers",
    "name of several lines", "sheet with a far cell", "server that lies",
)  # fmt: skip


@pytest.mark.slow
def test_a_run_survives_one_disturbance_of_each_kind() -> None:
    """In a process of its own, whose children have no threads yet."""
    words = ("--cases", "halving", "--share", "0", "--vllm", "0", "--jobs", "1", "--no-row")
    command = [sys.executable, "-m", "benchmarks.faults.campaign", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    counts = re.findall(r"^(.+?) +(\d+) +(\d+) +(\d+) +[\d,]+$", done.stdout, re.MULTILINE)
    assert {name: tuple(map(int, numbers)) for name, *numbers in counts} == {
        **dict.fromkeys(KINDS, (1, 1, 0)),
        "all": (len(KINDS), len(KINDS), 0),
    }
