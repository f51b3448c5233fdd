"""Define the records of a suite: `Suite` builds the requests of a benchmark, its `Family` measures and reports a run.

The rest of the package reaches suites only through `evaluator.suites.SUITES` and names none of them.

`classification_tables` and `classification_page` measure and report the parts that classify; all classification suites
use them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

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

Table = tuple[str, pl.DataFrame]
"""The file name (without ending) and the rows of a table that the measure stage writes."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A named group of requests of a suite; every metric is measured within one part."""

    kind: PartKind = "classification"
    shared_sets: bool = False  # demonstration sets are shared by all queries, not drawn for each query
    prompts_differ: bool = False  # prompts differ between definitions, so that a run measures only one definition


class Requests(NamedTuple):
    """The requests of a suite for one dataset, and tables that go with them."""

    # Columns of schemas.REQUESTS and schemas.PROMPTS, without suite, for_part and prompt_id.
    rows: Iterable[pl.DataFrame]
    tables: Mapping[str, pl.DataFrame] = {}  # name -> side table, which is written to the store unchanged


class Described(NamedTuple):
    """The settings of a run in the words of its report."""

    shots: Sequence[int | str]  # numbers of demonstrations, or a description of them
    every_query: str = "all"  # description of the queries in a run without --queries
    seeds: Mapping[str, int] = {}  # what is drawn at random -> seed

    @property
    def n_shots(self) -> int | None:
        """Return the number of demonstrations of all prompts; None if it differs between prompts or is not known."""
        only = self.shots[0] if len(self.shots) == 1 else None
        return only if isinstance(only, int) else None


class Comparison(NamedTuple):
    """The tables and sections that a suite adds to a comparison of runs."""

    tables: Mapping[str, pl.DataFrame]
    sections: Sequence[Section]


@dataclass(frozen=True, kw_only=True)
class ScoredRun:
    """A run with the scores of its requests: the input of the measure stage."""

    config: RunConfig
    store: PromptStore  # requests, prompts and side tables of the suites
    scored: ScoredRequests  # all requests with their scores, including requests of Method.follow_up
    methods: Mapping[str, Method]  # name -> method, in the order of the run
    model: str  # name of the model
    options: Mapping[str, Any] = field(default_factory=dict)  # suite -> its Suite.measure_options, if any are given

    keep: Callable[[str, pl.LazyFrame], pl.LazyFrame] = lambda _name, rows: rows.collect().lazy()
    """Write a large table, given its name and its rows, and return a scan of the written file. (The default keeps the
    rows in memory.)"""


