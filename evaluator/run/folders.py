"""Describe the folder of a run, and the data folder of prompts, tokens and scores, which several runs may share.

RunFolder and DataFolder return paths, records, and the folders that a run needs, for the stages and for the commands
`verify`, `clean`, `list` and `show`. Functions read and write DIR/run.json, the record of a run with its configuration.
This module imports no suite and no model, so that listing runs is quick.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import msgspec
import polars as pl

import evaluator
from evaluator.config import RunConfig
from evaluator.errors import StoreError, WriteError
from evaluator.files.digests import fingerprint
from evaluator.files.json_files import MANIFEST, read_json, read_record, write_json, write_record
from evaluator.files.whole import acquire_lock, remove_partial_files, remove_tables, write_table
from evaluator.progress import Progress, Stage
from evaluator.record import MeasuredRecord, RunRecord, ScoresRecord, measured_record, no_scores
from evaluator.run_log import LOG_FILE, command_line, now
from evaluator.tokens.table import rows_fingerprint

RUN_FILE = "run.json"
COMPARISON_FILE = "compare.json"
"""Record of the tables that a comparison has written."""

COMPARISON_PAGE = "compare.html"
PAGE = "report.html"
BOARD_PAGE = "index.html"
MODELS = "models"  # subfolder of a comparison, with a run folder for each model


def read_run(out: Path) -> RunRecord:
    """Read the record of a run. Raises StoreError if the folder holds no run or the record is damaged."""
    require_run(out)
    hint = f"Run the command that wrote it again: existing scores are kept. The commands are in {out / LOG_FILE}."
    record = read_record(out / RUN_FILE, RunRecord, hint)
    assert record is not None, "the file is there"
    return record


def read_run_if_intact(out: Path) -> RunRecord | None:
    """Return the record of a run; None if it is missing or damaged."""
    with suppress(StoreError):
        return read_run(out)
    return None


def require_run(out: Path) -> None:
    """Raise StoreError if a folder holds no run."""
    if not (out / RUN_FILE).is_file():
        about = f", but a page about other runs: name one of these. The command of the page is in {out / LOG_FILE}."
        is_page = any((out / page).is_file() for page in (COMPARISON_PAGE, BOARD_PAGE))
        none = f". Make one with `evaluator build SUITE --out {out}` or `evaluator run`."
        raise StoreError(f"{out} holds no run{about if is_page else none}")


def write_stage(out: Path, record: RunRecord, stage: str, *, elapsed_s: dict[str, float], **sections: Any) -> RunRecord:
    """Add a finished stage to the record of a run: its sections, its elapsed seconds and the command of this process.

    Writes and returns the record.

    Args:
        out: folder of the run.
        record: the record before the stage.
        stage: name of the stage.
        elapsed_s: stage -> seconds, added to those of earlier stages.
        sections: fields of RunRecord that the stage sets.
    """
    record = replace(
        record,
        evaluator=evaluator.__version__,
        finished=now(),
        commands=record.commands | {stage: command_line()},
        elapsed_s=record.elapsed_s | elapsed_s,
        **sections,
    )
    write_run(out, record)
    return record


def model_runs(out: Path) -> list[Path]:
    """Return the run folders of the models below a folder that compares several models."""
    return sorted(path.parent for path in (out / MODELS).glob(f"*/{RUN_FILE}"))


def compared_models(out: Path) -> list[Path]:
    """Return the run folders of the last comparison, in its order; all model_runs if its record names none."""
    names, found = _comparison(out).get("models", []), model_runs(out)
    return [each for name in names if (each := out / MODELS / name) in found] or found


def _build_id(record: RunRecord | None) -> str:
    """Return the id of the last build of a folder's prompts; "" in a folder without a run."""
    return fingerprint(record.started, record.elapsed_s) if record and record.started else ""


def is_compared(out: Path, record: RunRecord) -> bool:
    """Return whether a folder holds a comparison that was written after its last build."""
    return (out / COMPARISON_PAGE).is_file() and _comparison(out).get("build") == _build_id(record)


def comparison_tables(out: Path) -> dict[str, str]:
    """Return table -> SHA-256 of the tables of a comparison; empty if its record is missing or damaged."""
    return dict(_comparison(out).get("tables", {}))


def write_comparison(out: Path, tables: Mapping[str, pl.DataFrame], models: Sequence[str]) -> None:
    """Write the tables of a comparison, remove tables of an earlier one and, last, write the record of the comparison.

    Args:
        out: folder of the comparison.
        tables: name -> table.
        models: names of the compared folders below OUT/models.
    """
    earlier = comparison_tables(out)
    digests = {name: write_table(out, name, table) for name, table in tables.items()}
    remove_tables(out, earlier, digests)
    build = _build_id(read_run_if_intact(out))
    write_json(out / COMPARISON_FILE, {"tables": digests, "models": models, "build": build})


def _comparison(out: Path) -> dict[str, Any]:
    with suppress(StoreError):
        return read_json(out / COMPARISON_FILE) or {}
    return {}


def is_measured(record: RunRecord) -> bool:
    """Return whether a run is finished: its tables were computed from its present scores."""
    scores, measures = record.scores, record.measures
    return scores is not None and measures is not None and measures.scores == scores.fingerprint


def write_run(out: Path, record: RunRecord) -> None:
    write_record(out / RUN_FILE, record)


