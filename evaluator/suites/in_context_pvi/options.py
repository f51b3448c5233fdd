"""Define the options of the suite pvi. Each field has its help text for the command line."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from evaluator.config import RunConfig
from evaluator.datasets.lu_2023_tables import PROMPTS_FILE
from evaluator.errors import ConfigError, DatasetError
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
        "Labels of several annotators (ChaosNLI, SNLI or MultiNLI as released, or a table with the column text), or a "
        "table of text and pvi, computed elsewhere.",
        given=Path,
        several=True,
    )


def resolved_options(config: RunConfig) -> PviOptions:
    """Return the suite's options in a run, with the file of published demonstrations if the run uses it.

    Raises DatasetError if the file is missing.
    """
    options = config.options_of(PviOptions)
    if options.source != "published":
        return options
    folders = [path for path in config.data.paths if path.is_dir()]
    searched = [options.prompts] if options.prompts else [path / PROMPTS_FILE for path in folders]
    for path in searched:
        if path.is_file():
            return replace(options, prompts=path)
    raise DatasetError(
        f"The published demonstrations are not there: looked for {', '.join(map(str, searched)) or PROMPTS_FILE}. "
        "Name their file with --prompts, or use --demonstrations random."
    )
