"""Find and remove files that no run needs, below a folder and in the cache of converted datasets (`evaluator clean`).

Data stay unless it is certain that no run needs them: no prompts or scores are removed while a run is at work, or if a
record cannot be read. A folder is removed only if this program has written all of it: its manifest is intact, and the
folder and every file in it have names that this program gives. If the process is killed, all runs are intact, because
files that they read are never touched.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import filelock

from evaluator.config import cache_folder
from evaluator.errors import StoreError, WriteError
from evaluator.files.json_files import MANIFEST, read_record
from evaluator.files.whole import acquire_lock, dead_partial_files, lock_holder, reason
from evaluator.run.folders import RUN_FILE, USERS, DataFolder, RunFolder, lock_path
from evaluator.run.score import LOGS
from evaluator.runs.state import bytes_of, find_runs, folders_below
from evaluator.scores.table import ScoreManifest
from evaluator.store import StoreManifest
from evaluator.tokens.table import TokenManifest

Kind = Literal["prompts", "tokens", "scores", "logs", "partial", "marks", "datasets", "digests", "models"]

FINGERPRINT = re.compile("[0-9a-f]{16}")
"""Names of folders of prompts and of scores."""

TOKENS = re.compile("tokens-([0-9a-f]{16}|imported)")
"""Names of folders of tokens, in a folder of prompts."""

UNLISTED = re.compile(r"\.tokens\.lock|(scores|states)-[0-9a-f]{8}(\.[0-9]+)?-[0-9]{5}\.(arrow|kept\.json)")
"""Names of files in these folders that no manifest lists: locks, and shards of killed processes."""

MANIFESTS: Mapping[Kind, tuple[type[Any], str]] = {
    "prompts": (StoreManifest, "files"),
    "tokens": (TokenManifest, "shards"),
    "scores": (ScoreManifest, "written"),
}
"""Kind of folder -> type of its manifest, and field of the manifest that lists the files in the folder."""

LOG = re.compile(r"replica-[0-9]+\.log")

CACHED: Sequence[tuple[Kind, str, re.Pattern[str], re.Pattern[str] | None]] = (
    ("datasets", "datasets", re.compile(r".+\.[0-9a-f]+\.arrow"), None),
    ("datasets", "hub", re.compile(".+--.+-[0-9a-f]{7,}.*"), re.compile(r".+\.parquet")),
    ("digests", "digests", re.compile(r"(code-)?[0-9a-f]+\.json"), None),
    ("models", "models", re.compile("random-[0-9a-f]{16}"), re.compile(r"[\w.-]+\.(json|safetensors|txt|jinja)")),
)
"""Content of the cache: kind, subfolder, names in it, and, if these are folders, the names of their files."""


@dataclass(frozen=True, kw_only=True)
class Removable:
    """A file or folder that no run needs."""

    kind: Kind
    path: Path
    files: tuple[Path, ...]  # files to remove, in this order: all files of the folder, or the file itself
    n_bytes: int


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """Files and folders that can be removed, and folders that stay although perhaps no run needs them."""

    removable: Sequence[Removable]
    kept: dict[str, str]  # folder -> why it stays

    @property
    def n_bytes(self) -> int:
        """Return the bytes that removal frees."""
        return sum(entry.n_bytes for entry in self.removable)


def removable(folder: Path, *, cache: bool = False, gone: bool = False) -> Cleaning:
    """Find the files that can be removed in a folder of runs and below it.

    Args:
        folder: folder of runs, of prompts and scores, or of both.
        cache: whether to include the cache, whose files are built again when they are needed.
        gone: whether to include data used only by runs that no longer exist at their path. This is right if the runs
            were removed, and wrong if they were moved.
    """
    return _Search(folder, gone=gone).cleaning(cache)


def clean(folder: Path, *, cache: bool = False, gone: bool = False) -> Cleaning:
    """Remove files and folders that no run needs, and return them. All runs are locked, so that none begins meanwhile.

    Args:
        folder, cache, gone: as for `removable`.

    Raises WriteError for a file that cannot be removed; files removed before it stay removed.
    """
    with ExitStack() as locks:
        found = _Search(folder, locks, gone=gone).cleaning(cache)
        removed = [entry for entry in found.removable if _remove(entry)]
        return Cleaning(removable=removed, kept=found.kept)


def _remove(entry: Removable) -> bool:
    """Remove a file or folder unless another process writes to it; return whether it is gone.

    Only the files of the entry are removed: files that were added to the folder meanwhile stay.
    """
    locked = entry.path.parent / "tokens" if entry.kind == "tokens" else entry.path
    try:
        with acquire_lock(lock_path(locked)) if entry.kind in MANIFESTS else nullcontext():
            for path in entry.files:
                path.unlink(missing_ok=True)
            for folder in sorted({path.parent for path in entry.files if entry.path in path.parents}, reverse=True):
                with suppress(OSError):  # not empty: a file was added
                    folder.rmdir()
    except filelock.Timeout:
        return False
    except OSError as error:
        raise WriteError(
            f"{entry.path} cannot be removed: {reason(error)}. Files removed before it stay removed."
        ) from error
    return not entry.path.exists()


def _own_folder(kind: Kind, folder: Path) -> Removable:
    """Return a folder of prompts, tokens or scores as removable, with all its files.

    Raises StoreError if the manifest is missing or damaged, or if the folder holds a file of another origin.
    """
    manifest_type, listed = MANIFESTS[kind]
    manifest = read_record(folder / MANIFEST, manifest_type)
    if manifest is None:
        raise StoreError(f"it has no {MANIFEST}, so it is not certain that this program has written it")
    names, files = getattr(manifest, listed), list(dead_partial_files(folder, ""))
    for path in sorted({*folder.iterdir()} - {*files, folder / MANIFEST}):
        if path.is_dir() and not path.is_symlink() and kind == "prompts" and TOKENS.fullmatch(path.name):
            files += _own_folder("tokens", path).files
        elif path.is_file() and not path.is_symlink() and (path.name in names or UNLISTED.fullmatch(path.name)):
            files.append(path)
        else:
            raise StoreError(f"it holds {path.name}, which this program has not written")
    files.append(folder / MANIFEST)  # removed last, so that the rest of a folder is still recognised
    return _entry(kind, folder, files)


class _Search:
    """A search for runs and data folders in and below a folder, and for other runs that use these data."""

    def __init__(self, folder: Path, locks: ExitStack | None = None, *, gone: bool) -> None:
        self._locks, self._gone = locks, gone
        self._known: dict[Path, RunFolder | str | None] = {}
        found = {out: self._run(out) for out in find_runs(folder)}
        self._outs = [*found]
        self._kept = {str(out): run for out, run in found.items() if isinstance(run, str)}
        self._runs = [run for run in found.values() if isinstance(run, RunFolder)]
        self._data = list(folders_below(folder, _searched_data))

    def _run(self, out: Path) -> RunFolder | str | None:
        """Return a run, or the reason why its needs are not known; in `clean`, the run stays locked.

        None: the folder needs no prompts, because it is a comparison or its run was killed before it had any.
        """
        if out.resolve() not in self._known:  # a second lock would fail, because the first is held
            self._known[out.resolve()] = self._read(out)
        return self._known[out.resolve()]

    def _read(self, out: Path) -> RunFolder | str | None:
        if self._is_at_work(out):
            return "a process is at work on it"
        if not (out / RUN_FILE).exists():
            return None
        run = RunFolder(out)
        try:
            return run if run.record else None
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
            made = "Its lock is a file: make the folder writable, or remove another file if the disk takes none"
            raise WriteError(f"{out} cannot be locked: {reason(error)}. {made}.") from error
        return False

    def cleaning(self, cache: bool) -> Cleaning:
        """Return the files that can be removed."""
        found = [*self._of_runs(), *self._of_data(), *(_of_cache() if cache else ())]
        # A partial file in a removable folder is counted as a file of the folder.
        within = {path for entry in found for path in entry.files if path != entry.path}
        apart = [entry for entry in found if entry.path not in within]
        return Cleaning(removable=sorted(apart, key=lambda entry: (entry.kind, entry.path)), kept=self._kept)

    def _of_runs(self) -> Iterator[Removable]:
        for run in self._runs:
            if run.record.measures:
                yield from (_entry("logs", path) for path in _named(run.out / LOGS, LOG, are_folders=False))
        for folder in sorted({*self._outs, *self._data}):
            yield from (_entry("partial", path) for path in dead_partial_files(folder))

    def _of_data(self) -> Iterator[Removable]:
        unknown = min(self._kept, default="")
        for data in self._data:
            try:
                yield from self._of_data_folder(DataFolder(data), unknown)
            except StoreError as error:
                self._kept.setdefault(str(data), str(error))

    def _of_data_folder(self, data: DataFolder, unknown: str) -> Iterator[Removable]:
        """Yield the removable files of a data folder. Raises StoreError at once if the needs of a run are not known.

        Args:
            data: the folder.
            unknown: folder of a run whose needs are not known; "" if there is none.
        """
        if unknown:
            raise StoreError(f"prompts and scores stay, for what {unknown} needs is not known")
        if not (data.path / USERS).is_dir() and data.path not in self._outs:
            raise StoreError("it does not say which runs use these prompts and scores; remove it by hand")
        runs, gone = {*self._runs}, list[Path]()
        for mark, out in data.users():
            run = self._run(out)
            if isinstance(run, str):
                raise StoreError(f"{out} uses these prompts and scores: {run}")
            if run is not None:
                runs.add(run)
            elif self._gone:
                gone.append(mark)
            else:
                raise StoreError(
                    f"{out}, which used these prompts and scores, is not there. If it was removed and not moved, "
                    "--gone removes what only it used"
                )
        yield from (_entry("marks", mark) for mark in gone)
        for kind, folder in _unneeded(data, set[Path]().union(*(run.needs() for run in runs))):
            try:
                yield _own_folder(kind, folder)
            except (StoreError, OSError) as error:
                self._kept[str(folder)] = f"{error}; if no one needs it, remove it by hand"


def _unneeded(data: DataFolder, needed: set[Path]) -> Iterator[tuple[Kind, Path]]:
    """Yield the folders of prompts, tokens and scores in a data folder that no run needs."""
    for store in _named(data.path / "store", FINGERPRINT):
        if store.resolve() not in needed:
            yield "prompts", store
        else:
            yield from (("tokens", path) for path in _named(store, TOKENS) if path.resolve() not in needed)
    for model in _named(data.path / "scores", FINGERPRINT):
        yield from (("scores", path) for path in _named(model, FINGERPRINT) if path.resolve() not in needed)


def _searched_data(path: Path, _: Sequence[str]) -> Collection[str] | None:
    """Return the subfolders not to search in a folder of prompts and scores; None for any other folder."""
    has_data = any((path / "store").glob(f"*/{MANIFEST}")) or any((path / "scores").glob(f"*/*/{MANIFEST}"))
    return {"store", "scores", "tables", USERS} if has_data else None


def _of_cache() -> Iterator[Removable]:
    """Yield the files of this program in the cache; all are built again when they are needed."""
    for kind, name, own, own_files in CACHED:
        for path in _named(cache_folder() / name, own, are_folders=own_files is not None):
            files = sorted(path.iterdir()) if own_files else [path]
            if own_files is None or all(file.is_file() and own_files.fullmatch(file.name) for file in files):
                yield _entry(kind, path, files)


def _named(parent: Path, name: re.Pattern[str], *, are_folders: bool = True) -> list[Path]:
    """Return the folders or files in a folder whose names match, without links; empty if the folder is missing."""
    with suppress(OSError):
        found = (path for path in parent.iterdir() if name.fullmatch(path.name) and not path.is_symlink())
        return sorted(path for path in found if (path.is_dir() if are_folders else path.is_file()))
    return []


def _entry(kind: Kind, path: Path, files: Sequence[Path] | None = None) -> Removable:
    """Return a removable file, or folder with its files; a file that has disappeared counts 0 bytes."""
    files = (path,) if files is None else tuple(files)
    return Removable(kind=kind, path=path, files=files, n_bytes=bytes_of(files))
