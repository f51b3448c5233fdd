"""The folder of a run and that of its prompts, tokens and scores, which several runs may share.

Both know where things are, what is recorded and what is needed. `verify`, `clean`, `list`, `show` and the stages ask
them. Nothing here imports a suite or a model, so that a list of runs is quick.

Read and write DIR/run.json, the record of a run, and the configuration in it.
"""

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import msgspec

import evaluator
from evaluator.config import RunConfig
from evaluator.errors import StoreError, WriteError
from evaluator.files.digests import fingerprint
from evaluator.files.json_files import MANIFEST, read_json, read_record, write_json, write_record
from evaluator.files.whole import acquire_lock, remove_partial_files
from evaluator.progress import Progress, Stage
from evaluator.record import MeasuredRecord, RunRecord, ScoresRecord, measured_record, no_scores
from evaluator.run_log import LOG_FILE, command_line, now
from evaluator.tokens.table import rows_fingerprint

RUN_FILE = "run.json"
COMPARISON_FILE = "compare.json"
"""Record of the tables that a comparison has written."""

COMPARISON_PAGE = "compare.html"
PAGE = "report.html"
MODELS = "models"  # folder of the runs of several models, in that of their comparison


def read_run(out: Path) -> RunRecord:
    """Read the record of a run. Raises StoreError if nothing was built."""
    require_run(out)
    hint = f"Run the command that wrote it again: existing scores are kept. The commands are in {out / LOG_FILE}."
    record = read_record(out / RUN_FILE, RunRecord, hint)
    assert record is not None, "the file is there"
    return record


def read_run_if_intact(out: Path) -> RunRecord | None:
    """Read the record of a run; None if there is none, or one that is damaged."""
    try:
        return read_run(out)
    except StoreError:
        return None


def require_run(out: Path) -> None:
    """Raise StoreError if a folder holds no run."""
    if not (out / RUN_FILE).is_file():
        raise StoreError(f"{out} holds no run. Make one with `evaluator build SUITE --out {out}` or `evaluator run`.")


def with_stage(record: RunRecord, stage: str, *, elapsed_s: dict[str, float], **sections: Any) -> RunRecord:
    """Return the record with the sections of a finished stage, its elapsed seconds and the command of this process."""
    return replace(
        record,
        evaluator=evaluator.__version__,
        finished=now(),
        commands=record.commands | {stage: command_line()},
        elapsed_s=record.elapsed_s | elapsed_s,
        **sections,
    )


def model_runs(out: Path) -> list[Path]:
    """Return the folders of the models' runs below the folder of a run of several models."""
    return sorted(path.parent for path in (out / MODELS).glob(f"*/{RUN_FILE}"))


def compared_models(out: Path) -> list[Path]:
    """Return model_runs, those of the last comparison alone, in its order, if they are known."""
    names, found = _comparison(out).get("models", []), model_runs(out)
    return [each for name in names if (each := out / MODELS / name) in found] or found


def comparison_tables(out: Path) -> dict[str, str]:
    """Return the tables that a comparison has written, with their SHA-256; none where its record is damaged."""
    return dict(_comparison(out).get("tables", {}))


def _comparison(out: Path) -> dict[str, Any]:
    try:
        return read_json(out / COMPARISON_FILE) or {}
    except StoreError:
        return {}


def is_measured(record: RunRecord) -> bool:
    """Return whether a run is finished: its tables are those of its scores."""
    scores, measures = record.scores, record.measures
    return scores is not None and measures is not None and measures.scores == scores.fingerprint


def write_run(out: Path, record: RunRecord) -> None:
    write_record(out / RUN_FILE, record)


def config_to_json(config: RunConfig) -> dict[str, Any]:
    """Convert a configuration to values that JSON can hold. Paths become absolute, valid in any working folder."""
    return dict(msgspec.to_builtins(config, enc_hook=lambda path: str(path.absolute())))


def identity(config: RunConfig) -> dict[str, Any]:
    """Return the settings that determine the prompts, besides the content of datasets and files; no path among them."""
    content = config_to_json(config)
    content["suite_options"] = {
        # Without paths, and without None in their place: a file counts the same whether it was named or is a default.
        name: {key: value for key, value in written.items() if not isinstance(getattr(options, key), Path | None)}
        for name, written in content["suite_options"].items()
        for options in [config.suite_options[name]]
    }
    return {key: value for key, value in content.items() if key not in ("datasets", "data", "until")}


SECONDS_BETWEEN_TRIES = 0.2

USERS = "users"
"""Folder of marks in a data folder: which runs use it. A run's own folder needs none."""


class ScoredPaths(NamedTuple):
    """Folders of the prompts of a round, their tokens and their scores."""

    store: Path
    tokens: Path
    scores: Path


