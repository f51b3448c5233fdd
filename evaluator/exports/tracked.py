"""Say what of a run goes to a tracker of experiments, Weights & Biases or MLflow: settings, numbers, files.

Numbers are the headline metrics under the first exported definition, with their intervals and, next to an accuracy, the
baselines of guessing. The whole tables and the page go along as files.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import polars as pl

from evaluator.errors import ConfigError
from evaluator.exports.base import ExportedRun
from evaluator.report.terminal import first_definition

PROJECT = "evaluator"
BESIDES = ("ci_low", "ci_high", "chance", "majority", "max_random")
"""Columns of a metric's row that are numbers of their own."""


@dataclass(frozen=True, kw_only=True)
class Tracker:
    """A tracker of experiments whose own client writes a run to a folder."""

    summary: str
    package: str  # that the client is imported from
    extra: str  # of this package, that installs it
    log: Callable[[ExportedRun, Path], Path]
    """Write a run below a folder, and return the path to name to the tracker's own command."""

    def require_client(self) -> None:
        """Raise ConfigError where the client is not installed."""
        if find_spec(self.package) is None:
            raise ConfigError(
                f"This format is written by the package {self.package}, which is not installed: pip install "
                f"'evaluator[{self.extra}]'."
            )


def settings(run: ExportedRun) -> dict[str, str | int | float | bool | None]:
    """Return the settings of a run, flat and without a path of the machine."""
    record = run.record
    return {
        "model": run.model,
        "model_revision": record.model.revision,
        "weights_fingerprint": record.model.weights_fingerprint,
        "parameters": record.model.n_parameters,
        "engine": record.engine.name,
        "engine_versions": ", ".join(f"{name} {version}" for name, version in record.engine.versions.items()),
        "dtype": record.engine.dtype,
        "device": record.engine.device,
        "chat": record.scores.chat is not None,
        "label_boundary": record.scores.label_boundary,
        "suites": ", ".join(record.prompts.suites),
        "datasets": ", ".join(record.prompts.datasets),
        "methods": ", ".join(record.prompts.methods),
        "definitions": ", ".join(record.prompts.definitions),
        "shots": record.prompts.shots,
        "queries": record.prompts.queries,
        "prompts_fingerprint": record.prompts.fingerprint,
        "seeds": ", ".join(f"{name} {seed}" for name, seed in record.prompts.seeds.items()),
        "evaluator": record.evaluator,
        "started": record.started,
        "finished": record.finished,
    }


def numbers(run: ExportedRun) -> dict[str, float]:
    """Return the headline metrics by name: PART/DATASET/METHOD/METRIC, after the suite's name where there are several.

    An interval's ends and the baselines follow the name of their metric; what is not finite is left out.
    """
    headlines = [name for name in set(run.metrics["metric"]) if run.texts.is_headline(name)]
    rows = first_definition(run.metrics).filter(pl.col("metric").is_in(headlines))
    several = rows["suite"].n_unique() > 1
    found: dict[str, float | None] = {}
    for row in rows.sort("suite", "part", "dataset", "method", "metric").iter_rows(named=True):
        parts = [row["suite"]] * several + [row["part"], row["dataset"], row["method"], row["metric"]]
        name = "/".join(_plain(part) for part in parts)
        found |= {name: row["value"], **{f"{name}/{column}": row.get(column) for column in BESIDES}}
    return {name: float(value) for name, value in found.items() if value is not None and abs(value) < float("inf")}


def _plain(text: str) -> str:
    """Return a part of a name with only the characters that both trackers take."""
    return re.sub(r"[^\w. :-]", "_", text)
