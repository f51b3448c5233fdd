"""Fuzz all parsers: feed them damaged bytes, and damage again the inputs that reach new lines of the evaluator.

python -m benchmarks.faults.fuzz [--inputs 1000000] [--only NAME] [--findings FOLDER]

No parser may raise anything but EvaluatorError, need more than two seconds, or need more than a gigabyte of memory.
Print the number of inputs and the findings of every parser, and append one row per parser to
benchmarks/results/fuzz.csv. Exit with 1 if there are findings.
"""

import argparse
import hashlib
import math
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any

import psutil

from benchmarks.faults import damage
from benchmarks.faults.campaign import RAM_DISK
from benchmarks.faults.parsers import PACKAGE, Parser, fault_of, parsers
from benchmarks.harness import append_rows

MAX_CPU_S, MAX_BYTES = 2.0, 2**30
MAX_DAMAGES = 3  # maximum number of damages to one input

Line = tuple[CodeType, int]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--inputs", type=int, default=1_000_000, help="of all parsers together")
    arguments.add_argument("--only", default="", help="only parsers whose name contains this word")
    arguments.add_argument("--seed", type=int, default=0, help="of everything that is drawn")
    arguments.add_argument("--findings", type=Path, help="write the smallest input of each finding to this folder")
    arguments.add_argument("--no-row", action="store_true", help="append no rows to benchmarks/results/fuzz.csv")
    options = arguments.parse_args()
    for parser in (every := parsers()).values():
        for content in parser.seeds:
            fault_of(parser, content)  # makes the parser import its modules before memory is limited
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_BYTES, used + MAX_BYTES))
    chosen = {name: parser for name, parser in every.items() if options.only in name}
    findings: dict[str, dict[str, bytes]] = {}
    with tempfile.TemporaryDirectory(dir=RAM_DISK if os.access(RAM_DISK, os.W_OK) else None) as folder:
        tempfile.tempdir = folder
        for name, one in chosen.items():
            n_inputs, clock = -(-options.inputs // len(chosen)), time.monotonic()
            findings[name] = fuzz(one, n_inputs, Random(f"{options.seed} {name}"), MAX_CPU_S)
            seconds = time.monotonic() - clock
            print(f"{name:24}{n_inputs:>10,} inputs{seconds:>8.0f} s{len(findings[name]):>6} findings", flush=True)
            for what, content in findings[name].items():
                print(f"    {what}: {content[:80]!r}", flush=True)
            row = {"inputs": n_inputs, "findings": len(findings[name]), "elapsed_s": round(seconds, 1)}
            if not options.no_row:
                append_rows("fuzz", name, ["polars", "msgspec"], [row])
        tempfile.tempdir = None
    if options.findings:
        _keep(findings, options.findings)
    sys.exit(1 if any(findings.values()) else 0)


def fuzz(parser: Parser, n_inputs: int, rng: Random, max_cpu_s: float = math.inf) -> dict[str, bytes]:
    """Parse `n_inputs` damaged inputs; return fault -> smallest input that causes it.

    An input that needs more than `max_cpu_s` seconds of processor time is a fault too.
    """
    pool, seen = list(parser.seeds), set[Line]()
    findings: dict[str, bytes] = {}
    for _ in range(n_inputs):
        content = damaged(rng.choice(pool), rng)
        clock, n_seen = time.process_time(), len(seen)
        with _lines(seen):
            fault = fault_of(parser, content)
        if fault is None and time.process_time() - clock > max_cpu_s:
            fault = "too slow"
        if fault and len(content) < len(findings.get(fault, content + b" ")):
            findings[fault] = content
        if len(seen) > n_seen and len(content) < 2**16:
            pool.append(content)
    return findings


def damaged(content: bytes, rng: Random) -> bytes:
    """Return the content after 1 to MAX_DAMAGES random damages."""
    for _ in range(rng.randint(1, MAX_DAMAGES)):
        edit = rng.choice((*damage.BYTES, *damage.JSON))
        content = edit(content, rng)
    return content


@contextmanager
def _lines(seen: set[Line]) -> Iterator[None]:
    """Add to `seen` the lines of the evaluator that run within the context."""

    def on_line(frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            seen.add((frame.f_code, frame.f_lineno))
        return on_line

    def on_call(frame: FrameType, _event: str, _argument: Any) -> Any:
        return on_line if frame.f_code.co_filename.startswith(PACKAGE) else None

    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield
    finally:
        sys.settrace(before)


def _keep(findings: dict[str, dict[str, bytes]], folder: Path) -> None:
    for name, faults in findings.items():
        for content in faults.values():
            path = folder / name / hashlib.sha256(content).hexdigest()[:16]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


if __name__ == "__main__":
    main()