@dataclass(frozen=True)
class DataFolder:
    """A folder of prompts, tokens and scores."""

    path: Path

    def store(self, name: str) -> Path:
        """Return the folder of the prompts with this fingerprint."""
        return self.path / "store" / name

    def scores(self, name: str) -> Path:
        """Return a folder or file of scores by its path below scores/."""
        return self.path / "scores" / name

    def scored(self, scores: ScoresRecord) -> list[ScoredPaths]:
        """Return the folders that a record of scores names: of the first round, then of the second if there is one."""
        names = zip(scores.stores, scores.tokens, scores.tables, strict=True)
        return [
            ScoredPaths(self.store(store), self.store(store) / tokens, self.scores(table))
            for store, tokens, table in names
        ]

    def begun(self, store: str, model: str = "*") -> Iterator[tuple[Path, list[Path]]]:
        """Yield the folders of tokens of some prompts, each with the folders of scores of these tokens.

        Args:
            store: fingerprint of the prompts.
            model: folder of a model's scores; all models if left out.
        """
        for path in sorted(self.store(store).glob(f"tokens-*/{MANIFEST}")):
            try:
                rows = rows_fingerprint((read_json(path) or {})["shards"])
            except (StoreError, KeyError):  # damaged, or of another version: its scores are not known
                yield path.parent, []
            else:
                yield path.parent, sorted(self.scores(model).parent.glob(f"{model}/{rows}"))

    def users(self) -> Iterator[tuple[Path, Path]]:
        """Yield each mark and the run's folder, which may be gone. Raises StoreError for a mark that is damaged."""
        for mark in sorted((self.path / USERS).glob("*.json")):
            content = read_json(mark) or {}
            if not isinstance(content.get("run"), str):
                raise StoreError(f"{mark} names no run.")
            yield mark, Path(os.path.normpath(self.path.resolve() / content["run"]))


class RunFolder:
    """A run on disk; its record is read once."""

    def __init__(self, out: Path) -> None:
        self.out = out

    @cached_property
    def record(self) -> RunRecord:
        """The record of the run. Raises StoreError where there is none or a damaged one."""
        return read_run(self.out)

    @property
    def measured(self) -> MeasuredRecord:
        """The record of a measured run. Raises StoreError, with the command to run, where a stage is missing."""
        return measured_record(replace(self.record, scores=self.scores), str(self.out))

    @property
    def scores(self) -> ScoresRecord:
        """Return the record of the run's scores. Raises StoreError if nothing was scored, and for several models."""
        if self.record.scores is None and (models := compared_models(self.out)):
            named = ", ".join(map(str, models))
            raise StoreError(f"{self.out} holds the runs of several models. Name one of them: {named}.")
        if self.record.scores is None:
            raise StoreError(no_scores(self.record, str(self.out)))
        return self.record.scores

    @property
    def data(self) -> DataFolder:
        """The folder of the run's prompts and scores."""
        return DataFolder(self.out / self.record.data)

    def needs(self) -> set[Path]:
        """Return the folders of prompts, tokens and scores that the run needs, resolved.

        It needs them to verify, to report, and to go on without asking again. A scored run needs what its record names.
        A run that is not scored yet needs all tokens of its prompts, and all scores of these tokens, of whichever
        model. Scores that reuse shards of another folder need that folder too.
        """
        data, prompts, scores = self.data, self.record.prompts, self.record.scores
        needed, tables = set[Path](), set[Path]()  # tables: folders of scores
        if scores is not None:
            folders = data.scored(scores)
            needed.update(*folders)
            tables.update(paths.scores for paths in folders)
            tables.update(data.scores(name).parent for name in scores.files)
        if prompts is not None:
            needed.add(data.store(prompts.fingerprint))
            for tokens, begun in data.begun(prompts.fingerprint) if scores is None else ():
                needed.add(tokens)
                tables.update(begun)
        return {path.resolve() for path in needed | _with_sources(tables)}  # `store` and `scores` can be links


def _with_sources(tables: set[Path]) -> set[Path]:
    """Return folders of scores with those from which they reuse shards."""
    left = [*tables]
    for folder in left:  # which grows
        try:
            plans = (read_json(folder / MANIFEST) or {}).get("plans", {})
        except StoreError:
            continue
        names = {name.rpartition("/")[0] for plan in plans.values() for name in plan["reused"]}
        left += {folder.parent / name for name in names}.difference(left)
    return {*left}


def lock_path(folder: Path) -> Path:
    """Return the lock file of a folder of prompts, tokens or scores: next to it, as it holds nothing but results."""
    return folder.with_name(f".{folder.name}.lock")


def lock_folder(folder: Path) -> Stage[AbstractContextManager[None]]:
    """Wait until no other run writes to a folder, and return a context that keeps it locked.

    What a killed process left half written in the folder, or in others that begin with its name, is removed.

    Raises WriteError where there can be no lock.
    """
    while True:
        try:
            lock = acquire_lock(lock_path(folder))
        except (filelock.Timeout, FileNotFoundError):  # a run that fails just now can remove the folder
            yield Progress(stage="Waiting for another run that writes the same data", done=0, total=1, unit="runs")
            time.sleep(SECONDS_BETWEEN_TRIES)
        except OSError as error:
            raise WriteError(
                f"{folder} cannot be written to: {error}. Choose another folder with --store or --out."
            ) from error
        else:
            remove_partial_files(folder.parent, "", f"{folder.name}*/")
            return lock


def mark_user(out: Path, data: Path) -> None:
    """Write down that the run in `out` uses the prompts and scores in `data`. Raises WriteError."""
    if out.resolve() == data.resolve():
        return  # a run's own folder needs no mark
    run = os.path.relpath(out.resolve(), data.resolve())
    mark = data / USERS / f"{fingerprint(run)}.json"
    if not mark.exists():
        write_json(mark, {"run": run})
