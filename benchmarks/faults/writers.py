"""Run several commands at the same time on the same files, and remove folders while a run writes them."""

import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.faults.cases import Undisturbed, difference, finished_fault, message_fault, table_difference
from benchmarks.faults.file_events import signal_at, watch
from benchmarks.faults.forked import Child, run
from benchmarks.faults.trials import Trial

REMOVED = (".", "store", "scores", "tables")
"""Folders of a run that are removed while it runs."""


def writer_trials(case: Undisturbed, n_trials: int) -> Iterator[Trial]:
    """Yield trials with simultaneous runs in one folder, simultaneous runs with one store, and removed folders."""
    for number in range(n_trials):
        name = f"{case.case.name} {number}"
        yield Trial("writers of one folder", name, partial(_one_folder, case))
        if "build" in case.case.stages:  # imports do not share a store
            yield Trial("writers of one store", name, partial(_one_store, case))
        for removed in REMOVED:
            yield Trial("removed while it runs", f"{name}, {removed}", partial(_removed, case, removed))


def _one_folder(case: Undisturbed, out: Path, _rng: Random) -> str | None:
    outcomes = [child.wait() for child in [Child(case.case.run_words(out)) for _ in range(2)]]
    for outcome in outcomes:
        if outcome.status and (fault := message_fault(outcome)):
            return fault
    if all(outcome.status for outcome in outcomes):
        return "each was refused because of the other"
    return difference(case.files, out)


def _one_store(case: Undisturbed, out: Path, rng: Random) -> str | None:
    """Start two runs with one store at the same time; kill one of them with probability 1/2."""
    runs = [out / "first", out / "second"]
    words = [case.case.run_words(run_folder, "--store", out / "store") for run_folder in runs]
    children = [Child(run_words) for run_words in words]
    is_killed = rng.random() < 0.5
    if is_killed:
        children[0].send_at(signal.SIGKILL, rng.random() * case.cpu_s)
    outcomes = [child.wait() for child in children]
    if is_killed and outcomes[0].status == -signal.SIGKILL:
        outcomes[0] = run(words[0])
    return next(filter(None, map(finished_fault, outcomes)), None) or next(
        filter(None, (table_difference(case.files, run_folder) for run_folder in runs)), None
    )


def _removed(case: Undisturbed, removed: str, out: Path, rng: Random) -> str | None:
    number = rng.randint(1, sum(case.n_events.values()))
    child = Child(case.case.run_words(out), prepare=lambda: watch(out, signal_at(number, signal.SIGSTOP)))
    if child.has_stopped():
        shutil.rmtree(out / removed, ignore_errors=True)
        child.send(signal.SIGCONT)
    outcome = child.wait()
    fault = finished_fault(outcome) if outcome.status == 0 else message_fault(outcome)
    return fault or finished_fault(run(case.case.run_words(out))) or table_difference(case.files, out)
