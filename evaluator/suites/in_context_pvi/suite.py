"""Define the suite pvi: how many bits each input gives a model about its label (Lu et al. 2023).

The published datasets have digits for labels, one token each. The score of a label of several tokens is the sum over
its tokens, as in every method that does not say otherwise.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import polars as pl

from evaluator.compare.runs import ComparedRun
from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.methods.base import ScoredRequests
from evaluator.metrics.total_error import crossed_answers, crossed_headline, total_error_tables
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
    classification_tables,
    described,
)
from evaluator.suites.in_context_pvi.correlations import (
    annotators_table,
    consistency_table,
    one_way_table,
    pairs_table,
    pvi_agreement,
    read_annotations,
    repeated_measures_table,
)
from evaluator.suites.in_context_pvi.demonstration_choice import (
    CHOSEN_METHODS,
    chosen_table,
    demonstrations_table,
    pvi_candidates,
    training_counts,
    training_pvi,
    tries_by_source,
)
from evaluator.suites.in_context_pvi.prompts import (
    INPUT,
    NULL,
    PviMeasureOptions,
    PviOptions,
    PviSource,
    pvi_prompts,
    resolved_options,
)
from evaluator.suites.in_context_pvi.pvi import PVI_RELEASED, pvi_table
from evaluator.suites.in_context_pvi.schema import CHOSEN, PVI_ANNOTATORS, PVI_CANDIDATES, PVI_QUERIES
from evaluator.suites.in_context_pvi.summary import (
    deciles_table,
    densities_table,
    hardest_table,
    judged_queries,
    means_table,
    mislabelled_table,
    runs_of_queries,
    summary_table,
)


def requests(dataset: ClassificationDataset, config: RunConfig) -> Requests:
    """Build the request rows of a dataset and its side tables of queries and, where a method needs it, candidates."""
    options = resolved_options(config)
    built = pvi_prompts(dataset, options, config.n_queries)
    if not {*CHOSEN} & {*config.methods}:
        return built
    return Requests(built.rows, {**built.tables, "pvi_candidates": pvi_candidates(dataset, options)})


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
    """Yield the tables of all classification suites, then the tables of PVI."""
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


def pvi_measures(
    scored: ScoredRequests,
    queries: pl.DataFrame,
    annotations: Sequence[Path] = (),
    *,
    source: PviSource = "random",
    seed: int = 0,
    candidates: pl.DataFrame | None = None,
) -> dict[str, pl.DataFrame]:
    """Compute the tables of a run of the suite pvi, by file name; schema.py has the columns.

    Args:
        scored: of the suite pvi.
        queries: schema.PVI_QUERIES.
        annotations: files as in correlations.py; without any, `pvi_annotators` has no rows.
        source: where the suite's demonstration sets come from.
        seed: of the predictions that are drawn.
        candidates: schema.PVI_CANDIDATES, where methods chose demonstrations by PVI.

    Raises:
        MetricError: label spaces or gold labels that have no PVI.
        DatasetError: annotations that do not fit.
    """
    candidates = PVI_CANDIDATES.to_frame() if candidates is None else candidates
    annotated = read_annotations(annotations) if annotations else None  # first, because it can raise
    pvi = pvi_table(scored, source, seed=seed)
    # Only runs with the suite's sets: other runs have demonstrations that were chosen for their PVI.
    over_runs = runs_of_queries(pvi.filter(demonstrations=source))
    judged, pairs = judged_queries(pvi), pairs_table(pvi)
    summary = summary_table(pvi, judged, seed=seed)
    measured = training_pvi(scored)
    labels = scored.rows.filter(part=INPUT).select("dataset", pl.col("label_names").list.len()).unique().collect()
    n_labels = dict(labels.iter_rows())
    return {
        "pvi": pvi,
        "pvi_summary": summary,
        "pvi_means": means_table(summary),
        "pvi_deciles": deciles_table(judged),
        "pvi_densities": densities_table(judged),
        "pvi_pairs": pairs,
        "pvi_consistency": consistency_table(pairs),
        "pvi_one_way": one_way_table(summary),
        "pvi_repeated_measures": repeated_measures_table(pvi),
        "pvi_hardest": hardest_table(over_runs, queries),
        "pvi_mislabelled": mislabelled_table(over_runs, queries),
        "pvi_annotators": PVI_ANNOTATORS.to_frame() if annotated is None else annotators_table(pvi, queries, annotated),
        **_total_error(pvi, source),
        "pvi_demonstrations": demonstrations_table(
            pvi,
            n_labels,
            training_counts(measured, candidates),
            tries_by_source(scored, source),
        ),
        "pvi_chosen": chosen_table(scored, measured, candidates),
    }


def _total_error(pvi: pl.DataFrame, source: PviSource) -> dict[str, pl.DataFrame]:
    """Return variance_components, total_error and design_study, with the columns of schemas.

    V-information and accuracy are over all demonstration sets of a number of shots; queries and sets are both samples.
    Sets chosen by PVI follow from a rule and are no sample of sets.

    Args:
        pvi: schema.PVI.
        source: of the suite's own sets.
    """
    cases = list(
        crossed_answers(
            pvi.filter(demonstrations=source),
            by=["dataset", "definition", "n_shots"],
            level="demonstration_set",
            values={"accuracy": "correct", "v_information": "pvi_bits"},
            names={
                "query": "query",
                "level": "demonstration set",
                "interaction": "query x demonstration set and residual",
            },
            shared={"suite": "pvi", "part": INPUT, "method": "vanilla"},
        )
    )
    limits = {"accuracy": (0.0, 1.0), "v_information": (-math.inf, math.inf)}
    over = "queries and demonstration sets"
    return total_error_tables(cases, [crossed_headline(case, limits[str(case.key["metric"])], over) for case in cases])


def sections(run: MeasuredRun) -> Iterator[Section]:
    """Yield the sections of the report."""
    # Here, because only a report needs figures.
    from evaluator.suites.in_context_pvi.report import pvi_sections

    yield from pvi_sections(run)


def query_numbers(run: MeasuredRun) -> QueryNumbers:
    """Return the PVI of each query for the page's table of queries."""
    from evaluator.suites.in_context_pvi.report import pvi_numbers

    return pvi_numbers(run)


def comparison(runs: Sequence[ComparedRun]) -> Comparison:
    """Compare the PVIs of several models: tables, and the section of the comparison page."""
    from evaluator.suites.in_context_pvi.report import pvi_comparison_sections

    agreement = pvi_agreement(runs)
    tables = {"pvi_models": agreement.models, "pvi_consistency": agreement.consistency}
    return Comparison(tables, list(pvi_comparison_sections(agreement, runs)))


def v_information_lines(run: MeasuredRun) -> Iterator[str]:
    """Yield a line for each dataset, number of shots and source of demonstrations: means over demonstration sets.

    Args:
        run: has the table pvi_summary; the lines are about the definition paper.
    """
    runs = run.table("pvi_summary").filter(definition="paper")
    means = runs.group_by("dataset", "n_shots", "demonstrations", maintain_order=True).agg(
        pl.col("v_information", "accuracy").mean(), sets=pl.len()
    )
    for dataset, n_shots, source, bits, accuracy, sets in means.iter_rows():
        yield (
            f"{dataset}, {n_shots}-shot, {source} demonstrations: V-information {bits:.3f} bits, accuracy "
            f"{accuracy:.3f}, over {sets} set{'s' * (sets != 1)}"
        )


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
