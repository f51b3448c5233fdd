"""Collect the runs of a comparison, and check that they are comparable."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from evaluator.errors import ConfigError, StoreError
from evaluator.record import MeasuredRecord


def prompt_form(record: MeasuredRecord) -> str:
    """Return in words how prompts reached the model."""
    return record.scores.chat.form if record.scores.chat else "plain prompts"


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One of the runs that are compared."""

    number: int  # place among them, from 1
    folder: Path  # for messages
    name: str  # the folder's name, or its path where two folders have the same name
    model: str  # name of the model; where two have the same name, followed by its form and then by the run's name
    record: MeasuredRecord
    metrics: pl.DataFrame  # schemas.METRICS
    table: Callable[[str], pl.DataFrame]
    """Read a table of the measure stage. Raises StoreError where it is missing."""

    @property
    def definitions(self) -> list[str]:
        """Return the measured definitions, sorted."""
        return sorted(set(self.metrics["definition"]))


def compared_runs(
    folders: Sequence[Path],
    records: Sequence[MeasuredRecord],
    tables: Sequence[Callable[[str], pl.DataFrame]],
    *,
    of_one_model: bool = False,
) -> list[ComparedRun]:
    """Return the runs of a comparison, in the order of the folders.

    Args:
        folders, records, tables: of each run.
        of_one_model: whether runs may be of the same model, as with another engine or version of it.

    Raises ConfigError for fewer than two runs, for the same model twice, and for runs of different settings, whose
    numbers differ for more reasons than the model; StoreError for a run without metrics among others that have some,
    and of one model.
    """
    if len(folders) < 2:
        raise ConfigError(f"A comparison takes two runs or more, got {len(folders)}. Name their output folders.")
    names = _distinct([folder.resolve().name for folder in folders], [str(folder) for folder in folders])
    models = _distinct_forms(records)
    models = _distinct(models, [f"{model} ({name})" for model, name in zip(models, names, strict=True)])
    runs: list[ComparedRun] = []
    for folder, record, table, name, model in zip(folders, records, tables, names, models, strict=True):
        number, metrics = len(runs) + 1, table("metrics")
        runs.append(
            ComparedRun(
                number=number, folder=folder, name=name, model=model, record=record, metrics=metrics, table=table
            )
        )
    without = [run for run in runs if run.metrics.is_empty()]
    if without and (of_one_model or len(without) < len(runs)):
        suites = ", ".join(without[0].record.prompts.suites)
        raise StoreError(f"{without[0].folder} has no metrics to compare: {suites} measures none. Leave it out.")
    if not of_one_model:
        _require_different_models(runs)
    for run in runs[1:]:
        _require_equal_settings(runs[0], run)
    return runs


def _distinct(names: Sequence[str], longer: Sequence[str]) -> list[str]:
    """Replace names that occur more than once by the longer ones."""
    counts = Counter(names)
    return [name if counts[name] == 1 else other for name, other in zip(names, longer, strict=True)]


def _distinct_forms(records: Sequence[MeasuredRecord]) -> list[str]:
    """Return the names of models, followed by how prompts reach them where two have the same name and another form."""
    named = [(record.model.title, prompt_form(record)) for record in records]
    n_forms = Counter(title for title, _ in {*named})
    return [title if n_forms[title] == 1 else f"{title}, {form}" for title, form in named]


def _require_different_models(runs: Sequence[ComparedRun]) -> None:
    by_weights: dict[tuple[str, str, str], ComparedRun] = {}
    for run in runs:
        weights = run.record.model.weights_fingerprint, run.record.engine.dtype, prompt_form(run.record)
        first = by_weights.setdefault(weights, run)
        if first is not run:
            raise ConfigError(
                f"{first.folder} and {run.folder} are the same model: weights {', '.join(weights)}. "
                "Counted twice it would bias every correlation and every line fit. Leave one of them out."
            )


def _require_equal_settings(first: ComparedRun, run: ComparedRun) -> None:
    expected, given = _settings(first), _settings(run)
    if (first.record.scores.chat is None) != (run.record.scores.chat is None):
        del given["label boundary"]  # a plain prompt and a conversation begin labels in different places
    for name, (value, option) in given.items():
        if value != expected[name][0]:
            raise ConfigError(
                f"The runs differ in their {name}: {expected[name][0]} in {first.folder}, {value} in {run.folder}. "
                "Their numbers would differ for more reasons than the model. Run one of them again with the other's "
                f"{option}."
            )


def _settings(run: ComparedRun) -> dict[str, tuple[str, str]]:
    """Return the settings that must be equal in all runs: name -> value and the option that sets it."""
    prompts = run.record.prompts
    return {
        "shots": (prompts.shots, "--shots"),
        "queries of each dataset": ("all" if prompts.n_queries is None else str(prompts.n_queries), "--queries"),
        "label boundary": (run.record.scores.label_boundary, "--label-boundary"),
        "definitions": (", ".join(run.definitions), "--definition"),
    }
