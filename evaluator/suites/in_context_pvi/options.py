"""Define the options of the suite pvi. Each field has its help text for the command line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evaluator.errors import ConfigError
from evaluator.options import Options, option

PviSource = Literal["random", "published"]
"""Where the demonstrations of in-context PVI come from."""


@dataclass(frozen=True, kw_only=True)
class PviOptions(Options):
    """Options of the demonstrations before the queries."""

    shots: tuple[int, ...] | None = option(
        None, "Numbers of demonstrations. Default: the number of labels, and twice that."
    )
    source: PviSource = option("random", "Where demonstrations come from.", name="demonstrations")
    sets: int = option(
        3, "Demonstration sets for each number of shots; every query is shown after each set.", minimum=1
    )
    seed: int = option(42, "Seed of everything that is drawn: queries, demonstrations, ties.")
    prompts: Path | None = option(
        None, "File of the published demonstrations. Default: prompts.parquet in a folder of --data."
    )
    # "The first 500 training instances" (Lu et al. 2023, tables 18 and 19).
    training_queries: int = option(
        500, "Number of training rows from which demonstrations are chosen by PVI.", minimum=1
    )

    def __post_init__(self) -> None:
        if self.shots is not None and (not self.shots or min(self.shots) < 1 or len({*self.shots}) < len(self.shots)):
            raise ConfigError(f"--shots must be different numbers, each 1 or more, got {self.shots}.")
        super().__post_init__()
        if self.prompts and self.source != "published":
            raise ConfigError("--prompts names a file of published demonstrations: add --demonstrations published.")


@dataclass(frozen=True, kw_only=True)
class PviMeasureOptions(Options):
    """Options of `evaluator measure`: data that PVI is compared with."""

    annotations: tuple[Path, ...] = option(
        (),
        "Parquet file with the labels of several annotators (premise, hypothesis, old_labels, label_count).",
        given=Path,
        several=True,
    )
