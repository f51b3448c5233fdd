"""Output folders of runs go in; what a comparison needs of each comes out, or the reason why they do not compare."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl

from evaluator.errors import ConfigError, StoreError
from evaluator.run.folder import current_table
from evaluator.run.record import read_run

SETTINGS = {
    "shots": ("store", "n_shots", "--shots"),
    "queries of each dataset": ("store", "n_queries", "--queries"),
    "label boundary": ("scores", "label_boundary", "--label-boundary"),
}
"""What must be the same in all runs -> its section and key in run.json, and the option that decides it."""


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One of the runs that are compared."""

    number: int  # place among them, from 1
    folder: Path
    name: str  # the folder's name, or its path where two folders have the same name
    model: str  # its name, with the run's behind it where two runs have a model of that name
    record: Mapping[str, Any]  # run.json
    metrics: pl.DataFrame  # schemas.METRICS

    @property
    def weights_fingerprint(self) -> str | None:
        fingerprint: str | None = recorded(self.record, "model", "weights_fingerprint")
        return fingerprint

    @property
    def n_parameters(self) -> int | None:
        count: int | None = recorded(self.record, "model", "n_parameters")
        return count

    @property
    def dtype(self) -> str | None:
        dtype: str | None = recorded(self.record, "engine", "dtype")
        return dtype

    @property
    def definitions(self) -> list[str]:
        return sorted(set(self.metrics["definition"]))


def recorded(record: Mapping[str, Any], section: str, key: str) -> Any:
    """One entry of run.json, None where it was not recorded."""
    return record.get(section, {}).get(key)


def read_runs(folders: Sequence[Path]) -> list[ComparedRun]:
    """The runs in the order given.

    Raises ConfigError for fewer than two runs, for one model twice, and for runs of different settings, whose numbers
    differ for more reasons than the model; StoreError for a folder that holds no run or no metrics of its scores.
    """
    if len(folders) < 2:
        raise ConfigError(f"A comparison takes two runs or more, got {len(folders)}. Name their output folders.")
    records = [read_run(folder) for folder in folders]
    metrics = [_metrics(folder, record) for folder, record in zip(folders, records, strict=True)]
    names = _distinct([folder.resolve().name for folder in folders], [str(folder) for folder in folders])
    models = [str(recorded(record, "model", "name") or name) for record, name in zip(records, names, strict=True)]
    models = _distinct(models, [f"{model} ({name})" for model, name in zip(models, names, strict=True)])
    runs = [
        ComparedRun(number=number, folder=folder, name=name, model=model, record=record, metrics=own)
        for number, (folder, name, model, record, own) in enumerate(
            zip(folders, names, models, records, metrics, strict=True), start=1
        )
    ]
    _require_different_models(runs)
    _require_equal_settings(runs)
    return runs


def _metrics(folder: Path, record: Mapping[str, Any]) -> pl.DataFrame:
    metrics = current_table(folder, "metrics")
    if metrics.is_empty():
        suites = ", ".join(recorded(record, "store", "suites") or ["its suite"])
        raise StoreError(f"{folder} holds no metrics to compare: {suites} measures none. Leave it out.")
    return metrics


def _distinct(names: Sequence[str], longer: Sequence[str]) -> list[str]:
    """The names, or the longer ones of those that occur twice."""
    counts = Counter(names)
    return [name if counts[name] == 1 else other for name, other in zip(names, longer, strict=True)]


def _require_different_models(runs: Sequence[ComparedRun]) -> None:
    for first, second in combinations(runs, 2):
        weights = first.weights_fingerprint
        if weights is not None and (weights, first.dtype) == (second.weights_fingerprint, second.dtype):
            raise ConfigError(
                f"{first.folder} and {second.folder} are the same model: weights {weights}, {first.dtype}. Counted "
                "twice it would draw every correlation and every line towards itself. Leave one of them out."
            )


def _require_equal_settings(runs: Sequence[ComparedRun]) -> None:
    first = runs[0]
    for run in runs[1:]:
        for name, (section, key, option) in SETTINGS.items():
            values = [_shown(recorded(one.record, section, key)) for one in (first, run)]
            _require_equal(name, option, (first, run), values)
        values = [", ".join(one.definitions) for one in (first, run)]
        _require_equal("definitions", "--definition", (first, run), values)


def _require_equal(name: str, option: str, runs: tuple[ComparedRun, ComparedRun], values: Sequence[str]) -> None:
    if values[0] != values[1]:
        raise ConfigError(
            f"The runs differ in their {name}: {values[0]} in {runs[0].folder}, {values[1]} in {runs[1].folder}. Their "
            f"numbers would differ for more reasons than the model. Run one of them again with the other's {option}."
        )


def _shown(value: Any) -> str:
    return "all" if value is None else str(value)
