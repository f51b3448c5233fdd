"""Damage one file of a finished run, then read the run: with the tables it had, or with an error message."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.faults import damage
from benchmarks.faults.cases import Undisturbed, finished_fault, message_fault, page_difference, table_difference
from benchmarks.faults.forked import run
from benchmarks.faults.trials import Trial

Corrupt = Callable[[Path, Random], None]
"""Corrupts the file at a path."""

COMMANDS = ("measure", "report", "score", "run", "compare")
READ = (".parquet", ".arrow", ".json")
"""Endings of the files that are read again."""


def corruption_trials(cases: Sequence[Undisturbed], n_trials: int, rng: Random) -> Iterator[Trial]:
    """Yield trials that take turns over all kinds of files and of damage."""
    for number in range(n_trials):
        case = cases[number % len(cases)]
        others = [other for other in cases if other is not case] or [case]
        names = [name for name in case.files if name.endswith(READ)]
        name = rng.choice(names)
        kinds = corruptions(name, [other.folder for other in others])
        damage_name, corrupt = list(kinds.items())[number // len(cases) % len(kinds)]
        command = rng.choice(COMMANDS)
        attempt = partial(_corrupted, case, name, corrupt, command)
        label = f"{case.case.name}, {name}: {damage_name}, then {command}"
        yield Trial(f"corrupt {file_kind(name)}", label, attempt)


def file_kind(name: str) -> str:
    """Return what a file of a run is: "tables", "scores manifest"."""
    top = name.split("/")[0] if "/" in name else name
    return f"{top} manifest" if name.endswith("manifest.json") else top


def corruptions(name: str, others: Sequence[Path]) -> dict[str, Corrupt]:
    """Return what can happen to a file, by name.

    Args:
        name: path of the file within its run.
        others: folders of other runs, whose files of the same kind can take its place.
    """
    edits = [*damage.BYTES, *(damage.JSON if name.endswith(".json") else ())]
    kinds: dict[str, Corrupt] = {edit.__name__: partial(_edit, edit) for edit in edits}
    return kinds | {
        "delete": lambda path, _rng: path.unlink(),
        "folder in its place": _folder,
        "pipe in its place": _pipe,
        "link to itself": _loop,
        "file of another run": partial(_swap, name, others),
    }


def _edit(edit: damage.Damage, path: Path, rng: Random) -> None:
    path.write_bytes(edit(path.read_bytes(), rng))


def _folder(path: Path, _rng: Random) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path, _rng: Random) -> None:
    path.unlink()
    os.mkfifo(path)


def _loop(path: Path, _rng: Random) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _swap(name: str, others: Sequence[Path], path: Path, rng: Random) -> None:
    """Put a file of the same kind from another run in its place: of the same name if there is one."""
    files = [(other, file) for other in others for file in other.rglob(f"*{path.suffix}") if file.is_file()]
    alike = [file for other, file in files if file_kind(file.relative_to(other).as_posix()) == file_kind(name)]
    namesakes = [file for file in alike if file.name == path.name]
    shutil.copyfile(rng.choice(namesakes or alike or [file for _, file in files]), path)


def _corrupted(case: Undisturbed, name: str, corrupt: Corrupt, command: str, out: Path, rng: Random) -> str | None:
    shutil.copytree(case.folder, out, dirs_exist_ok=True)
    corrupt(out / name, rng)
    outcome = run(_words(case, command, out))
    if outcome.status:
        return message_fault(outcome) or _run_again(case, out)
    if command in ("measure", "run") and (wrong := table_difference(case.files, out)):
        return f"other numbers: {wrong}"
    return finished_fault(outcome) or (page_difference(case, out) if command == "report" else None)


def _run_again(case: Undisturbed, out: Path) -> str | None:
    """Run the command that made the run: it repairs, or says what stands in its way."""
    outcome = run(case.case.run_words(out))
    if outcome.status:
        return message_fault(outcome)
    wrong = table_difference(case.files, out)
    return f"other numbers after running again: {wrong}" if wrong else None


def _words(case: Undisturbed, command: str, out: Path) -> list[str]:
    if command == "run":
        return case.case.run_words(out)
    if command == "compare":
        return ["compare", str(out), str(case.folder), "--out", str(out / "compared")]
    return case.case.stage_words(command, out)  # type: ignore[arg-type]
