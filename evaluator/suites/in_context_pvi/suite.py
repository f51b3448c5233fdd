"""Define the suite pvi: how many bits each input gives a model about its label (Lu et al. 2023).

The published datasets have digits for labels, one token each. The score of a label of several tokens is the sum over
its tokens, as in every method that does not say otherwise.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from evaluator.compare.runs import ComparedRun
from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.report.query_rows import QueryNumbers
from evaluator.report.section import MeasuredRun, Section
from evaluator.suites.base import (
    Comparison,
    Described,
    Family,
    Part,
    Plan,
    Requests,
    ScoredRun,
    Suite,
    Table,
    described,
)
from evaluator.suites.classification import classification_tables
from evaluator.suites.in_context_pvi.chosen_demonstrations import CHOSEN, CHOSEN_METHODS
from evaluator.suites.in_context_pvi.demonstration_sets import resolved_options
from evaluator.suites.in_context_pvi.measures import pvi_measures
from evaluator.suites.in_context_pvi.options import PviMeasureOptions, PviOptions
from evaluator.suites.in_context_pvi.prompts import INPUT, NULL, pvi_prompts
from evaluator.suites.in_context_pvi.query_schema import PVI_CANDIDATES, PVI_QUERIES
from evaluator.suites.in_context_pvi.ranked_sets import pvi_candidates
from evaluator.suites.in_context_pvi.released_scores import PVI_RELEASED
from evaluator.suites.in_context_pvi.terminal import v_information_lines


def requests(dataset: ClassificationDataset, config: RunConfig) -> Requests:
    """Build the request rows of a dataset and its side tables of queries and, where a method needs it, candidates."""
    options = resolved_options(config)
    prompts = pvi_prompts(dataset, options, config.n_queries)
    tables = {"pvi_queries": prompts.queries}
    if {*CHOSEN} & {*config.methods}:
        tables["pvi_candidates"] = pvi_candidates(dataset, options)
    return Requests(prompts.rows, tables)


def describe(config: RunConfig) -> Described:
    """Return the numbers of shots, the queries and the seed of a run."""
    options = config.options_of(PviOptions)
    shots = options.shots or ["number of labels, and twice as many"]
    return described(config, shots=shots, seeds={"demonstrations": options.seed})


def files(config: RunConfig) -> Iterable[Path]:
    """Return the file of published demonstrations if a run uses it."""
    prompts = resolved_options(config).prompts
    return [prompts] if prompts else []


def queries_every_row(config: RunConfig) -> bool:
    """Return whether all rows of a single table are queries: published demonstrations need no training rows."""
    return config.options_of(PviOptions).source == "published"


def measure(run: ScoredRun) -> Iterator[Table]:
    """Yield the tables that all classification suites have, then those of PVI, by name."""
    yield from classification_tables(run, shared="demonstration sets")
    queries, candidates = (
        run.store.table(name, schema).collect()
        for name, schema in (("pvi_queries", PVI_QUERIES), ("pvi_candidates", PVI_CANDIDATES))
    )
    options = run.config.options_of(PviOptions)
    annotations = run.options_of(PviMeasureOptions).annotations
    yield from pvi_measures(
        run.scored, queries, annotations, source=options.source, seed=options.seed, candidates=candidates
    ).items()


def sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield the sections of the report."""
    from evaluator.suites.in_context_pvi.report.sections import (
        pvi_sections,  # here, because only a report needs figures
    )

    yield from pvi_sections(run)


def query_numbers(run: MeasuredRun) -> QueryNumbers:
    """Return the PVI of each query for the page's table of queries."""
    from evaluator.suites.in_context_pvi.report.queries import pvi_numbers

    return pvi_numbers(run)


def comparison(runs: Sequence[ComparedRun]) -> Comparison:
    """Compare the PVIs of several models: tables, and the section of the comparison page."""
    from evaluator.suites.in_context_pvi.compare import pvi_agreement
    from evaluator.suites.in_context_pvi.report.comparison import pvi_comparison_sections

    agreement = pvi_agreement(runs)
    tables = {"pvi_models": agreement.models, "pvi_consistency": agreement.consistency}
    return Comparison(tables, list(pvi_comparison_sections(agreement, runs)))


IN_CONTEXT_PVI = Suite(
    summary="How hard each query is for a model: the bits that its input gives about its label.",
    parts={INPUT: Part(shared_sets=True), NULL: Part(kind="null")},
    methods=("vanilla", "pvi_released", *CHOSEN),
    own_methods={"pvi_released": PVI_RELEASED, **CHOSEN_METHODS},
    definitions=("paper", "released"),
    label_boundary="merged",
    options=PviOptions,
    measure_options=PviMeasureOptions,
    requests=requests,
    describe=describe,
    plan=Plan(files=files, queries_every_row=queries_every_row),
    family=Family(
        measure=measure,
        sections=sections,
        query_numbers=query_numbers,
        summary_lines=v_information_lines,
        comparison=comparison,
    ),
)
