"""Define what a suite is: a benchmark with its options and requests, and the family that measures and shows them.

The rest of the package reaches suites only through `SUITES` and names none of them.

Measure and report runs of classification suites.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import polars as pl

from evaluator.compare.differences import method_differences
from evaluator.compare.runs import ComparedRun
from evaluator.config import DEFINITIONS, Definition, LabelBoundary, RunConfig
from evaluator.datasets.base import AnyDataset
from evaluator.datasets.conversions import as_classification
from evaluator.errors import LabelError
from evaluator.methods.base import Method, ScoredRequests, predict
from evaluator.methods.hidden_states import missing_classes
from evaluator.metrics import table as metric_tables
from evaluator.metrics.groups import Diagnostic, PredictionGroup, label_spaces_table, measured_groups
from evaluator.metrics.thresholds import coverage_tables, joined_tables
from evaluator.record import PartKind
from evaluator.report.classification import classification_sections, with_head
from evaluator.report.notes import missing_class_notes, prompt_definition_notes
from evaluator.report.query_rows import QueryNumbers
from evaluator.report.section import MeasuredRun, Section
from evaluator.report.table import CORE_TITLES, MetricText, MetricTexts
from evaluator.schemas import METRICS_KEY
from evaluator.store import PromptStore

OptionsT = TypeVar("OptionsT")

Table = tuple[str, pl.DataFrame]
"""The file name and the rows of a table that the measure stage writes."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One test of a suite."""

    kind: PartKind = "classification"
    shared_sets: bool = False  # all queries have the same demonstration sets, so that queries and sets are crossed
    prompts_differ: bool = False  # definitions have different prompts, so that a run measures one of them


class Requests(NamedTuple):
    """The requests of a suite for one dataset, and its side tables."""

    # REQUESTS and PROMPTS of schemas, both without prompt_id, and without the column suite.
    rows: Iterable[pl.DataFrame]
    tables: Mapping[str, pl.DataFrame] = {}  # side tables by name, written to the store with their rows as given


class Described(NamedTuple):
    """The settings of a run, as its report states them."""

    shots: Sequence[int | str]  # numbers of demonstrations, or words for them
    every_query: str = "all"  # words for the queries of a run without --queries
    seeds: Mapping[str, int] = {}  # by what they draw

    @property
    def n_shots(self) -> int | None:
        """Return the number of demonstrations; None if prompts have different numbers, or none is known."""
        only = self.shots[0] if len(self.shots) == 1 else None
        return only if isinstance(only, int) else None


class Comparison(NamedTuple):
    """The tables and sections that a suite adds to a comparison of runs."""

    tables: Mapping[str, pl.DataFrame]
    sections: Sequence[Section]


def declared(rows: pl.DataFrame, schema: pl.Schema, key: Sequence[str]) -> pl.DataFrame:
    """Return the columns of a schema with their types, sorted by the key of its table."""
    return rows.select(schema.names()).cast(schema).sort(key)


@dataclass(frozen=True, kw_only=True)
class ScoredRun:
    """A run with the scores of its requests: the input of the measure stage."""

    config: RunConfig
    store: PromptStore  # requests, prompts and the suites' own tables
    scored: ScoredRequests  # every request with its scores, also requests of Method.follow_up
    methods: Mapping[str, Method]
    model: str
    options: Mapping[str, object] = field(default_factory=dict)  # measure options: suite -> dataclass

    keep: Callable[[str, pl.LazyFrame], pl.LazyFrame] = lambda _name, rows: rows.collect().lazy()
    """Write a large table of the measure stage from its name and rows, and return a scan of it."""

    def options_of(self, kind: type[OptionsT]) -> OptionsT:
        """Return the measure options of this type, or its defaults if no suite of the run has them."""
        return next((options for options in self.options.values() if isinstance(options, kind)), None) or kind()


