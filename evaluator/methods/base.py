"""What an inference method is: what it asks a model besides a suite, and how answers become probabilities."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.multiple_choice import AnyDataset
from evaluator.prompts.rows import NOT_VARIED
from evaluator.schemas import HIDDEN_STATES, LABEL_DISTANCES, REQUESTS, TOKENS, Definition, PartKind

if TYPE_CHECKING:
    import torch


class Asked(NamedTuple):
    """What a method writes its own requests from: one dataset of one suite."""

    dataset: AnyDataset
    rows: pl.DataFrame  # of one part that the method answers, as the suite wrote them
    config: RunConfig

    @property
    def classification(self) -> ClassificationDataset:
        """The dataset, of a suite of classification."""
        assert isinstance(self.dataset, ClassificationDataset), "parts of classification have such datasets"
        return self.dataset


NO_QUERY: dict[str, pl.Expr] = {
    "query_id": pl.lit(None, pl.Int64),
    **NOT_VARIED,
    "n_shots": pl.lit(0, pl.Int64),
    "demonstration_ids": pl.lit([], pl.List(pl.Int64)),
    "gold": pl.lit(None, pl.Int64),
}
"""Columns of a row that answers no query and shows no demonstrations."""


class MeasuredPart(NamedTuple):
    """A part that a suite wrote, as this run measures it."""

    kind: PartKind
    definitions: Sequence[Definition]


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a model answered, over all suites and datasets of a run."""

    scored: pl.LazyFrame  # schemas.REQUESTS joined with schemas.SCORES
    states: pl.LazyFrame = field(  # joined likewise
        default_factory=lambda: pl.LazyFrame(schema={**REQUESTS, **HIDDEN_STATES})
    )
    distances: pl.LazyFrame = field(default_factory=lambda: pl.LazyFrame(schema=LABEL_DISTANCES))
    tokens: pl.LazyFrame = field(default_factory=lambda: pl.LazyFrame(schema=TOKENS))  # only where distances are taken
    parts: Mapping[str, "MeasuredPart"]  # those that suites wrote
    answered_part: str = ""  # the one that a method is to answer

    @property
    def queries(self) -> pl.LazyFrame:
        """Scored requests of the part that a method is to answer."""
        return self.scored.filter(part=self.answered_part)

    def part(self, name: str) -> pl.LazyFrame:
        """Return scored requests of one part, of a suite or a method."""
        return self.scored.filter(part=name)

    def answering(self, part: str) -> "Answers":
        """Return what answers one part: all but the rows that methods added for other parts."""
        others = [name for name, about in self.parts.items() if name != part and about.kind != "null"]
        is_needed = pl.col("for_part").is_null() | ~pl.col("for_part").is_in(others)
        return replace(
            self, scored=self.scored.filter(is_needed), states=self.states.filter(is_needed), answered_part=part
        )

    def of_dataset(self, name: str) -> "Answers":
        """Return what was answered about one dataset."""
        return replace(self, scored=self.scored.filter(dataset=name), states=self.states.filter(dataset=name))

    def states_of(self, part: str) -> pl.LazyFrame:
        """Return requests of one part with their hidden states."""
        return self.states.filter(part=part)


@dataclass(frozen=True, kw_only=True)
class Method:
    """An inference method, as data.

    Rows that a method asks for have the columns of Suite.requests and a `part` of their own. Equal prompts are computed
    once, whoever asks.
    """

    summary: str
    label_probs: Callable[[Answers, Definition], pl.LazyFrame]
    """Requests of the answered part with the column `label_probs`: List[f64] in label-space order, summing to one."""

    requests: Callable[[Asked], list[pl.DataFrame]] | None = None
    """What it asks before anything is answered."""

    follow_up: Callable[[Asked, Answers], pl.DataFrame] | None = None
    """What it asks once that is answered."""

    distances: "Callable[[Answers, torch.Tensor], pl.DataFrame] | None" = None
    """schemas.LABEL_DISTANCES from hidden states and the LM head [vocabulary, hidden size]."""

    part_kinds: tuple[PartKind, ...] = ("classification", "choice", "diagnostic")  # that it answers
    needs_states: bool = False  # hidden states among what it asks
    definitions: tuple[Definition, ...] = ("paper", "released")  # that it has probabilities for
    prompts_differ: bool = False  # between definitions, so that a run has only the definition its prompts follow
    max_label_tokens: int | None = None  # the longest label it can score; None: any
    labelled_examples: Callable[[int], int] = lambda _n_shots: 0  # used besides a prompt's own demonstrations


def softmax(scores: pl.Expr) -> pl.Expr:
    """Normalise each list of log-likelihoods (nats) into probabilities; shape is kept."""
    scaled = (pl.element() - pl.element().max()).exp()
    return scores.list.eval(scaled / scaled.sum())
