"""Damage one file of a finished run, then run a command: it must give the same numbers, or an error message."""

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import NamedTuple

from benchmarks.faults import damage
from benchmarks.faults.cases import (
    Undisturbed,
    difference,
    files_of,
    finish,
    finished_fault,
    message_fault,
    page_difference,
    table_difference,
)
from benchmarks.faults.forked import Outcome, run
from benchmarks.faults.remembered import run_and_learn
from benchmarks.faults.trials import Trial

Corrupt = Callable[[Path, Random], None]
"""Function that corrupts the file at a path."""

WRITERS = ("measure", "report", "score", "run")
READERS = ("verify", "compare", "export")
"""Commands that read a run and do not change its folder."""

READ = (".parquet", ".arrow", ".json")
"""Endings of files of a run that later commands read."""

EXPORTED = "exported.csv"


class Target(NamedTuple):
    """A finished run, and the output of commands on it while it is undamaged."""

    case: Undisturbed
    other: Path  # folder of a run of the same prompts with another model
    commands: tuple[str, ...]  # commands that succeed on the undamaged run
    compared: dict[str, str]  # files of the comparison with the other run, as files_of returns them
    exported: bytes  # content of the exported file


def corruption_trials(cases: Sequence[Undisturbed], n_cases: int, scratch: Path) -> Iterator[Trial]:
    """Yield trials of all combinations of kind of file, damage and command, in `n_cases` cases per combination."""
    targets = [_target(case, scratch / case.case.name) for case in cases]
    turns = count()
    for kind in FILE_KINDS:
        for damage_name in corruptions(kind, ()):
            for command in (*WRITERS, *READERS):
                able = [target for target in targets if command in target.commands and _files(target.case, kind)]
                first = next(turns)
                for turn in range(first, first + min(n_cases, len(able))):
                    target = able[turn % len(able)]
                    others = [case.folder for case in cases if case is not target.case] or [target.case.folder]
                    label = f"{target.case.case.name}, {kind}: {damage_name}, then {command}, {turn}"
                    attempt = partial(_corrupted, target, kind, others, damage_name, command)
                    yield Trial(f"corrupt {kind}", label, attempt)


def _target(case: Undisturbed, scratch: Path) -> Target:
    """Try all commands on an undamaged run; a command that fails on such a run is printed and left out."""
    other = scratch / "other"
    _require(run_and_learn(case.case.run_words(other), _another_model), case)
    target = Target(case, other, (), {}, b"")
    commands = []
    for command in (*WRITERS, *READERS):
        out = Path(shutil.copytree(case.folder, scratch / command / "run"))
        outcome = run_and_learn(_words(target, command, out))
        if outcome.status == 0:
            commands.append(command)
        else:
            print(f"{case.case.name}: no {command}: {outcome.output.strip()[-200:]}", flush=True)
    compared, exported = scratch / "compare" / "compared", scratch / "export" / EXPORTED
    return target._replace(
        commands=tuple(commands),
        compared=files_of(compared),
        exported=exported.read_bytes() if exported.exists() else b"",
    )


def _require(outcome: Outcome, case: Undisturbed) -> None:
    if outcome.status:
        raise SystemExit(f"{case.case.name} with another model: {outcome.output}")


def _another_model() -> None:
    """Make this process treat the fake model and the embedded model as another model, by another fingerprint."""
    from evaluator.models.fake_source import FakeModelSource
    from evaluator.models.source import ModelSource

    for source in (FakeModelSource, ModelSource):
        source.fingerprint = "another"  # type: ignore[assignment]


def _files(case: Undisturbed, kind: str) -> list[str]:
    return [name for name in case.files if name.endswith(READ) and file_kind(name) == kind]


def file_kind(name: str) -> str:
    """Return the kind of a file of a run, for example "tables" or "scores manifest"."""
    top = name.split("/")[0] if "/" in name else name
    return f"{top} manifest" if name.endswith("manifest.json") else top


