"""Options of the suite decide."""

from dataclasses import dataclass
from typing import Literal

from evaluator.decisions.forms import Form
from evaluator.errors import ConfigError
from evaluator.options import Options, option


@dataclass(frozen=True, kw_only=True)
class DecideOptions(Options):
    """How typed questions are asked."""

    form: Literal["letters", "names", "both", "vllm", "vllm-decisions"] = option(
        "letters",
        "Options lettered, and the letter read; their names scored; both; or as a server of vLLM asks "
        "(/v1/systemone, /v1/decisions), with --chat-template.",
    )
    shots: tuple[int, ...] = option((0,), "Demonstrations in a prompt, of the training table or drawn from --data.")
    demonstrations: Literal["balanced", "cover", "first"] = option(
        "balanced", "Each option in turn, each option at least once, or the first rows."
    )
    seed: int = option(42, "Seed of demonstrations and of drawn orders of options.")

    group_column: str | None = option(
        None, "Column of the table: rows with the same cell, of one user say, share a fold of the TF-IDF baseline."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.shots) != 1 or self.shots[0] < 0:
            raise ConfigError(f"--shots of decide is one number of 0 or more, got {self.shots}.")

    @property
    def forms(self) -> tuple[Form, ...]:
        """Return the forms that the questions are asked in, the main one first."""
        return ("letters", "names") if self.form == "both" else (self.form,)
