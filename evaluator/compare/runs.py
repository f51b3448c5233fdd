"""Collect the runs of a comparison, and check that they are comparable."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from evaluator.errors import ConfigError, StoreError, shown
from evaluator.files.digests import fingerprint
from evaluator.record import MeasuredRecord, require_every_query


def prompt_form(record: MeasuredRecord) -> str:
    """Return in words how prompts reached the model."""
    return record.scores.chat.form if record.scores.chat else "plain prompts"


def settings(record: MeasuredRecord) -> dict[str, str]:
    """Return the settings of a run apart from its model: name -> value in words."""
    scores, prompts = record.scores, record.prompts
    options = [prompts.config.get("data", {}), *prompts.config.get("suite_options", {}).values()]
    given = {
        name.replace("_", " "): value for each in options for name, value in each.items() if name not in _NO_SETTINGS
    }
    return {
        "prompt form": prompt_form(record),
        "shots": f"{prompts.shots} shots",
        "label boundary": f"label boundary {scores.label_boundary}",
        **{name: f"{name} {shown(value)}" if value else f"no {name}" for name, value in given.items()},
        "tokenizer": f"tokenizer {record.model.tokenizer_fingerprint[:8]}",
        TEXTS: f"texts {fingerprint(prompts.dataset_fingerprints)[:8]}",
        "dtype": record.engine.dtype,
        "engine": record.engine.name,
    }


TEXTS = "texts around the examples"
_MAKE_TEXTS = {"labels", "instruction", "template", "columns", "training", "training rows"}

_NO_SETTINGS = ("paths", "hub", "repositories", "shots")
"""Options that say where data are, or have a place of their own among the settings."""


ReadTable = Callable[[Path, str, Mapping[str, str]], pl.DataFrame]
"""Reads a table of the measure stage from the folder of a run, its name and the digests of all tables."""


@dataclass(frozen=True)
class ComparedRun:
    """One of the runs that are compared."""

    number: int  # place among them, from 1
    folder: Path  # for messages
    name: str  # the folder's name, or its path where two folders have the same name
    model: str  # name of the model; where two have the same name, followed by its form and then by the run's name
    record: MeasuredRecord
    metrics: pl.DataFrame  # schemas.METRICS
    read_table: ReadTable

    def table(self, name: str) -> pl.DataFrame:
        """Read a table of the measure stage. Raises StoreError where it is missing."""
        return self.read_table(self.folder, name, self.record.tables)

    @property
    def definitions(self) -> list[str]:
        """Return the measured definitions, sorted."""
        return sorted(set(self.metrics["definition"]))


def compared_runs(
    folders: Sequence[Path],
    records: Sequence[MeasuredRecord],
    read_table: ReadTable,
    *,
    of_one_model: bool = False,
) -> list[ComparedRun]:
    """Return the runs of a comparison, in the order of the folders.

    Args:
        folders, records: of each run.
        read_table: as for ComparedRun.
        of_one_model: whether runs may be of the same model, as with another engine or version of it.

    Runs may be of one model in several settings. Only definitions that all runs have are compared.

    Raises ConfigError for fewer than two runs, for the same model in the same settings twice, and for runs of different
    numbers of queries or without a common definition; StoreError for a run without metrics.
    """
    if len(folders) < 2:
        raise ConfigError(f"A comparison takes two runs or more, got {len(folders)}. Name their output folders.")
    names = _distinct([folder.resolve().name for folder in folders], [str(folder) for folder in folders])
    models = _with_settings(records)
    models = _distinct(models, [f"{model} ({name})" for model, name in zip(models, names, strict=True)])
    for folder, record in zip(folders, records, strict=True):
        require_every_query(record, str(folder))
    runs = []
    for number, (folder, name, model, record) in enumerate(zip(folders, names, models, records, strict=True), 1):
        metrics = read_table(folder, "metrics", record.tables)
        runs.append(ComparedRun(number, folder, name, model, record, metrics, read_table))
    without = [run for run in runs if run.metrics.is_empty()]
    if without and (of_one_model or len(without) < len(runs)):
        suites = ", ".join(without[0].record.prompts.suites)
        raise StoreError(f"{without[0].folder} has no metrics to compare: {suites} measures none. Leave it out.")
    if not of_one_model:
        _require_different_runs(runs)
    _require_as_many_queries(runs)
    if len(without) == len(runs):  # suites without metrics compare tables of their own
        return runs
    common = set[str].intersection(*({*run.definitions} for run in runs))
    if not common:
        measured = "; ".join(f"{', '.join(run.definitions)} in {run.folder}" for run in runs)
        raise ConfigError(f"The runs have no definition in common: {measured}. Measure one again (--definition).")
    return [replace(run, metrics=run.metrics.filter(pl.col("definition").is_in(common))) for run in runs]


def _distinct(names: Sequence[str], longer: Sequence[str]) -> list[str]:
    """Replace names that occur more than once by the longer ones."""
    counts = Counter(names)
    return [name if counts[name] == 1 else other for name, other in zip(names, longer, strict=True)]


def _with_settings(records: Sequence[MeasuredRecord]) -> list[str]:
    """Return the names of models, followed by the settings that differ among runs of the same name."""
    named = []
    for record in records:
        same = [other for other in records if other.model.title == record.model.title]
        different = [name for name in different_settings(same) if name != TEXTS]
        named.append(", ".join([record.model.title, *(settings(record).get(name, f"no {name}") for name in different)]))
    return named


def different_settings(records: Sequence[MeasuredRecord]) -> list[str]:
    """Return the names of the settings that differ among runs."""
    known = [settings(record) for record in records]
    names = dict.fromkeys(name for each in known for name in each)
    different = [name for name in names if len({each.get(name) for each in known}) > 1]
    follow = {TEXTS} if not _MAKE_TEXTS.isdisjoint(different) else set()
    if len({record.scores.chat is None for record in records}) > 1:
        follow |= {"label boundary"}  # a plain prompt and a conversation begin labels in different places
    return [name for name in different if name not in follow]


def _require_different_runs(runs: Sequence[ComparedRun]) -> None:
    seen: dict[tuple[str, ...], ComparedRun] = {}
    for run in runs:
        same = run.record.model.weights_fingerprint, *settings(run.record).values()
        first = seen.setdefault(same, run)
        if first is not run:
            raise ConfigError(
                f"{first.folder} and {run.folder} are the same model in the same settings: weights {same[0]}, "
                f"{run.record.engine.dtype}. There is nothing to compare. Leave one of them out."
            )


def _require_as_many_queries(runs: Sequence[ComparedRun]) -> None:
    numbers = [run.record.prompts.n_queries for run in runs]
    words = ["all" if n is None else str(n) for n in numbers]
    for run, word in zip(runs, words, strict=True):
        if word != words[0]:
            raise ConfigError(
                f"The runs differ in their queries of each dataset: {words[0]} in {runs[0].folder}, {word} in "
                f"{run.folder}. Models are compared on the same queries: run one of them again with the other's "
                "--queries."
            )