FILE_KINDS = ("tables", "run.json", "scores", "scores manifest", "store", "store manifest")


def corruptions(kind: str, others: Sequence[Path]) -> dict[str, Corrupt]:
    """Return name -> corruption for files of a kind.

    Args:
        kind: kind of the file, by file_kind.
        others: folders of other runs, whose files of the same kind can replace the file.
    """
    edits = [*damage.BYTES, *(damage.JSON if kind.endswith(("json", "manifest")) else ())]
    kinds: dict[str, Corrupt] = {edit.__name__: partial(_edit, edit) for edit in edits}
    return kinds | {
        "delete": lambda path, _rng: path.unlink(),
        "folder in its place": _folder,
        "pipe in its place": _pipe,
        "link to itself": _loop,
        "file of another run": partial(_swap, kind, others),
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


def _swap(kind: str, others: Sequence[Path], path: Path, rng: Random) -> None:
    """Replace a file by a file of the same kind from another run, with the same name if there is one."""
    files = [(other, file) for other in others for file in other.rglob(f"*{path.suffix}") if file.is_file()]
    alike = [file for other, file in files if file_kind(file.relative_to(other).as_posix()) == kind]
    namesakes = [file for file in alike if file.name == path.name]
    shutil.copyfile(rng.choice(namesakes or alike or [file for _, file in files]), path)


def _corrupted(
    target: Target, kind: str, others: Sequence[Path], damage_name: str, command: str, out: Path, rng: Random
) -> str | None:
    case, folder = target.case, out / "run"
    shutil.copytree(case.folder, folder)
    path = folder / rng.choice(_files(case, kind))
    whole = path.read_bytes()
    corruptions(kind, others)[damage_name](path, rng)
    outcome = run(_words(target, command, folder))
    if command == "verify":
        return _verify_fault(outcome, is_whole=path.is_file() and path.read_bytes() == whole)
    if outcome.status:
        return message_fault(outcome) or (_run_again(case, folder) if command in WRITERS else None)
    return finished_fault(outcome) or _changed_answer(target, command, folder)


def _verify_fault(outcome: Outcome, *, is_whole: bool) -> str | None:
    """Return the fault of `evaluator verify`, or None: it must report a damaged file and pass an undamaged run."""
    if is_whole or outcome.status != 2:
        return finished_fault(outcome) or (None if is_whole else "verify has not seen it")
    return message_fault(outcome._replace(output=outcome.output.replace(" Run: ", "Error: ")))


def _changed_answer(target: Target, command: str, folder: Path) -> str | None:
    """Describe how the output of a successful command differs from that on the undamaged run; None if equal."""
    if command in ("measure", "run"):
        wrong = table_difference(target.case.files, folder)
        return f"other numbers: {wrong}" if wrong else None
    if command == "report":
        return page_difference(target.case, folder)
    if command == "compare":
        return difference(target.compared, folder.parent / "compared")
    if command == "export" and (folder.parent / EXPORTED).read_bytes() != target.exported:
        return "another export"
    return None


def _run_again(case: Undisturbed, out: Path) -> str | None:
    """Run all stages of the damaged run again: they must repair it or end with an error message."""
    outcome = finish(case.case, None, out)
    if outcome.status:
        return message_fault(outcome)
    wrong = table_difference(case.files, out)
    return f"other numbers after running again: {wrong}" if wrong else None


def _words(target: Target, command: str, folder: Path) -> list[object]:
    """Return the arguments of a command on the folder of a run; other output goes to the parent folder."""
    beside = folder.parent
    words: dict[str, list[object]] = {
        "run": [*target.case.case.run_words(folder)],
        "verify": ["verify", folder],
        "compare": ["compare", folder, target.other, "--out", beside / "compared"],
        "export": ["export", folder, "--format", "csv", "--out", beside / EXPORTED],
        "measure": ["measure", folder],
        "report": ["report", folder],
        "score": ["score", folder, *target.case.case.engine],
    }
    return words[command]
