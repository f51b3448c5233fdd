"""`evaluator clean`: find and remove what no run needs, below a folder and in the cache of converted datasets.

What is not known to be useless stays: while a run works, or if a record cannot be read, no prompts and scores go.
A process that is killed in the midst leaves runs as they were, because nothing that they read is touched.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import filelock

from evaluator.config import cache_folder
from evaluator.errors import StoreError, WriteError
from evaluator.files.json_files import MANIFEST
from evaluator.files.locks import acquire_lock
from evaluator.files.whole import dead_partial_files, reason
from evaluator.record import RunRecord
from evaluator.run.data_users import USERS, marked_users
from evaluator.run.locks import lock_path
from evaluator.run.needs import Needs, needs_of
from evaluator.run.record import COMPARISON_PAGE, RUN_FILE, read_run
from evaluator.run.score import LOGS
from evaluator.run.state import MAX_DEPTH, find_runs, folder_bytes, lock_holder

Kind = Literal["prompts", "tokens", "scores", "tables", "logs", "partial", "marks", "datasets", "digests", "models"]


@dataclass(frozen=True, kw_only=True)
class Removable:
    """A file or folder that no run needs."""

    kind: Kind
    path: Path
    n_bytes: int


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """What can go, and what stays although no run may need it."""

    removable: Sequence[Removable]
    kept: dict[str, str]  # folder -> why

    @property
    def n_bytes(self) -> int:
        """Return how much it frees."""
        return sum(one.n_bytes for one in self.removable)


def removable(folder: Path, *, cache: bool = False, gone: bool = False) -> Cleaning:
    """Return what can go in a folder of runs and below it.

    Args:
        folder: of runs, of prompts and scores, or of both.
        cache: also what is in the cache, which is made again.
        gone: also what only runs used that are no longer where they were: they were removed, and not moved.
    """
    return _Folder(folder, gone=gone).cleaning(cache)


def clean(folder: Path, *, cache: bool = False, gone: bool = False) -> Cleaning:
    """Remove what can go, and return it. All runs are locked meanwhile, so that none begins.

    Args:
        folder, cache, gone: as for `removable`.

    Raises WriteError for what cannot be removed; what was removed before stays removed.
    """
    with ExitStack() as locks:
        found = _Folder(folder, locks, gone=gone).cleaning(cache)
        removed = [one for one in found.removable if _remove(one)]
        return Cleaning(removable=removed, kept=found.kept)


def _remove(one: Removable) -> bool:
    """Remove a file or folder unless another process writes to it; say whether it is gone."""
    is_shared = one.kind in ("prompts", "tokens", "scores")
    locked = one.path.parent / "tokens" if one.kind == "tokens" else one.path
    try:
        with acquire_lock(lock_path(locked)) if is_shared else nullcontext():
            if one.path.is_dir():
                (one.path / MANIFEST).unlink(missing_ok=True)  # first: half a folder then counts as none
                shutil.rmtree(one.path)
            else:
                one.path.unlink(missing_ok=True)
    except filelock.Timeout:
        return False
    except OSError as error:
        raise WriteError(
            f"{one.path} cannot be removed: {reason(error)}. Files removed before it stay removed."
        ) from error
    return True


class _Folder:
    """The runs in a folder and below it, their prompts and scores, and everybody who uses these."""

    def __init__(self, folder: Path, locks: ExitStack | None = None, *, gone: bool) -> None:
        self.folder, self._locks, self._gone = folder, locks, gone
        self._records_by_folder: dict[Path, RunRecord | str | None] = {}
        self._runs = {out: self._record(out) for out in find_runs(folder)}
        self.kept = {str(out): found for out, found in self._runs.items() if isinstance(found, str)}
        self.records = {out: found for out, found in self._runs.items() if isinstance(found, RunRecord)}

    def _record(self, out: Path) -> RunRecord | str | None:
        """Return the record of a run, which stays locked, or why it is not known what the run needs.

        None: a folder that needs no prompts, of a comparison or of a run that was killed before it had any.
        """
        if out.resolve() not in self._records_by_folder:  # a second lock would meet the first
            self._records_by_folder[out.resolve()] = self._read(out)
        return self._records_by_folder[out.resolve()]

    def _read(self, out: Path) -> RunRecord | str | None:
        if self._is_at_work(out):
            return "a process is at work on it"
        try:
            return read_run(out) if (out / RUN_FILE).exists() else None
        except StoreError as error:
            return str(error)

    def _is_at_work(self, out: Path) -> bool:
        if self._locks is None or not out.is_dir():
            return lock_holder(out / ".lock") is not None
        try:
            self._locks.enter_context(acquire_lock(out / ".lock"))
        except filelock.Timeout:
            return True
        except OSError as error:
            raise WriteError(f"{out} cannot be locked: {error}. Choose a folder that you can write to.") from error
        return False

    def cleaning(self, cache: bool) -> Cleaning:
        """Return what can go."""
        found = [*self._of_runs(), *self._of_data(), *(_of_cache() if cache else ())]
        # A partial file in a folder that goes as a whole is counted with it.
        wholes = {one.path for one in found}
        apart = [one for one in found if not wholes & {*one.path.parents}]
        return Cleaning(removable=sorted(apart, key=lambda one: (one.kind, one.path)), kept=self.kept)

    def _of_runs(self) -> Iterator[Removable]:
        for out, record in self.records.items():
            if record.measures is not None:
                for path in sorted((out / LOGS).glob("*.log")):
                    yield _file("logs", path)
                if not (out / COMPARISON_PAGE).exists():  # whose tables no record names
                    names = {*record.measures.tables, *(["receipt"] if record.receipts else [])}
                    old = (path for path in (out / "tables").glob("*.parquet") if path.stem not in names)
                    yield from (_file("tables", path) for path in sorted(old))
        yield from (_file("partial", path) for path in dead_partial_files(self.folder))

    def _of_data(self) -> Iterator[Removable]:
        unknown = min(self.kept, default=None)
        for data in data_folders(self.folder):
            if unknown:
                self.kept.setdefault(str(data), f"prompts and scores stay, for what {unknown} needs is not known")
            elif not (data / USERS).is_dir() and data not in self._runs:
                self.kept[str(data)] = "it does not say which runs use these prompts and scores; remove it by hand"
            else:
                yield from self._of_one(data)

    def _of_one(self, data: Path) -> Iterator[Removable]:
        records = dict(self.records)
        gone: list[Path] = []
        try:
            for mark, out in marked_users(data):
                if any(out == known.resolve() for known in records):
                    continue
                found = self._record(out)
                if isinstance(found, str):
                    raise StoreError(f"{out} uses these prompts and scores: {found}")
                if found is not None:
                    records[out] = found
                elif self._gone:
                    gone.append(mark)
                else:
                    raise StoreError(
                        f"{out}, which used these prompts and scores, is not there. If it was removed and not moved, "
                        "--gone removes what only it used"
                    )
        except StoreError as error:
            self.kept[str(data)] = str(error)
            return
        needs = needs_of((record, out / record.data) for out, record in records.items())
        yield from (_file("marks", mark) for mark in gone)
        yield from _unneeded(data, needs)


def _unneeded(data: Path, needs: Needs) -> Iterator[Removable]:
    """Yield the folders of prompts, tokens and scores in a data folder that no run needs."""
    for store in _folders(data / "store"):
        if store.resolve() not in needs.stores:
            yield _file("prompts", store)
        else:
            others = (path for path in _folders(store) if path.resolve() not in needs.tokens)
            yield from (_file("tokens", path) for path in others if path.name.startswith("tokens-"))
    for model in _folders(data / "scores"):
        yield from (_file("scores", path) for path in _folders(model) if path.resolve() not in needs.scores)


def data_folders(folder: Path) -> Iterator[Path]:
    """Yield the folders of prompts and scores in a folder and below it; hidden folders and links are left out."""
    for parent, folders, _ in os.walk(folder):
        path = Path(parent)
        depth = len(path.relative_to(folder).parts)
        has_data = any((path / "store").glob(f"*/{MANIFEST}")) or any((path / "scores").glob(f"*/*/{MANIFEST}"))
        inside = {"store", "scores", "tables", USERS} if has_data else set()
        folders[:] = sorted(name for name in folders if name[0] != "." and name not in inside and depth < MAX_DEPTH)
        if has_data:
            yield path


def _of_cache() -> Iterator[Removable]:
    """Yield what the cache holds: all of it is made again when it is needed."""
    folder = cache_folder()
    yield from (_file("datasets", path) for path in sorted((folder / "datasets").glob("*.arrow")))
    yield from (_file("datasets", path) for path in _folders(folder / "hub"))
    yield from (_file("digests", path) for path in sorted((folder / "digests").glob("*.json")))
    yield from (_file("models", path) for path in _folders(folder / "models"))


def _folders(parent: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(
            path for path in parent.iterdir() if path.name[0] != "." and path.is_dir() and not path.is_symlink()
        )
    return []


def _file(kind: Kind, path: Path) -> Removable:
    return Removable(kind=kind, path=path, n_bytes=folder_bytes(path) if path.is_dir() else _size(path))


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def by_kind(found: Iterable[Removable]) -> dict[tuple[Kind, Path], list[Removable]]:
    """Group what can go by kind and by the folder that it is in."""
    groups: dict[tuple[Kind, Path], list[Removable]] = {}
    for one in found:
        groups.setdefault((one.kind, one.path.parent), []).append(one)
    return groups
