"""Define the options of the suite prompt-search. Each field has its help text for the command line."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evaluator.errors import ConfigError
from evaluator.options import Options, option

SearchPart = Literal["demonstrations", "instructions", "templates"]
"""What a prompt search varies: the `part` of its requests."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Options):
    """Options of a prompt search."""

    shots: tuple[int, ...] = option((1, 2, 4), "Numbers of demonstrations, each searched by itself.")
    tries: int = option(
        200, "Prompts for each number of shots; fewer where there are not as many different ones.", minimum=1
    )
    candidates: Path | None = option(None, "A JSON file of instructions or templates to try instead of demonstrations.")
    halving: bool = option(False, "Stop the worse half of the prompts, in rounds.")
    seed: int = option(42, "Seed of everything that is drawn: queries, demonstrations, ties.")

    def __post_init__(self) -> None:
        if not self.shots or min(self.shots) < 0 or len(set(self.shots)) < len(self.shots):
            raise ConfigError(f"--shots must be different numbers of 0 or more, got {self.shots}.")
        super().__post_init__()
        if self.candidates is None and 0 in self.shots:
            raise ConfigError(
                "--shots 0 leaves no demonstrations to search. Search instructions or templates with --candidates FILE."
            )
