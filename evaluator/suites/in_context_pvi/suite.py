"""Define the suite pvi: how many bits each input gives a model about its label (Lu et al. 2023).

The published datasets have digits for labels, one token each. The score of a label of several tokens is the sum over
its tokens, as in every method that does not say otherwise.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from evaluator.compare.runs import ComparedRun
from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.methods.base import ScoredRequests
from evaluator.metrics.total_error import crossed_tables
from evaluator.report.section import MeasuredRun
from evaluator.suites import base
from evaluator.suites.in_context_pvi import correlations, demonstration_choice, prompts, summary
from evaluator.suites.in_context_pvi.pvi import PVI_RELEASED, pvi_table
from evaluator.suites.in_context_pvi.report import pvi_comparison_sections, pvi_numbers, pvi_sections
from evaluator.suites.in_context_pvi.schema import CHOSEN, PVI_ANNOTATORS, PVI_CANDIDATES, PVI_QUERIES


def requests(dataset: ClassificationDataset, config: RunConfig) -> base.Requests:
    """Build the request rows of a dataset and its side tables of queries and, where a method needs it, candidates."""
    options = prompts.resolved_options(config)
    built = prompts.pvi_prompts(dataset, options, config.n_queries)
    if not {*CHOSEN} & {*config.methods}:
        return built
    candidates = demonstration_choice.pvi_candidates(dataset, options)
    return base.Requests(built.rows, {**built.tables, "pvi_candidates": candidates})


def describe(config: RunConfig) -> base.Described:
    """Return the numbers of shots, the queries and the seed of a run."""
    options = config.options_of(prompts.PviOptions)
    shots = options.shots or ["number of labels, and twice as many"]
    return base.Described(shots, seeds={"demonstrations": options.seed})


def measure(run: base.ScoredRun) -> Iterator[base.Table]:
    """Yield the tables of all classification suites, then the tables of PVI."""
    yield from base.classification_tables(run, shared="demonstration sets")
    queries = run.store.table("pvi_queries", PVI_QUERIES).collect()
    candidates = run.store.table("pvi_candidates", PVI_CANDIDATES).collect()
    options = run.config.options_of(prompts.PviOptions)
    annotations = run.options_of(prompts.PviMeasureOptions).annotations
    yield from pvi_measures(run.scored, queries, annotations, options=options, candidates=candidates).items()


def pvi_measures(
    scored: ScoredRequests,
    queries: pl.DataFrame,
    annotations: Sequence[Path] = (),
    *,
    options: prompts.PviOptions = prompts.PviOptions(),  # noqa: B008  (frozen)
    candidates: pl.DataFrame = PVI_CANDIDATES.to_frame(),  # noqa: B008  (frozen)
) -> dict[str, pl.DataFrame]:
    """Compute the tables of a run of the suite pvi, by file name; schema.py has the columns.

    Args:
        scored: of the suite pvi.
        queries: schema.PVI_QUERIES.
        annotations: files as in correlations.py; without any, `pvi_annotators` has no rows.
        options: where the suite's demonstration sets come from, and the seed of predictions that are drawn.
        candidates: schema.PVI_CANDIDATES, where methods chose demonstrations by PVI.

    Raises:
        MetricError: label spaces or gold labels that have no PVI.
        DatasetError: annotations that do not fit.
    """
    source, seed = options.source, options.seed
    # First, because it can raise.
    annotated = correlations.read_annotations(annotations) if annotations else None
    pvi = pvi_table(scored, source, seed=seed)
    # Only runs with the suite's sets: other runs have demonstrations that were chosen for their PVI.
    over_runs = summary.runs_of_queries(pvi.filter(demonstrations=source))
    judged, pairs = summary.judged_queries(pvi), correlations.pairs_table(pvi)
    runs = summary.summary_table(pvi, judged, seed=seed)
    training = demonstration_choice.training_pvi(scored)
    counts = demonstration_choice.training_counts(training, candidates)
    tries = demonstration_choice.tries_by_source(scored, source)
    asked = scored.rows.filter(part=prompts.INPUT)
    sizes = asked.select("dataset", pl.col("label_names").list.len()).unique().collect()
    return {
        "pvi": pvi,
        "pvi_summary": runs,
        "pvi_means": summary.means_table(runs),
        "pvi_deciles": summary.deciles_table(judged),
        "pvi_densities": summary.densities_table(judged),
        "pvi_pairs": pairs,
        "pvi_consistency": correlations.consistency_table(pairs),
        "pvi_one_way": correlations.one_way_table(runs),
        "pvi_repeated_measures": correlations.repeated_measures_table(pvi),
        "pvi_hardest": summary.hardest_table(over_runs, queries),
        "pvi_mislabelled": summary.mislabelled_table(over_runs, queries),
        "pvi_annotators": PVI_ANNOTATORS.to_frame()
        if annotated is None
        else correlations.annotators_table(pvi, queries, annotated),
        **_total_error(pvi, source),
        "pvi_demonstrations": demonstration_choice.demonstrations_table(pvi, dict(sizes.rows()), counts, tries),
        "pvi_chosen": demonstration_choice.chosen_table(scored, training, candidates),
    }


def _total_error(pvi: pl.DataFrame, source: prompts.PviSource) -> dict[str, pl.DataFrame]:
    """Return variance_components, total_error and design_study, with the columns of schemas.

    V-information and accuracy are over all demonstration sets of a number of shots; queries and sets are both samples.
    Sets chosen by PVI follow from a rule and are no sample of sets.

    Args:
        pvi: schema.PVI.
        source: of the suite's own sets.
    """
    rows, by, level = pvi.filter(demonstrations=source), ["dataset", "definition", "n_shots"], "demonstration_set"
    values = {"accuracy": ("correct", (0.0, 1.0)), "v_information": ("pvi_bits", (-math.inf, math.inf))}
    names = {"query": "query", "level": "demonstration set", "interaction": "query x demonstration set and residual"}
    shared = {"suite": "pvi", "part": prompts.INPUT, "method": "vanilla"}
    return crossed_tables(rows, by, level, values, names, shared)


def comparison(runs: Sequence[ComparedRun]) -> base.Comparison:
    """Compare the PVIs of several models: tables, and the section of the comparison page."""
    agreement = correlations.pvi_agreement(runs)
    tables = {"pvi_models": agreement.models, "pvi_consistency": agreement.consistency}
    return base.Comparison(tables, list(pvi_comparison_sections(agreement, runs)))


def v_information_lines(run: MeasuredRun) -> Iterator[str]:
    """Yield a line for each dataset, number of shots and source of demonstrations: means over demonstration sets.

    Args:
        run: has the table pvi_means; the lines are about the definition paper.
    """
    columns = ("dataset", "n_shots", "demonstrations", "v_information", "accuracy", "n_runs")
    means = run.table("pvi_means").filter(over="sets", definition="paper").select(columns)
    for dataset, n_shots, source, bits, accuracy, sets in means.iter_rows():
        yield (
            f"{dataset}, {n_shots}-shot, {source} demonstrations: V-information {bits:.3f} bits, accuracy "
            f"{accuracy:.3f}, over {sets} set{'s' * (sets != 1)}"
        )


SUITES = {
    "pvi": base.Suite(
        summary="How hard each query is for a model: the bits that its input gives about its label.",
        parts={prompts.INPUT: base.Part(shared_sets=True), prompts.NULL: base.Part(kind="null")},
        methods=("vanilla", "pvi_released", *CHOSEN),
        own_methods={"pvi_released": PVI_RELEASED, **demonstration_choice.CHOSEN_METHODS},
        definitions=("paper", "released"),
        label_boundary="merged",
        options=prompts.PviOptions,
        measure_options=prompts.PviMeasureOptions,
        requests=requests,
        describe=describe,
        plan=base.Plan(
            files=lambda config: [prompts.resolved_options(config).prompts],
            # Published demonstrations need no training rows.
            queries_every_row=lambda config: config.options_of(prompts.PviOptions).source == "published",
        ),
        family=base.Family(
            measure=measure,
            sections=pvi_sections,
            query_numbers=pvi_numbers,
            summary_lines=v_information_lines,
            comparison=comparison,
        ),
    )
}
