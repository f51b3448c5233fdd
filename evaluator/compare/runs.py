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
    """Return the form of the prompts in words: the form of the chat template, or "plain prompts"."""
    return record.scores.chat.form if record.scores.chat else "plain prompts"


def settings(record: MeasuredRecord) -> dict[str, str]:
    """Return the settings of a run, other than its model: name -> value in words."""
    scores, prompts = record.scores, record.prompts
    texts = "unknown" if record.model.kind == "imported" else fingerprint(prompts.dataset_fingerprints)[:8]
    options = [prompts.config.get("data", {}), *prompts.config.get("suite_options", {}).values()]
    given = {
        name.replace("_", " "): value for each in options for name, value in each.items() if name not in _NO_SETTINGS
    }
    return {
        "prompt form": prompt_form(record),
        "shots": f"{prompts.shots} shot{'s' * (prompts.shots != '1')}",
        "label boundary": f"label boundary {scores.label_boundary}",
        **{name: f"{name} {shown(value)}" if value else f"no {name}" for name, value in given.items()},
        "tokenizer": f"tokenizer {record.model.tokenizer_fingerprint[:8]}",
        TEXTS: f"texts {texts}",
        "dtype": record.engine.dtype,
        "engine": record.engine.name,
    }


TEXTS = "texts around the examples"
"""Name of the setting whose value is the fingerprint of the datasets."""

_MAKE_TEXTS = {"labels", "instruction", "template", "columns", "training", "training rows"}
"""Settings that change the texts: where one differs, TEXTS differs as a consequence."""

_NO_SETTINGS = ("paths", "hub", "repositories", "shots")
"""Options that are not listed as settings: locations of data, and shots, which `settings` adds itself."""


ReadTable = Callable[[Path, str, Mapping[str, str]], pl.DataFrame]
"""Function that reads a table of the measure stage: (folder of the run, name of the table, digests) -> frame."""


@dataclass(frozen=True)
class ComparedRun:
    """One of the runs that are compared."""

    number: int  # position among the runs, from 1
    folder: Path
    name: str  # the folder's name, or its path where two folders have the same name
    model: str  # model name; if not unique, with the settings that differ, then the run name
    record: MeasuredRecord
    metrics: pl.DataFrame  # schemas.METRICS
    read_table: ReadTable

    def table(self, name: str) -> pl.DataFrame:
        """Read a table of the measure stage. Raises StoreError if it is missing."""
        return self.read_table(self.folder, name, self.record.tables)


def compared_runs(
    folders: Sequence[Path],
    records: Sequence[MeasuredRecord],
    read_table: ReadTable,
    *,
    of_one_model: bool = False,
) -> list[ComparedRun]:
    """Return the runs of a comparison, in the order of the folders, with the metrics of their common definitions.

    Args:
        folders: folder of each run.
        records: record of each run.
        read_table: function that reads a table of a run.
        of_one_model: whether runs may have the same model and settings, as with another version of the engine. A model
            in several settings is always allowed.

    Raises:
        ConfigError: fewer than two runs, the same model in the same settings twice, different numbers of queries, or no
            common definition.
        StoreError: a run that stopped early, or without metrics (unless no run has metrics, and not `of_one_model`).
    """
    if len(folders) < 2:
        raise ConfigError(f"A comparison takes two runs or more, got {len(folders)}. Name their output folders.")
    names = _distinct([folder.resolve().name for folder in folders], [str(folder) for folder in folders])
    models = _with_settings(records)
    models = _distinct(models, [f"{model} ({name})" for model, name in zip(models, names, strict=True)])
    for folder, record in zip(folders, records, strict=True):
        require_every_query(record, str(folder))
    runs = [
        ComparedRun(number, folder, name, model, record, read_table(folder, "metrics", record.tables), read_table)
        for number, (folder, name, model, record) in enumerate(zip(folders, names, models, records, strict=True), 1)
    ]
    without = [run for run in runs if run.metrics.is_empty()]
    if without and (of_one_model or len(without) < len(runs)):
        suites = ", ".join(without[0].record.prompts.suites)
        raise StoreError(f"{without[0].folder} has no metrics to compare: {suites} measures none. Leave it out.")
    if not of_one_model:
        _require_different_runs(runs)
    for run in runs:
        n_first, n_queries = (each.record.prompts.n_queries or "all" for each in (runs[0], run))
        if n_queries != n_first:
            raise ConfigError(
                f"The runs differ in their queries of each dataset: {n_first} in {runs[0].folder}, {n_queries} in "
                f"{run.folder}. Models are compared on the same queries: run one of them again with the other's "
                "--queries."
            )
    if len(without) == len(runs):  # suites without metrics have comparisons of their own
        return runs
    definitions = [{*run.metrics["definition"]} for run in runs]
    common = set[str].intersection(*definitions)
    if not common:
        measured = (f"{', '.join(sorted(of))} in {run.folder}" for of, run in zip(definitions, runs, strict=True))
        raise ConfigError(
            f"The runs have no definition in common: {'; '.join(measured)}. Measure one again (--definition)."
        )
    return [replace(run, metrics=run.metrics.filter(pl.col("definition").is_in(common))) for run in runs]


def _distinct(names: Sequence[str], longer: Sequence[str]) -> list[str]:
    """Return the names, with names that occur more than once replaced by the longer names."""
    counts = Counter(names)
    return [name if counts[name] == 1 else other for name, other in zip(names, longer, strict=True)]


def _with_settings(records: Sequence[MeasuredRecord]) -> list[str]:
    """Return the name of each run's model, followed by the settings that differ among the runs of that model name."""
    named = []
    for record in records:
        same = [other for other in records if other.model.title == record.model.title]
        different = [name for name in different_settings(same) if name != TEXTS]
        named.append(", ".join([record.model.title, *(settings(record).get(name, f"no {name}") for name in different)]))
    return named


def different_settings(records: Sequence[MeasuredRecord]) -> list[str]:
    """Return the names of the settings that differ among runs, without those that differ only as a consequence."""
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
