"""Disturb small runs in every way that a machine or a user can, and count the runs that survive.

python -m benchmarks.faults.campaign [--share 0.01] [--only KIND] [--seed N]

Disturbances are kills at every change of a file and at random moments, signals, failing disks, limits on file sizes,
damaged files of every kind, several writers, removed folders, hostile models, tables and texts. A run survives if its
tables have the same bytes as those of an undisturbed run, or if it ends with one error message and exit code 2. The
campaign exits with 1 if any trial failed.
"""

import argparse
import gc
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from random import Random
from typing import NamedTuple

from benchmarks.faults import remembered
from benchmarks.faults.cases import FAKE, SMALL, Case, Undisturbed, make_cases, page_difference, undisturbed, vllm_case
from benchmarks.faults.corruptions import corruption_trials
from benchmarks.faults.determinism import determinism_trials
from benchmarks.faults.disks import disk_trials
from benchmarks.faults.forked import adopt_orphans, import_all_of, left_running, run
from benchmarks.faults.hostile import data_trials, model_trials
from benchmarks.faults.kills import kill_trials, vllm_trials
from benchmarks.faults.places import name_trials, place_trials, server_trials
from benchmarks.faults.served import serve_labels
from benchmarks.faults.trials import Trial
from benchmarks.faults.writers import writer_trials
from benchmarks.harness import append_rows

MOMENTS, QUOTAS, WRITERS = 16, 5, 1
"""Numbers of trials per case at a share of 1: kills at moments, limits on file sizes, several writers."""

CASES_A_CORRUPTION, CORRUPTED_WITH_TORCH = 3, 1
"""Number of cases in which every combination of damage, kind of file and command is tried, at a share of 1: of cases
without and with torch."""

MODELS, DATA = 160, 300
"""Total numbers of trials with hostile models and hostile data, at a share of 1."""

RAM_DISK = Path("/dev/shm")  # noqa: S108  (a folder with an unpredictable name is made in it)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the trials, drawn at random; at least one a kind")
    parser.add_argument("--only", default="", help="only trials whose kind contains this word")
    parser.add_argument("--cases", default="", help="only cases with these names, separated by commas")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="trials at once")
    parser.add_argument("--vllm", type=int, default=4, help="kills of runs through vLLM, which take longest")
    parser.add_argument(
        "--minutes", type=float, default=60, help="begin no trial after so long, and say how many are left"
    )
    parser.add_argument("--skip", type=int, default=0, help="trials of the same draw that an earlier command has made")
    parser.add_argument("--no-row", action="store_true", help="append no rows to benchmarks/results/faults.csv")
    options = parser.parse_args()
    clock = time.monotonic()
    scratch = Path(tempfile.mkdtemp(prefix="faults-", dir=RAM_DISK if os.access(RAM_DISK, os.W_OK) else None))
    results: list[Result] = []
    n_trials = 0
    skipped = options.skip
    try:
        for trials in _rounds(scratch, options):
            drawn = _chosen(trials, options)
            chosen, skipped = drawn[skipped:], max(skipped - len(drawn), 0)
            n_trials += len(chosen)
            results += _attempts(chosen, scratch, options.seed, options.jobs, clock + 60 * options.minutes)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    tried = Counter(result.kind for result in results)
    failed = Counter(result.kind for result in results if result.is_fault)
    _print(tried, failed, results)
    if len(results) < n_trials:
        left = n_trials - len(results)
        print(f"{left:,} of {n_trials:,} trials were not begun within {options.minutes:g} minutes")
    if not options.no_row:
        seconds = round(time.monotonic() - clock)
        for kind, n in tried.items():
            row = {"tried": n, "survived": n - failed[kind], "failed": failed[kind], "whole_campaign_s": seconds}
            append_rows("faults", kind, ["polars", "pyarrow"], [row])
    sys.exit(1 if failed else 0)