def config_to_json(config: RunConfig) -> dict[str, Any]:
    """Convert a configuration to values that JSON can hold. Paths become absolute, to be valid anywhere."""
    return dict(msgspec.to_builtins(config, enc_hook=lambda path: str(path.absolute())))


def identity(config: RunConfig) -> dict[str, Any]:
    """Return the settings that determine the prompts, without paths; the content of files is identified elsewhere."""
    content = config_to_json(config)
    content["suite_options"] = {
        # Values that are paths or None are left out: a file counts the same whether it is named or is the default.
        name: {key: value for key, value in vars(options).items() if not isinstance(value, Path | None)}
        for name, options in config.suite_options.items()
    }
    return {key: value for key, value in content.items() if key not in ("datasets", "data", "until")}


SECONDS_BETWEEN_TRIES = 0.2

USERS = "users"
"""Subfolder of a data folder with marks: a JSON file for each run that uses the data from another folder."""


class ScoredPaths(NamedTuple):
    """The folders of one round: prompts, tokens and scores."""

    store: Path
    tokens: Path
    scores: Path


@dataclass(frozen=True)
class DataFolder:
    """A folder of prompts, tokens and scores."""

    path: Path

    def store(self, name: str) -> Path:
        """Return the folder of the prompt store with this fingerprint."""
        return self.path / "store" / name

    def scores(self, name: str) -> Path:
        """Return a folder or file of scores, from its path below scores/."""
        return self.path / "scores" / name

    def scored(self, scores: ScoresRecord) -> list[ScoredPaths]:
        """Return the folders in a record of scores: of the first round, then of the second round if there is one."""
        names = zip(scores.stores, scores.tokens, scores.tables, strict=True)
        return [
            ScoredPaths(self.store(store), self.store(store) / tokens, self.scores(table))
            for store, tokens, table in names
        ]

    def begun(self, store: str, model: str = "*") -> Iterator[tuple[Path, list[Path]]]:
        """Yield each folder of tokens of a prompt store, with the folders that hold scores of these tokens.

        Args:
            store: fingerprint of the prompt store.
            model: name of a model's folder below scores/; "*": all models.
        """
        for path in sorted(self.store(store).glob(f"tokens-*/{MANIFEST}")):
            try:
                rows = rows_fingerprint((read_json(path) or {})["shards"])
            except (StoreError, KeyError):  # damaged or of another version: its scores cannot be identified
                yield path.parent, []
            else:
                yield path.parent, sorted(self.scores(model).parent.glob(f"{model}/{rows}"))

    def users(self) -> Iterator[tuple[Path, Path]]:
        """Yield each mark with the folder of its run, which may not exist. Raises StoreError for a damaged mark."""
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
        """Return the record of the run. Raises StoreError if it is missing or damaged."""
        return read_run(self.out)

    @property
    def measured(self) -> MeasuredRecord:
        """Return the record of a measured run. Raises StoreError, with the command to run, if a stage is missing."""
        return measured_record(replace(self.record, scores=self.scores), str(self.out))

    @property
    def scores(self) -> ScoresRecord:
        """Return the record of the scores. Raises StoreError if there is none, as in a folder of several models."""
        if self.record.scores is None and (models := compared_models(self.out)):
            named = ", ".join(map(str, models))
            raise StoreError(f"{self.out} holds the runs of several models. Name one of them: {named}.")
        if self.record.scores is None:
            raise StoreError(no_scores(self.record, str(self.out)))
        return self.record.scores

    @property
    def data(self) -> DataFolder:
        """Return the folder of the run's prompts and scores."""
        return DataFolder(self.out / self.record.data)

    def needs(self) -> set[Path]:
        """Return the resolved paths of the folders of prompts, tokens and scores that the run needs.

        They are needed to verify, to report, and to resume without scoring again. A scored run needs the folders in its
        record. A run without scores needs all tokens of its prompts, and all scores of these tokens by any model.
        Folders from which these scores reuse shards are needed as well.
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
    """Return folders of scores, and all folders from which they reuse shards, directly or not."""
    left = [*tables]
    for folder in left:  # the list grows in the loop
        try:
            plans = (read_json(folder / MANIFEST) or {}).get("plans", {})
        except StoreError:
            continue
        names = {name.rpartition("/")[0] for plan in plans.values() for name in plan["reused"]}
        left += {folder.parent / name for name in names}.difference(left)
    return {*left}


def lock_path(folder: Path) -> Path:
    """Return the path of a folder's lock file, which is next to the folder, because the folder holds only results."""
    return folder.with_name(f".{folder.name}.lock")


def lock_folder(folder: Path) -> Stage[AbstractContextManager[None]]:
    """Wait until no other run writes to a folder, and return a context that keeps it locked.

    Partial files of killed processes are removed from the folder, and from folders whose names begin with its name.

    Raises WriteError if the folder cannot be locked.
    """
    while True:
        try:
            lock = acquire_lock(lock_path(folder))
        except (filelock.Timeout, FileNotFoundError):  # not found: a failing run may have removed the folder
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
    """Record in `data` that the run in `out` uses its prompts and scores. Raises WriteError."""
    if out.resolve() == data.resolve():
        return  # a run's own folder needs no mark
    run = os.path.relpath(out.resolve(), data.resolve())
    mark = data / USERS / f"{fingerprint(run)}.json"
    if not mark.exists():
        write_json(mark, {"run": run})
