"""What a run is: frozen, validated once, passed whole to the stage it belongs to."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evaluator.errors import ConfigError
from evaluator.schemas import DEFINITIONS, Definition

LabelBoundary = Literal["separate", "merged"]
"""Where a label begins: prompt and label tokenised apart, or the whole string (engine/label_tokens.py)."""

Dtype = Literal["auto", "float32", "bfloat16", "float16"]


SEARCH_SUITE = "prompt-search"
PVI_SUITE = "pvi"
LONE_SUITES = (SEARCH_SUITE, PVI_SUITE)
"""Suites with prompts and options of their own, each of which goes alone."""

SearchPart = Literal["demonstrations", "instructions", "templates"]
"""What a prompt search varies."""

PviSource = Literal["random", "published"]
"""Where the demonstrations of in-context PVI come from."""


def prompt_definition(definitions: Collection[Definition]) -> Definition:
    """Whose prompts a run has where paper and released code build different ones: the paper's, if it is asked for."""
    return "paper" if "paper" in definitions else "released"


@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """Which columns of a user's table hold what; None: the default of the kind of table (datasets/sources.py)."""

    inputs: tuple[str, ...] | None = None
    choices: str | None = None
    gold: str | None = None
    example_id: str | None = None  # None: rows are numbered


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Where datasets are read from, besides those that are installed."""

    paths: tuple[Path, ...] = ()  # files and folders
    hub: bool = False  # download the named datasets that no path holds
    columns: TableColumns = TableColumns()  # of a user's tables


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """What the suite prompt-search tries, and on which files besides the known datasets."""

    data: tuple[Path, ...] = ()
    columns: TableColumns = TableColumns()
    candidates: Path | None = None  # a file of instructions or templates; None: demonstrations are searched
    shots: tuple[int, ...] = (1, 2, 4)
    tries: int = 200  # of each part and number of shots; fewer where there are not as many different prompts
    seed: int = 42
    halving: bool = False  # stop the worse half of the prompts after each round

    def __post_init__(self) -> None:
        if not self.shots or min(self.shots) < 0 or len(set(self.shots)) < len(self.shots):
            raise ConfigError(f"--shots must be different numbers of 0 or more, got {self.shots}.")
        if self.tries < 1:
            raise ConfigError(f"--tries must be 1 or more, got {self.tries}.")
        if self.candidates is None and 0 in self.shots:
            raise ConfigError(
                "--shots 0 leaves no demonstrations to search. Search instructions or templates with --candidates FILE."
            )


@dataclass(frozen=True, kw_only=True)
class PviConfig:
    """What the suite pvi shows before its queries, and on which files besides the known datasets."""

    data: tuple[Path, ...] = ()  # folders of the published tables, or tables
    hub: bool = False  # download the named datasets that no path of `data` holds
    columns: TableColumns = TableColumns()  # of a table that is not one of those
    source: PviSource = "random"
    sets: int = 3  # different demonstrations before all queries, for each number of shots
    shots: tuple[int, ...] | None = None  # None: as many as labels, and twice as many
    seed: int = 42
    prompts: Path | None = None  # the published demonstrations; None: prompts.parquet of a folder in `data`
    # Training rows that demonstrations are chosen among by PVI, where a method does: "the first 500 training instances"
    # (Lu et al. 2023, tables 18 and 19).
    training_queries: int = 500

    def __post_init__(self) -> None:
        if self.shots is not None and (not self.shots or min(self.shots) < 1 or len({*self.shots}) < len(self.shots)):
            raise ConfigError(f"--shots must be different numbers of 1 or more, got {self.shots}.")
        if self.sets < 1:
            raise ConfigError(f"--sets must be 1 or more, got {self.sets}.")
        if self.training_queries < 1:
            raise ConfigError(f"--training-queries must be 1 or more, got {self.training_queries}.")
        if self.prompts and self.source != "published":
            raise ConfigError("--prompts holds published demonstrations: add --demonstrations published.")


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """What is asked, of whichever model. Equal configurations of equal data give equal prompts, byte for byte."""

    suites: tuple[str, ...]
    datasets: tuple[str, ...]  # in benchmark order
    n_shots: int = 4
    n_queries: int | None = None  # the first n of the test split; None for all
    methods: tuple[str, ...] = ("vanilla",)
    definitions: tuple[Definition, ...] = DEFINITIONS
    search: SearchConfig | None = None  # of the suite prompt-search, which has its own numbers of shots
    pvi: PviConfig | None = None  # of the suite pvi, which has its own too

    @property
    def prompt_definition(self) -> Definition:
        return prompt_definition(self.definitions)

    def __post_init__(self) -> None:
        if self.suites == (SEARCH_SUITE,) and self.search is None:
            object.__setattr__(self, "search", SearchConfig())
        if self.suites == (PVI_SUITE,) and self.pvi is None:
            object.__setattr__(self, "pvi", PviConfig())
        if not self.suites:
            raise ConfigError("No suite was named. `evaluator suites` lists them.")
        own = self.search or self.pvi
        if self.pvi and self.pvi.hub and not self.datasets:
            raise ConfigError(
                "--data hub downloads nothing but what is named: say which with --datasets, as in --datasets snli,rte. "
                "`evaluator datasets` lists them."
            )
        if not self.datasets and not (own and own.data):
            files = f" {self.suites[0]} takes files as well, with --data." if own else ""
            raise ConfigError(f"No dataset was named with --datasets. `evaluator datasets` lists them.{files}")
        for name, options in ((SEARCH_SUITE, self.search), (PVI_SUITE, self.pvi)):
            if (name in self.suites or options) and self.suites != (name,):
                raise ConfigError(
                    f"{name} has prompts and options of its own, so it goes alone; got {self.suites}. Run the other "
                    "suites in a command of their own."
                )
        if self.n_shots < 0:
            raise ConfigError(f"--shots must be 0 or more, got {self.n_shots}.")
        if self.n_queries is not None and self.n_queries < 1:
            raise ConfigError(f"--queries must be 1 or more, got {self.n_queries}. Leave it out to take every query.")
        if self.search and self.search.halving and len(self.methods) > 1:
            raise ConfigError(
                f"--halving stops prompts by the accuracy of one method, got {', '.join(self.methods)}. Name one with "
                "--methods."
            )
        for option, names in (("SUITE", self.suites), ("--datasets", self.datasets), ("--methods", self.methods)):
            if len(set(names)) < len(names):
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
