"""Simulate full and failing disks: fail a change of a file as the system would, or limit the size of files."""

import shutil
from collections.abc import Iterator
from functools import partial
from os import strerror
from pathlib import Path
from random import Random

from benchmarks.faults.cases import Stage, Undisturbed, difference, finish, finished_fault, message_fault
from benchmarks.faults.file_events import REFUSALS, limit_file_bytes, refuse_at, watch
from benchmarks.faults.forked import run
from benchmarks.faults.kills import LARGEST_FILE
from benchmarks.faults.trials import Trial


def disk_trials(case: Undisturbed, case_number: int, n_quotas: int) -> Iterator[Trial]:
    """Yield trials that refuse every third change of a file in the disturbed stages, and trials with file size limits.

    Cases share most changes, so three successive cases together cover all of them. The error code, and whether later
    changes fail too, alternate between events and cases.
    """
    for stage in case.case.disturbed:
        for number in range(1 + case_number % 3, case.n_events[stage] + 1, 3):
            turn = (number + case_number) // 3
            code, for_good = REFUSALS[turn % len(REFUSALS)], turn // len(REFUSALS) % 2 == 1
            name = f"{case.case.name}, {stage}, event {number}: {strerror(code)}{' for good' if for_good else ''}"
            yield Trial("disk full or failing", name, partial(_refuse, case, stage, number, code, for_good))
    for number in range(n_quotas):
        yield Trial("limit on the size of files", f"{case.case.name} {number}", partial(_limit, case))


def _refuse(
    case: Undisturbed, stage: Stage, number: int, code: int, for_good: bool, out: Path, _rng: Random
) -> str | None:
    shutil.copytree(case.before[stage], out, dirs_exist_ok=True)
    outcome = run(
        case.case.stage_words(stage, out), prepare=lambda: watch(out, refuse_at(number, code, for_good=for_good))
    )
    # A command can succeed without some changes, for example the removal of a leftover file.
    fault = finished_fault(outcome) if outcome.status == 0 else message_fault(outcome)
    return fault or finished_fault(finish(case.case, stage, out)) or difference(case.files, out)


def _limit(case: Undisturbed, out: Path, rng: Random) -> str | None:
    outcome = run(case.case.run_words(out), prepare=lambda: limit_file_bytes(rng.randrange(LARGEST_FILE), kill=False))
    fault = finished_fault(outcome) if outcome.status == 0 else message_fault(outcome)
    return fault or finished_fault(finish(case.case, None, out)) or difference(case.files, out)