@dataclass(frozen=True, kw_only=True, eq=False)
class Family:
    """The functions that measure, report and compare runs of one or more suites.

    Suites that share a family are measured and reported together: the functions are called once for all of them. Two
    families are equal only if they are the same object.
    """

    # Measure stage.
    measure: Callable[[ScoredRun], Iterator[Table]]
    """Yield the tables of a run."""

    rounds: Callable[[ScoredRun], Iterator[pl.DataFrame]] | None = None
    """Yield, for each round of scoring, a frame with the prompt_id of the requests to score. When a round is requested,
    the scores of all earlier rounds are available. None: one round with all requests."""

    # Report stage.
    sections: Callable[[MeasuredRun], Iterable[Section]]
    """Yield the sections of the page of a run."""

    query_numbers: Callable[[MeasuredRun], QueryNumbers] = lambda _run: QueryNumbers()
    """Return further numbers for the table of single queries on the page. Only called for the first family of a run, so
    only exclusive suites define it (`Suite.is_exclusive`)."""

    summary_lines: Callable[[MeasuredRun], Iterable[str]] = lambda _run: ()
    """Yield lines for the terminal at the end of a run; they are printed after the accuracies."""

    metric_texts: Mapping[str, MetricText] = field(default_factory=dict)  # titles of the metrics of this family alone

    published: Callable[[], pl.DataFrame] = pl.DataFrame
    """Return published mean accuracies, which a board shows in grey, with the columns suite, model, family,
    n_parameters, method and value."""

    comparison: Callable[[Sequence[ComparedRun]], Comparison | None] = lambda _runs: None
    """Return the tables and sections for a comparison of runs that all have suites of this family; None if there are
    none."""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A benchmark, as data and functions that have no access to the engine and to the folder of the run."""

    summary: str  # one sentence for the list of suites

    # Build stage.
    parts: Mapping[str, Part]  # name -> part, for all parts of the requests

    requests: Callable[[Any, RunConfig], Requests]
    """Build the requests for a dataset of the type that `take` returns."""

    take: Callable[[AnyDataset, RunConfig], Any] = lambda dataset, _config: as_classification(dataset)
    """Convert a dataset to the type that `requests` needs. Raises DatasetError or TemplateError if it cannot."""

    default_datasets: tuple[str, ...] = ()  # datasets of a run without --datasets
    label_boundary: LabelBoundary = "separate"  # label boundary of a run without --label-boundary
    options: type | None = None  # frozen dataclass whose fields are options of the command line (config.py)
    joins_others: bool = False  # whether a run may have further suites, although this suite has options

    check: Callable[[RunConfig], None] = lambda _config: None
    """Raise ConfigError for a configuration that does not fit the suite, before prompts are built."""

    files: Callable[[RunConfig], Iterable[Path | None]] = lambda _config: ()
    """Return the files, other than datasets, that determine the requests; entries that are None are ignored."""

    queries_every_row: Callable[[RunConfig], bool] = lambda _config: False
    """Return whether every row of a table without training rows is loaded as a query. Otherwise the loader reserves
    some of its rows for demonstrations."""

    explain: Callable[[LabelError, PromptStore], LabelError] = lambda error, _store: error
    """Return the error with the source of its labels (file and row) in the message, if the suite knows the source."""

    # Measure and report stages.
    family: Family
    methods: tuple[str, ...] = ("vanilla",)  # methods of `--methods all`; the first is the default method of a run
    own_methods: Mapping[str, Method] = field(default_factory=dict)  # methods for this suite alone, by name
    definitions: tuple[Definition, ...] = DEFINITIONS  # definitions under which a run can be measured
    measure_options: type | None = None  # frozen dataclass of options of `evaluator measure`, like `options`

    describe: Callable[[RunConfig], Described] = lambda config: Described((config.n_shots,))
    """Return the settings of a run for its report."""

    @property
    def is_exclusive(self) -> bool:
        """Return whether the suite must be the only suite of a run, because its options apply to no other suite."""
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
    """Write the table of predictions, and yield the tables that all classification suites have.

    Args:
        run: a run whose suites have parts of the kind "classification".
        diagnostics: measures of further parts.
        shared: name of a factor that was drawn once for all queries, such as "demonstration sets". Intervals over
            queries do not cover it.
        further: functions that collect the numbers of further tables. Each is called with every group of predictions,
            before the first table is yielded.
        inputs: dataset -> table with its inputs, where datasets are questions about the rows of a table. Datasets with
            the same table are not independent, which makes the intervals of means over datasets wider.
        changed: function that adds predictions, such as those of the definition `floored`, which no method computes.
    """
    predictions = run.keep("predictions", changed(predict(run.scored, run.methods, run.config.definitions)))
    parts = [name for name, part in run.scored.parts.items() if part.kind == "classification"]
    covered: list[dict[str, pl.DataFrame]] = []

    def read(group: PredictionGroup) -> None:
        for reader in further:
            reader(group)
        if group.definition == "paper" and group.key["part"] in parts:
            covered.append(coverage_tables(group))

    # Only diagnostics use answers to queries without a gold label: they compare answers with each other.
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
    """Return the sections of the classification parts, followed by `further` ones; the first has the notes of the page.

    Args:
        without_parts: parts without a section here, because `further` sections report them.
        notes: notes of the suite; they follow the notes of all classification runs.
        texts: titles of metrics.
    """
    of_prompts = prompt_definition_notes(run.record, run.table("metrics"))
    missing = missing_class_notes(run.table("missing_classes"))
    sections = [*classification_sections(run, texts=texts, without_parts=without_parts), *further]
    return with_head(sections, run, [*of_prompts, *missing, *notes])