@dataclass(frozen=True, kw_only=True, eq=False)
class Family:
    """How scored requests are measured, shown and compared. Its functions are called once for all suites that share it.

    Two families are equal only if they are the same object.
    """

    # What is measured.
    measure: Callable[[ScoredRun], Iterator[Table]]
    """Yield the tables of a run."""

    rounds: Callable[[ScoredRun], Iterator[pl.DataFrame]] | None = None
    """Yield prompt_id of the requests of each round. The run has all scores of the rounds before the yielded one.
    Without this function there is one round with all requests."""

    # What is shown.
    sections: Callable[[MeasuredRun], Iterable[Section]]
    """Yield the sections of a run's page."""

    query_numbers: Callable[[MeasuredRun], QueryNumbers] = lambda _run: QueryNumbers()
    """Return numbers of single queries for the page, of a family whose suites have a run to themselves."""

    summary_lines: Callable[[MeasuredRun], Iterable[str]] = lambda _run: ()
    """Yield lines that a terminal shows at the end of a run, after the accuracies."""

    metric_texts: Mapping[str, MetricText] = field(default_factory=dict)  # titles of metrics that only it has

    published: Callable[[], pl.DataFrame] = pl.DataFrame
    """Return published mean accuracies, which a board shows in grey: suite, model, n_parameters, method and value."""

    comparison: Callable[[Sequence[ComparedRun]], Comparison | None] = lambda _runs: None
    """Build the tables and sections for a comparison of runs that all have suites of this family; None for none."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run must know of a suite before its prompts are built, and when they do not fit the model."""

    check: Callable[[RunConfig], None] = lambda _config: None
    """Raise ConfigError for a configuration that does not fit the suite."""

    files: Callable[[RunConfig], Iterable[Path | None]] = lambda _config: ()
    """Return the files, other than datasets, on whose content the requests depend; None for one that is not used."""

    queries_every_row: Callable[[RunConfig], bool] = lambda _config: False
    """Return whether all rows of a table without training rows are queries, because none is a demonstration."""

    explain: Callable[[LabelError, PromptStore], LabelError] = lambda error, _store: error
    """Add to an error about labels where they come from."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A benchmark, as data and functions. It never sees an engine or a folder."""

    summary: str

    # What is asked.
    parts: Mapping[str, Part]  # every part that its requests can have

    requests: Callable[[Any, RunConfig], Requests]
    """Build the requests for a dataset of the type that `take` returns."""

    take: Callable[[AnyDataset, RunConfig], Any] = lambda dataset, _config: as_classification(dataset)
    """Convert a dataset to the type that a run of the suite needs. Raises DatasetError or TemplateError for others."""

    default_datasets: tuple[str, ...] = ()  # default of a run
    label_boundary: LabelBoundary = "separate"  # default of a run
    options: type | None = None  # frozen dataclass whose fields are options of the command line (options.py)
    joins_others: bool = False  # a run may have other suites as well, although this one has options
    plan: Plan = Plan()

    # What is measured and shown.
    family: Family
    methods: tuple[str, ...] = ("vanilla",)  # methods that `--methods all` names; the first is a run's default
    own_methods: Mapping[str, Method] = field(default_factory=dict)  # methods that only this suite can use
    definitions: tuple[Definition, ...] = DEFINITIONS  # definitions under which it can be measured
    measure_options: type | None = None  # dataclass of options, as `options`, of `evaluator measure`

    describe: Callable[[RunConfig], Described] = lambda config: Described((config.n_shots,))
    """Return the settings of a run for its report."""

    @property
    def is_exclusive(self) -> bool:
        """Return whether a run has no other suite: one with options has prompts that others do not."""
        return self.options is not None and not self.joins_others


def classification_tables(
    run: ScoredRun,
    diagnostics: Iterable[Diagnostic] = (),
    *,
    shared: str = "",
    further: Sequence[Callable[[PredictionGroup], None]] = (),
    inputs: Mapping[str, str] = {},
    changed: Callable[[pl.LazyFrame], pl.LazyFrame] = lambda predictions: predictions,
) -> Iterator[Table]:
    """Write the predictions of a run, and yield the tables of metrics and the tables derived from metrics.

    Args:
        run: with parts of the kind classification.
        diagnostics: what to measure on other parts.
        shared: what was drawn once for all queries, so that intervals over queries do not cover it.
        further: each reads every group of predictions, before the first table, for further tables of a suite.
        inputs: dataset -> table that it is about; datasets about one table are not independent.
        changed: adds predictions, as under definitions that methods do not have.
    """
    predictions = run.keep("predictions", changed(predict(run.scored, run.methods, run.config.definitions)))
    parts = [name for name, part in run.scored.parts.items() if part.kind == "classification"]
    covered: list[dict[str, pl.DataFrame]] = []

    def read(group: PredictionGroup) -> None:
        for reader in further:
            reader(group)
        if group.definition == "paper" and group.key["part"] in parts:
            covered.append(coverage_tables(group))

    # Answers to queries without a true option are compared with each other alone, which diagnostics do.
    has_gold = pl.col("gold").is_not_null() | ~pl.col("part").is_in(parts)
    groups = measured_groups(predictions.filter(has_gold), parts, diagnostics, read)
    requested = pl.col("definition").is_in(run.config.definitions)
    independent = len({*inputs.values()}) == len(inputs)
    draws = {name: ", ".join(filter(None, (shared, method.drawn_once))) for name, method in run.methods.items()}
    mass = metric_tables.label_mass_metrics(run.scored, run.config.definitions, independent=independent)
    of_predictions = metric_tables.metrics_table(groups, draws, independent=independent).filter(requested)
    measured = pl.concat([of_predictions, mass]).sort(METRICS_KEY)
    yield "metrics", measured
    yield "group_metrics", metric_tables.group_metrics_table(groups).filter(requested)
    yield "method_differences", method_differences(groups, measured, run.model, inputs)
    yield "missing_classes", missing_classes(run.scored, run.methods)
    yield "reliability", metric_tables.reliability_table(groups)
    yield "confusion", metric_tables.confusion_table(groups)
    yield from joined_tables(covered)
    yield "label_spaces", label_spaces_table(predictions)


def classification_page(
    run: MeasuredRun,
    without_parts: Collection[str] = (),
    further: Iterable[Section] = (),
    *,
    notes: Iterable[str] = (),
    texts: MetricTexts = CORE_TITLES,
) -> list[Section]:
    """Return the sections of the parts of classification, then further ones, with the notes of the page on the first.

    Args:
        without_parts: parts that further sections show.
        notes: after those of every run.
        texts: titles of metrics.
    """
    of_prompts = prompt_definition_notes(run.record, run.table("metrics"))
    missing = missing_class_notes(run.table("missing_classes"))
    sections = [*classification_sections(run, texts=texts, without_parts=without_parts), *further]
    return with_head(sections, run, [*of_prompts, *missing, *notes])
