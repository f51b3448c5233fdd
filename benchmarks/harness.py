"""Time contestants that do the same work; print a table and append rows to a CSV file.

Every contestant first runs once for warm-up. This run measures its peak memory and gives the output that is compared
with the output of the baseline. If outputs differ, nothing is timed. Then contestants take turns (A B A B ...), so that
a machine that slows down slows all of them.
"""

import csv
import gc
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import psutil

from evaluator.engine.devices import cores

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
SHARED_DATA = Path(os.environ.get("EVALUATOR_SHARED_DATA", ROOT.parent / "shared" / "data"))
"""Folder of datasets that are not in the repository."""

SHARED_MODELS = Path(os.environ.get("EVALUATOR_SHARED_MODELS", ROOT / "build" / "models"))
"""Folder of pretrained models, which are not in the repository either."""

MIB = 2**20

_SHARE_OF_A_CORE = 0.02  # maximum share of a core that sampling the memory of child processes may use
_STATUS, _PEAK_RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work that every contestant of a race does."""

    benchmark: str  # stem of the CSV file
    case: str  # distinguishes this race from others in the same file, for example "lcp, 140000 rows"
    items: int  # number of items that are processed
    unit: str  # what the items are, for example "prompts"
    packages: Sequence[str]  # packages whose versions are written to the rows


@dataclass(frozen=True, kw_only=True)
class Timing:
    """The measurements of one contestant."""

    contestant: str
    runs: int
    median_s: float
    q1_s: float
    q3_s: float
    min_s: float
    max_s: float
    peak_mib: float  # peak resident memory of this process and its children in the warm-up run
    added_mib: float  # peak_mib minus the resident memory before that run
    times_baseline: float  # median of the baseline / median of this contestant: 2 is twice as fast


@dataclass(frozen=True, kw_only=True)
class Target:
    """A measured value and its limits."""

    what: str
    value: float
    at_most: float = float("inf")
    at_least: float = float("-inf")

    @property
    def met(self) -> bool:
        return self.at_least <= self.value <= self.at_most


def require_green_tests(path: str) -> None:
    """Exit unless the tests at this path, relative to the repository root, pass."""
    if subprocess.run([sys.executable, "-m", "pytest", "-q", path], cwd=ROOT, check=False).returncode:
        raise SystemExit(f"{path} does not pass, so nothing is timed.")


def race(
    work: Work,
    contestants: Mapping[str, Callable[[], Any]],
    *,
    runs: int,
    same: Callable[[Any, Any], None] = np.testing.assert_equal,
    starts_anew: bool = False,
) -> dict[str, Timing]:
    """Run, compare and time contestants; print a table and append one row per contestant to results/<benchmark>.csv.

    Args:
        work: description of the work.
        contestants: name -> callable; the first is the baseline.
        runs: number of timed runs per contestant.
        same: called with the output of the baseline and another output; raises AssertionError if they differ.
        starts_anew: whether every run is a new process, which a warm-up does not affect; then the first run is timed.

    Returns:
        Name -> timing.

    Raises:
        SystemExit: if outputs differ.
    """
    memory = _warm_up(work, contestants, same)
    times = {name: [memory[name].elapsed_s] if starts_anew else [] for name in contestants}
    for _ in range(runs - starts_anew):
        for name, run in contestants.items():
            times[name].append(seconds(run))
    baseline_s = float(np.median(next(iter(times.values()))))
    timings = [_timing(name, times[name], memory[name], baseline_s) for name in contestants]
    _print_table(work, timings)
    _append(work, timings)
    return {timing.contestant: timing for timing in timings}


def print_targets(*targets: Target) -> None:
    """Print one line per target: met or missed, name, value and limit."""
    for target in targets:
        limit = f"<= {target.at_most:g}" if target.at_most < float("inf") else f">= {target.at_least:g}"
        print(f"{'met   ' if target.met else 'MISSED'}  {target.what}: {target.value:.3g}, target {limit}")


def _warm_up(
    work: Work, contestants: Mapping[str, Callable[[], Any]], same: Callable[[Any, Any], None]
) -> dict[str, SimpleNamespace]:
    memory = {}
    outputs: list[Any] = []
    for name, run in contestants.items():
        gc.collect()
        with peak_memory() as memory[name]:
            start = time.perf_counter()
            output = run()
            memory[name].elapsed_s = time.perf_counter() - start
        try:
            same(outputs[0] if outputs else output, output)
        except AssertionError as difference:
            why = f"{work.case}: {name} differs from the baseline, so nothing is timed.\n{difference}"
            raise SystemExit(why) from None
        outputs = outputs or [output]
    return memory


def seconds(run: Callable[[], object]) -> float:
    """Return the duration of a call in seconds, after a garbage collection."""
    gc.collect()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _timing(name: str, times: list[float], memory: SimpleNamespace, baseline_s: float) -> Timing:
    low, q1, median, q3, high = map(float, np.quantile(times, [0, 0.25, 0.5, 0.75, 1]))
    return Timing(
        contestant=name,
        runs=len(times),
        median_s=median,
        q1_s=q1,
        q3_s=q3,
        min_s=low,
        max_s=high,
        peak_mib=memory.peak_mib,
        added_mib=memory.peak_mib - memory.start_mib,
        times_baseline=baseline_s / median,
    )


@contextmanager
def peak_memory() -> Iterator[SimpleNamespace]:
    """Measure resident memory of this process and its children: start_mib, and peak_mib at the end of the block.

    The system records the peak of this process. The memory of children is sampled, with at most 2% of a core, so short
    peaks of children may be missed.
    """
    seen = SimpleNamespace(start_mib=_resident_mib())
    seen.peak_mib = seen.start_mib
    done = threading.Event()

    def watch() -> None:
        pause_s = 0.0
        while not done.wait(pause_s):
            start = time.perf_counter()
            seen.peak_mib = max(seen.peak_mib, _resident_mib())
            pause_s = (time.perf_counter() - start) / _SHARE_OF_A_CORE

    _PEAK_RESET.write_text("5")  # 5 resets the peak of resident memory, proc(5)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()
        peak_kib = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:")).split()[1]
        seen.peak_mib = max(seen.peak_mib, _resident_mib(), int(peak_kib) / 1024)


def _resident_mib() -> float:
    total = 0
    for process in (me := psutil.Process(), *me.children(recursive=True)):
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:  # the child has ended since it was listed
            continue
    return total / MIB


def _print_table(work: Work, timings: Sequence[Timing]) -> None:
    print(f"\n{work.benchmark}: {work.case} ({_device()})")
    heads = ["median s", "q1-q3", "min-max", f"{work.unit}/s", "added MiB", "x baseline"]
    print(" " * 24 + "".join(f"{head:>15}" for head in heads))
    for t in timings:
        rate = work.items / t.median_s
        cells = [
            f"{t.median_s:.3f}",
            f"{t.q1_s:.3f}-{t.q3_s:.3f}",
            f"{t.min_s:.3f}-{t.max_s:.3f}",
            f"{rate:,.0f}" if rate >= 1_000 else f"{rate:.3g}",
            f"{t.added_mib:.0f}",
            f"{t.times_baseline:.2f}",
        ]
        print(f"{t.contestant:24}" + "".join(f"{cell:>15}" for cell in cells))


def _append(work: Work, timings: Sequence[Timing]) -> None:
    done = {"items": work.items, "unit": work.unit}
    rows = [done | {k: round(v, 6) if isinstance(v, float) else v for k, v in asdict(t).items()} for t in timings]
    append_rows(work.benchmark, work.case, work.packages, rows)


def append_rows(benchmark: str, case: str, packages: Sequence[str], measured: Sequence[Mapping[str, object]]) -> None:
    """Append rows to results/<benchmark>.csv, with date, commit, device, versions and case.

    Args:
        benchmark: stem of the file.
        case: name of the case.
        packages: packages whose versions are written.
        measured: further columns of the rows.

    Raises ValueError if the columns differ from those of the file.
    """
    run = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": code_commit(),
        "device": _device(),
        "versions": _versions(packages),
        "case": case,
    }
    rows = [run | dict(values) for values in measured]
    path, names = RESULTS / f"{benchmark}.csv", list(rows[0])
    if not path.exists():
        path.write_text(",".join(names) + "\n")
    with path.open("r+", newline="") as table:
        header = next(csv.reader(table))
        if names != header:
            raise ValueError(f"{path} has the columns {', '.join(header)}, and the rows have {', '.join(names)}.")
        table.seek(0, os.SEEK_END)
        csv.DictWriter(table, names, lineterminator="\n").writerows(rows)


def read_rows(path: Path) -> pl.DataFrame:
    """Read a table of results. Commits are read as texts, because a hash such as 77e3673 looks like a number."""
    return pl.read_csv(path, infer_schema_length=None, schema_overrides={"commit": pl.String})


def with_block(page: str, command: str, text: str) -> str:
    """Return a page with `text` between the marks that name `command`, the module and options that write it."""
    begin, end = f"<!-- begin: python -m {command} -->", "<!-- end -->"
    before, rest = page.split(begin)
    return f"{before}{begin}\n{text}{end}{rest.split(end, maxsplit=1)[1]}"


def code_commit() -> str:
    """Return the short hash of the current commit, with a + if files other than results have uncommitted changes."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", ".", ":!benchmarks/results")
    return (git("rev-parse", "--short", "HEAD") or "none") + ("+" if changed else "")


def _device() -> str:
    """Return processor, number of cores available to this process, memory and GPUs, without the host name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    memory = f"{psutil.virtual_memory().total / 2**30:.0f} GiB"
    parts = [models[0] if models else platform.machine(), f"{len(cores())} cores", memory]
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        parts += subprocess.run(query, capture_output=True, text=True, check=False).stdout.split("\n")[:-1]
    return ", ".join(parts)


def _versions(packages: Sequence[str]) -> str:
    """Return the versions of Python and of the packages that are installed; a race may not need all packages."""
    found = []
    for package in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{package} {importlib.metadata.version(package)}")
    return ", ".join([f"python {platform.python_version()}", *found])
