"""What a run is: frozen, validated once, passed whole to the stage it belongs to."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

from evaluator.errors import ConfigError
from evaluator.schemas import DEFINITIONS, Definition

OptionsT = TypeVar("OptionsT")

LabelBoundary = Literal["separate", "merged"]
"""Where a label begins: prompt and label tokenised apart, or the whole string (tokens/boundary.py)."""

Dtype = Literal["auto", "float32", "bfloat16", "float16"]


def prompt_definition(definitions: Collection[Definition]) -> Definition:
    """Whose prompts a run has where paper and released code build different ones: the paper's, if it is asked for."""
    return "paper" if "paper" in definitions else "released"


@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """Which columns of a user's table hold what; None: the default of its kind (datasets/sources.py)."""

    inputs: tuple[str, ...] | None = None
    choices: str | None = None
    gold: str | None = None
    example_id: str | None = None  # None: rows are numbered


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Where datasets are read from, besides those that the install brings."""

    paths: tuple[Path, ...] = ()  # files and folders
    hub: bool = False  # download the named datasets that no path holds
    columns: TableColumns = TableColumns()


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What is evaluated, of whichever model. Equal configurations of equal data give equal prompts, byte for byte."""

    suites: tuple[str, ...]
    datasets: tuple[str, ...] = ()  # names, in benchmark order
    data: DataOptions = DataOptions()
    n_shots: int = 4  # of suites that have no `shots` among their options
    n_queries: int | None = None  # the first n of the test split; None for all
    methods: tuple[str, ...] = ("vanilla",)
    definitions: tuple[Definition, ...] = DEFINITIONS
    parts: tuple[str, ...] | None = None  # of the suites; None for all
    suite_options: Mapping[str, object] = field(default_factory=dict)  # suite -> its own options, a dataclass

    @property
    def prompt_definition(self) -> Definition:
        return prompt_definition(self.definitions)

    def options_of(self, kind: type[OptionsT]) -> OptionsT:
        """Return the options of the suite that has this kind of them; the defaults where none were given."""
        return next((options for options in self.suite_options.values() if isinstance(options, kind)), None) or kind()

    def __post_init__(self) -> None:
        if not self.suites:
            raise ConfigError("No suite was named. `evaluator suites` lists them.")
        if self.data.hub and not self.datasets:
            raise ConfigError(
                "--data hub downloads nothing but what is named: say which with --datasets, as in --datasets snli,rte. "
                "`evaluator datasets` lists them."
            )
        if not self.datasets and not self.data.paths:
            raise ConfigError(
                "No dataset was named. Name some with --datasets (`evaluator datasets` lists them), or files with "
                "--data."
            )
        if self.n_shots < 0:
            raise ConfigError(f"--shots must be 0 or more, got {self.n_shots}.")
        if self.n_queries is not None and self.n_queries < 1:
            raise ConfigError(f"--queries must be 1 or more, got {self.n_queries}. Leave it out to take every query.")
        named = {"SUITE": self.suites, "--datasets": self.datasets, "--methods": self.methods, "--parts": self.parts}
        for option, names in named.items():
            if names is not None and len(set(names)) < len(names):
                raise ConfigError(f"{option} names something twice: {', '.join(names)}.")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which model scores the prompts, and how it is loaded."""

    model: str  # a folder, a hub name, or one of evaluator.models.embedded.EMBEDDED_MODELS
    engine: str | None = None  # None: vllm where it is installed, else transformers
    dtype: Dtype = "auto"
    label_boundary: LabelBoundary | None = None  # None: that of the suites
    kv_cache_gib: float | None = None  # None: the engine's own choice
    revision: str | None = None  # of a hub name
    trust_remote_code: bool = False

    def __post_init__(self) -> None:
        if self.kv_cache_gib is not None and self.kv_cache_gib <= 0:
            raise ConfigError(f"--kv-cache-gib must be above 0, got {self.kv_cache_gib}.")


def cache_folder() -> Path:
    """Where converted datasets are kept: $EVALUATOR_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("EVALUATOR_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evaluator"
