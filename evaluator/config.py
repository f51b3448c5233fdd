"""What a run is: frozen, validated once, passed whole to the stage it belongs to."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evaluator.errors import ConfigError
from evaluator.schemas import DEFINITIONS, Definition

LabelBoundary = Literal["separate", "merged"]
"""Where a label begins: prompt and label tokenised apart, or the whole string (engine/label_tokens.py)."""

Dtype = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """What is asked, of whichever model. Equal configurations of equal data give equal prompts, byte for byte."""

    suites: tuple[str, ...]
    datasets: tuple[str, ...]  # in benchmark order
    n_shots: int = 4
    n_queries: int | None = None  # the first n of the test split; None for all
    methods: tuple[str, ...] = ("vanilla",)
    definitions: tuple[Definition, ...] = DEFINITIONS

    def __post_init__(self) -> None:
        if not self.suites:
            raise ConfigError("No suite was named. `evaluator suites` lists them.")
        if not self.datasets:
            raise ConfigError("No dataset was named. `evaluator datasets` lists them.")
        if self.n_shots < 0:
            raise ConfigError(f"--shots must be 0 or more, got {self.n_shots}.")
        if self.n_queries is not None and self.n_queries < 1:
            raise ConfigError(f"--queries must be 1 or more, got {self.n_queries}. Leave it out to take every query.")
        for option, names in (("SUITE", self.suites), ("--datasets", self.datasets), ("--methods", self.methods)):
            if len(set(names)) < len(names):
                raise ConfigError(f"{option} names something twice: {', '.join(names)}.")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which model scores the prompts, and how it is loaded."""

    model: str  # a folder, a hub name, or a name `evaluator.embedded` knows
    engine: str | None = None  # None: vllm where it is installed, else transformers
    dtype: Dtype = "auto"
    label_boundary: LabelBoundary = "separate"
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
