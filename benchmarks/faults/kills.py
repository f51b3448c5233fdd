"""Kill, interrupt and stop runs. Afterwards the same command must give the tables of an undisturbed run."""

import shutil
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.faults.cases import (
    Stage,
    Undisturbed,
    difference,
    finish,
    finished_fault,
    message_fault,
    page_difference,
)
from benchmarks.faults.file_events import limit_file_bytes, signal_at, watch
from benchmarks.faults.forked import Child, run
from benchmarks.faults.trials import Trial

KILLS_IN_A_ROW = 4
FIRST_LOCKED = 4  # number of the first file event with the lock held; a run that stops earlier excludes no other run
LARGEST_FILE = 12_000  # upper bound of random size limits, in bytes; some files of these runs are larger


def kill_trials(case: Undisturbed, n_moments: int) -> Iterator[Trial]:
    """Yield trials that kill a run before every change of a file, and that kill, interrupt or stop it at random times.

    Args:
        case: an undisturbed run.
        n_moments: number of kills at random times.
    """
    name = case.case.name
    for stage in case.case.disturbed:
        for number in range(1, case.n_events[stage] + 1):
            attempt = partial(_kill_at_event, case, stage, number)
            yield Trial("kill at a file event", f"{name}, {stage}, event {number}", attempt)
    for number in range(n_moments):
        yield Trial("kill at a moment", f"{name} {number}", partial(_kill_at_moments, case, 1))
        yield Trial("kill within a write", f"{name} {number}", partial(_kill_within_write, case))
    for number in range(n_moments // KILLS_IN_A_ROW):
        yield Trial("kills in a row", f"{name} {number}", partial(_kill_at_moments, case, KILLS_IN_A_ROW))
        for which in ("SIGTERM", "SIGINT", "SIGINT twice"):
            yield Trial(which, f"{name} {number}", partial(_interrupt, case, which))
        yield Trial("SIGSTOP, another writer", f"{name} {number}", partial(_stop_beside_another, case))


def vllm_trials(case: Undisturbed, n_trials: int) -> Iterator[Trial]:
    """Yield trials that kill a run with vLLM at random times."""
    for number in range(n_trials):
        yield Trial("kill at a moment, vLLM", str(number), partial(_kill_at_moments, case, 1))


def _kill_at_event(case: Undisturbed, stage: Stage, number: int, out: Path, _rng: Random) -> str | None:
    shutil.copytree(case.before[stage], out, dirs_exist_ok=True)
    outcome = run(case.case.stage_words(stage, out), prepare=lambda: watch(out, signal_at(number, signal.SIGKILL)))
    if outcome.status != -signal.SIGKILL:
        return f"was not killed: {finished_fault(outcome)}"
    return _resumed(case, stage, out)


def _resumed(case: Undisturbed, stage: Stage | None, out: Path) -> str | None:
    fault = finished_fault(finish(case.case, stage, out)) or difference(case.files, out)
    return fault or (page_difference(case, out) if stage == "report" else None)


def _kill_at_moments(case: Undisturbed, n_kills: int, out: Path, rng: Random) -> str | None:
    for _ in range(n_kills):
        child = Child(case.case.run_words(out))
        child.send_at(signal.SIGKILL, rng.random() * case.cpu_s)
        outcome = child.wait()
        if outcome.status not in (0, -signal.SIGKILL):
            return finished_fault(outcome)
    return _resumed(case, None, out)


def _kill_within_write(case: Undisturbed, out: Path, rng: Random) -> str | None:
    outcome = run(case.case.run_words(out), prepare=lambda: limit_file_bytes(rng.randrange(LARGEST_FILE), kill=True))
    if outcome.status not in (0, -signal.SIGXFSZ):
        return finished_fault(outcome)
    return _resumed(case, None, out)


def _interrupt(case: Undisturbed, which: str, out: Path, rng: Random) -> str | None:
    number = signal.SIGTERM if which == "SIGTERM" else signal.SIGINT
    child = Child(case.case.run_words(out))
    child.send_at(number, rng.random() * case.cpu_s)
    if which == "SIGINT twice":
        time.sleep(rng.random() / 50)
        child.send(number)
    outcome = child.wait()
    if "Traceback" in outcome.output or outcome.status not in (0, 130, 143, -number):
        return finished_fault(outcome) or "exit code 0 with a traceback"
    return _resumed(case, None, out)


def _stop_beside_another(case: Undisturbed, out: Path, rng: Random) -> str | None:
    """Stop a run at a random file event: another run in its folder must be refused, and the first must continue."""
    number = rng.randint(FIRST_LOCKED, sum(case.n_events.values()) // 2)
    child = Child(case.case.run_words(out), prepare=lambda: watch(out, signal_at(number, signal.SIGSTOP)))
    if child.has_stopped():
        other = message_fault(run(case.case.run_words(out)))
        child.send(signal.SIGCONT)
        if other:
            child.wait()
            return f"the other: {other}"
    return finished_fault(child.wait()) or difference(case.files, out)