def _rounds(scratch: Path, options: argparse.Namespace) -> Iterator[list[Trial]]:
    """Yield the trials of cases without torch; then import torch and yield the trials of other cases.

    Every trial forks this process, and a process with torch takes twice as long to fork.
    """
    os.environ["EVALUATOR_CACHE"] = str(scratch / "cache")  # a cache of converted datasets only for this campaign
    # Parallel trials use all cores, and most end before a second thread would help.
    os.environ |= {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    names = options.cases.split(",") if options.cases else []
    cases = [case for case in make_cases(scratch / "data", serve_labels()) if not names or case.name in names]
    first = scratch / "first"
    readers = (
        ["measure", first],
        ["verify", first],
        ["export", first, "--format", "csv", "--out", scratch / "first.csv"],
    )
    import_all_of(["run", "staicc-normal", *SMALL, *FAKE, "--out", first], *readers)
    remembered.install()
    if without_torch := [case for case in cases if not case.imports_torch]:
        trials = _trials(without_torch, CASES_A_CORRUPTION, scratch / "without torch")
        yield [*trials, *data_trials(DATA), *name_trials()]
    embedded = ("--model", "embedded", "--engine", "transformers")
    import_all_of(["run", "staicc-normal", *SMALL, *embedded, "--out", scratch / "second"])
    with_torch = [case for case in cases if case.imports_torch]
    trials = _trials(with_torch, CORRUPTED_WITH_TORCH, scratch / "with torch")
    models = undisturbed(cases[0], scratch / "models")
    trials += [*model_trials(models, MODELS), *server_trials(models)]
    if options.vllm:
        trials += vllm_trials(undisturbed(vllm_case(), scratch / "vLLM"), options.vllm)
    yield trials


def _trials(chosen: Sequence[Case], n_corrupted: int, scratch: Path) -> list[Trial]:
    """Run cases undisturbed, and return all their trials."""
    cases = [undisturbed(case, scratch / "undisturbed" / case.name) for case in chosen]
    trials = [*corruption_trials(cases, n_corrupted, scratch / "corruptions")]
    for number, case in enumerate(cases):
        _require_same_page(case, scratch / "page" / case.case.name)
        print(f"{case.case.name}: {sum(case.n_events.values())} changes of files, {case.cpu_s:.2f} s", flush=True)
        trials += [*kill_trials(case, MOMENTS), *disk_trials(case, number, QUOTAS)]
        trials += [*writer_trials(case, WRITERS), *determinism_trials(case), *place_trials(case, number)]
    return trials


def _require_same_page(case: Undisturbed, out: Path) -> None:
    """Exit if a page has other bytes when it is written again in another folder: then pages cannot be compared."""
    shutil.copytree(case.folder, out)
    outcome = run(["report", out])
    if outcome.status or page_difference(case, out):
        raise SystemExit(f"{case.case.name}: its page differs when it is written again. {outcome.output}")


def _chosen(trials: Sequence[Trial], options: argparse.Namespace) -> list[Trial]:
    """Draw the requested share of the trials, at least one per kind, in random order."""
    rng = Random(options.seed)
    by_kind: dict[str, list[Trial]] = {}
    for trial in trials:
        if options.only in trial.kind:
            by_kind.setdefault(trial.kind, []).append(trial)
    drawn = [
        trial
        for of_kind in by_kind.values()
        for trial in rng.sample(of_kind, max(1, round(options.share * len(of_kind))))
    ]
    return rng.sample(drawn, len(drawn))


class Result(NamedTuple):
    """The result of a trial."""

    kind: str
    is_fault: bool  # whether the trial failed
    seconds: float


def _attempts(trials: Sequence[Trial], scratch: Path, seed: int, jobs: int, until: float) -> list[Result]:
    """Make trials in forked workers; failures are printed immediately.

    Args:
        trials: trials to make.
        scratch: folder for the workers.
        seed: seed of the trials.
        jobs: number of workers.
        until: time, on time.monotonic's clock, after which no trial is started.
    """
    workers = []
    for worker in range(jobs):
        sys.stdout.flush()
        workers.append(os.fork())
        if workers[-1] == 0:
            status = 1
            try:
                # Without this, a SIGINT that reaches a child at once would be handled by the campaign's own code.
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                adopt_orphans()
                gc.freeze()  # otherwise a garbage collection in a child would copy shared memory pages
                mine = takewhile(lambda _trial: time.monotonic() < until, trials[worker::jobs])
                results = [_result(trial, scratch / str(worker), seed) for trial in mine]
                (scratch / f"results-{worker}").write_text(json.dumps(results))
                status = 0
            finally:
                os._exit(status)
    statuses = [os.waitpid(pid, 0)[1] for pid in workers]
    if any(statuses):
        raise SystemExit("A worker of the campaign ended before its trials.")
    written = [json.loads((scratch / f"results-{worker}").read_text()) for worker in range(jobs)]
    return [Result(*result) for results in written for result in results]


def _result(trial: Trial, folder: Path, seed: int) -> Result:
    clock = time.monotonic()
    fault = _fault(trial, folder, seed)
    return Result(trial.kind, fault is not None, time.monotonic() - clock)


def _fault(trial: Trial, folder: Path, seed: int) -> str | None:
    """Make a trial in an empty folder; print and return a description of the failure, or None."""
    folder.mkdir()
    try:
        fault = trial.attempt(folder, Random(f"{seed} {trial.kind} {trial.name}"))
    except Exception as error:
        fault = f"the campaign itself: {error!r}"
    if fault is None and left_running():
        fault = f"left running: {left_running()}"
    shutil.rmtree(folder, ignore_errors=True)
    if fault:
        print(f"FAILED  {trial.kind}: {trial.name}: {fault}", flush=True)
    return fault


def _print(tried: Counter[str], failed: Counter[str], results: Sequence[Result]) -> None:
    print(f"\n{'':32}{'tried':>8}{'survived':>10}{'failed':>8}{'seconds':>9}")
    for kind in [*tried, "all"]:
        n_tried, n_failed = (counts.total() if kind == "all" else counts[kind] for counts in (tried, failed))
        seconds = sum(result.seconds for result in results if kind in (result.kind, "all"))
        print(f"{kind:32}{n_tried:>8,}{n_tried - n_failed:>10,}{n_failed:>8,}{seconds:>9,.0f}")


if __name__ == "__main__":
    main()
