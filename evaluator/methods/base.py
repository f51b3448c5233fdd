"""What an inference method is: what it asks a model besides a suite, and how answers become probabilities."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from evaluator.config import StoreConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.datasets.multiple_choice import AnyDataset
from evaluator.prompts.rows import NOT_VARIED
from evaluator.schemas import HIDDEN_STATES, LABEL_DISTANCES, REQUESTS, TOKENS, Definition

if TYPE_CHECKING:
    import torch


class Asked(NamedTuple):
    """What a method writes its own requests from: one dataset of one suite."""

    dataset: AnyDataset
    rows: pl.DataFrame  # of the parts that the method answers, as Suite.requests returns them
    config: StoreConfig

    @property
    def classification(self) -> ClassificationDataset:
        """Return the dataset, of a suite other than prompt-search."""
        assert isinstance(self.dataset, ClassificationDataset), "prompt-search alone asks of multiple choice"
        return self.dataset


NO_QUERY: dict[str, pl.Expr] = {
    "query_id": pl.lit(None, pl.Int64),
    **NOT_VARIED,
    "n_shots": pl.lit(0, pl.Int64),
    "demonstration_ids": pl.lit([], pl.List(pl.Int64)),
    "gold": pl.lit(None, pl.Int64),
}
"""Columns of a row that answers no query and shows no demonstrations."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What a model answered, over all suites and datasets of a run."""

    scored: pl.LazyFrame  # schemas.REQUESTS joined with schemas.SCORES
    states: pl.LazyFrame = field(  # joined likewise
        default_factory=lambda: pl.LazyFrame(schema={**REQUESTS, **HIDDEN_STATES})
    )
    distances: pl.LazyFrame = field(default_factory=lambda: pl.LazyFrame(schema=LABEL_DISTANCES))
    tokens: pl.LazyFrame = field(default_factory=lambda: pl.LazyFrame(schema=TOKENS))  # only where distances are taken
    asked_parts: Mapping[str, Sequence[Definition]]  # those that suites wrote, and what each can be measured under

    @property
    def asked(self) -> pl.LazyFrame:
        """Return scored requests of suites."""
        return self.scored.filter(pl.col("part").is_in(list(self.asked_parts)))

    def part(self, name: str) -> pl.LazyFrame:
        """Return scored requests of one part, of a suite or a method."""
        return self.scored.filter(part=name)

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
    """Answered requests with the column `label_probs`: List[f64] in label-space order, summing to one."""

    requests: Callable[[Asked], list[pl.DataFrame]] | None = None
    """What it asks before anything is answered."""

    follow_up: Callable[[Asked, Answers], pl.DataFrame] | None = None
    """What it asks once that is answered."""

    distances: "Callable[[Answers, torch.Tensor], pl.DataFrame] | None" = None
    """schemas.LABEL_DISTANCES from hidden states and the LM head [vocabulary, hidden size]."""

    parts: tuple[str, ...] | None = None  # the parts of a suite that it answers; None: all
    definitions: tuple[Definition, ...] = ("paper", "released")  # that it has probabilities for
    prompts_differ: bool = False  # between definitions, so that a run has only the definition its prompts follow
    max_label_tokens: int | None = None  # the longest label it can score; None: any
    labelled_examples: Callable[[int], int] = lambda _n_shots: 0  # used besides a prompt's own demonstrations


def softmax(scores: pl.Expr) -> pl.Expr:
    """Normalise each list of log-likelihoods (nats) into probabilities; shape is kept."""
    scaled = (pl.element() - pl.element().max()).exp()
    return scores.list.eval(scaled / scaled.sum())
