"""What a suite is: a benchmark that owns its whole way, from options and datasets to measures and report sections.

The core reaches suites through `SUITES` alone and names none of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import polars as pl

from evaluator.compare.runs import ComparedRun
from evaluator.config import LabelBoundary, RunConfig
from evaluator.datasets.multiple_choice import AnyDataset
from evaluator.errors import LabelError
from evaluator.methods.base import Method, ScoredRequests
from evaluator.report.metric_texts import MetricText
from evaluator.report.section import MeasuredRun, Section
from evaluator.schemas import DEFINITIONS, Definition, PartKind
from evaluator.store.prompt_store import PromptStore

DatasetT = TypeVar("DatasetT")
OptionsT = TypeVar("OptionsT")

Table = tuple[str, pl.DataFrame]
"""A table of the measure stage and the name it is written under."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One test of a suite."""

    kind: PartKind = "classification"
    prompts_differ: bool = False  # between definitions: it is measured under the one that its prompts follow


class Requests(NamedTuple):
    """What a suite asks of one dataset."""

    rows: pl.DataFrame  # schemas.REQUESTS without suite and prompt_id, with prompt, ask and continuations of PROMPTS
    tables: Mapping[str, pl.DataFrame] = {}  # what the rows do not say; kept with the prompts, sorted as given


class Described(NamedTuple):
    """What a reader is told of a run's settings."""

    shots: str
    n_shots: int | None  # where all prompts have as many
    queries: str
    seeds: Mapping[str, int]


class Comparison(NamedTuple):
    """What a suite adds to a comparison of runs."""

    tables: Mapping[str, pl.DataFrame]
    sections: Sequence[Section]


@dataclass(frozen=True, kw_only=True)
class ScoredRun:
    """A run whose prompts are all answered: what measures are made of."""

    config: RunConfig
    store: PromptStore  # requests, prompts and the suites' own tables
    scored: ScoredRequests  # every request with its scores, those of the second round included
    methods: Mapping[str, Method]
    model: str
    options: Mapping[str, object] = field(default_factory=dict)  # of the measure stage: suite -> dataclass

    def of_prompts(self, prompts: pl.DataFrame) -> "ScoredRun":
        """The run with the requests of these prompts alone: `prompt_id`."""
        rows = self.scored.rows.join(prompts.lazy(), on="prompt_id", how="semi", maintain_order="left")
        return replace(self, scored=replace(self.scored, rows=rows))

    def options_of(self, kind: type[OptionsT]) -> OptionsT:
        """Return the measure options of the suite that has this kind of them."""
        return next((options for options in self.options.values() if isinstance(options, kind)), None) or kind()


@dataclass(frozen=True, kw_only=True)
class Suite(Generic[DatasetT]):
    """A benchmark, as data and functions. It never sees an engine or a folder."""

    summary: str
    parts: Mapping[str, Part]  # that its rows can have
    methods: tuple[str, ...] = ("vanilla",)  # where a run names none
    all_methods: tuple[str, ...] = ("vanilla",)  # where a run names all
    own_methods: Mapping[str, Method] = field(default_factory=dict)  # that no other suite has a use for
    definitions: tuple[Definition, ...] = DEFINITIONS  # that it can be measured under
    label_boundary: LabelBoundary = "separate"  # where a run names none

    options: type | None = None  # frozen dataclass; its fields are options of the command line (suites/options.py)
    measure_options: type | None = None  # likewise, of `evaluator measure`
    exclusive: bool = False  # its prompts are no other suite's: it goes alone in a run
    default_datasets: tuple[str, ...] = ()  # where a run names none

    take: Callable[[AnyDataset], DatasetT]
    """Return a dataset as this suite needs it. Raises DatasetError or TemplateError, saying what is missing."""

    requests: Callable[[DatasetT, RunConfig], Requests]

    describe: Callable[[RunConfig], Described]

    check: Callable[[RunConfig], None] = lambda _config: None
    """Raise ConfigError for a configuration that does not fit the suite."""

    files: Callable[[RunConfig], Iterable[Path]] = lambda _config: ()
    """Files besides the datasets whose content decides the rows."""

    queries_every_row: Callable[[RunConfig], bool] = lambda _config: False
    """Whether tables without training rows are asked whole, because no demonstration is taken from them."""

    next_round: Callable[[ScoredRun, int], pl.DataFrame | None] | None = None
    """prompt_id of the requests that round number n asks, given the scores of those before it; None after the last.
    Without this function everything is asked at once."""

    explain: Callable[[LabelError, PromptStore], LabelError] = lambda error, _store: error
    """Return an error about labels with where they come from."""

    measure: Callable[[ScoredRun], Iterator[Table]]
    """Tables of the run. Suites that share a function have it called once for all of them."""

    sections: Callable[[MeasuredRun], Iterable[Section]]
    """Sections of the run's page. Suites that share a function have it called once for all of them."""

    summary_lines: Callable[[MeasuredRun], Iterable[str]] = lambda _run: ()
    """What a terminal shows at the end of a run, after the accuracies. Shared functions are called once."""

    metric_texts: Mapping[str, MetricText] = field(default_factory=dict)  # titles of metrics that it alone has

    is_comparable: bool = True  # it measures metrics, which runs of several models are compared by

    comparison: Callable[[Sequence[ComparedRun]], Comparison | None] = lambda _runs: None
    """What it adds to a comparison of runs that are all of this suite."""
