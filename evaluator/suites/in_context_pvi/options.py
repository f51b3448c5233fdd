"""The options of the suite pvi. Each field carries its help on the command line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evaluator.errors import ConfigError
from evaluator.suites.options import option

PviSource = Literal["random", "published"]
"""Where the demonstrations of in-context PVI come from."""


@dataclass(frozen=True, kw_only=True)
class PviOptions:
    """Which demonstrations are shown before the queries."""

    shots: tuple[int, ...] | None = option(
        None, "Numbers of demonstrations; as many as labels, and twice as many, if left out."
    )
    source: PviSource = option("random", "Where they come from.", flag="demonstrations")
    sets: int = option(3, "Demonstration sets for each number of shots, each before all queries.")
    seed: int = option(42, "Draws demonstrations.")
    prompts: Path | None = option(None, "The published demonstrations; prompts.parquet of a folder in --data.")
    # "The first 500 training instances" (Lu et al. 2023, tables 18 and 19).
    training_queries: int = option(500, "Training rows that demonstrations are chosen among by PVI.")

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
class PviMeasureOptions:
    """What `evaluator measure` compares PVI with."""

    annotations: tuple[Path, ...] = option(
        (), "Parquet with several annotators' labels of the queries (uid, premise, hypothesis, label_count)."
    )
