"""Define the suite pvi: the bits of information that an input gives a model about its label (Lu et al. 2023).

The labels of the published datasets are digits, which are one token each. A label of several tokens has the sum of its
tokens' log-probabilities as its score, as in all methods without another rule.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from evaluator.compare.runs import ComparedRun
from evaluator.config import RunConfig
from evaluator.datasets.base import ClassificationDataset
from evaluator.errors import plural
from evaluator.methods.base import ScoredRequests
from evaluator.metrics.total_error import crossed_tables
from evaluator.report.section import MeasuredRun
from evaluator.suites import base
from evaluator.suites.in_context_pvi import correlations, demonstration_choice, prompts, summary
from evaluator.suites.in_context_pvi.pvi import PVI_RELEASED, pvi_table
from evaluator.suites.in_context_pvi.report import pvi_comparison_sections, pvi_numbers, pvi_sections
from evaluator.suites.in_context_pvi.schema import CHOSEN, PVI_ANNOTATORS, PVI_CANDIDATES, PVI_QUERIES


def requests(dataset: ClassificationDataset, config: RunConfig) -> base.Requests:
    """Build the requests of a dataset and the side table pvi_queries; also pvi_candidates, if a method of the run
    chooses demonstrations by PVI."""
    options = prompts.resolved_options(config)
    built = prompts.pvi_prompts(dataset, options, config.n_queries)
    if not {*CHOSEN} & {*config.methods}:
        return built
    candidates = demonstration_choice.pvi_candidates(dataset, options)
    return base.Requests(built.rows, {**built.tables, "pvi_candidates": candidates})


def describe(config: RunConfig) -> base.Described:
    """Return the numbers of shots and the seed of a run for its report."""
    options = config.options_of(prompts.PviOptions)
    shots = options.shots or ["number of labels, and twice as many"]
    return base.Described(shots, seeds={"demonstrations": options.seed})


def measure(run: base.ScoredRun) -> Iterator[base.Table]:
    """Yield the tables of all classification suites, then the tables of PVI."""
    yield from base.classification_tables(run, shared="demonstration sets")
    queries = run.store.table("pvi_queries", PVI_QUERIES).collect()
    candidates = run.store.table("pvi_candidates", PVI_CANDIDATES).collect()
    options = run.config.options_of(prompts.PviOptions)
    given = run.options.get("pvi", prompts.PviMeasureOptions())
    yield from pvi_measures(run.scored, queries, given.annotations, options=options, candidates=candidates).items()


def pvi_measures(
    scored: ScoredRequests,
    queries: pl.DataFrame,
    annotations: Sequence[Path] = (),
    *,
    options: prompts.PviOptions = prompts.PviOptions(),  # noqa: B008  (frozen)
    candidates: pl.DataFrame = PVI_CANDIDATES.to_frame(),  # noqa: B008  (frozen)
) -> dict[str, pl.DataFrame]:
    """Compute the tables of a run of the suite pvi; schema.py has their columns.

    Args:
        scored: requests of the suite pvi.
        queries: schema.PVI_QUERIES.
        annotations: files of annotations (see correlations.py); without files, `pvi_annotators` has no rows.
        options: source of the suite's demonstration sets, and seed of predictions that are drawn.
        candidates: schema.PVI_CANDIDATES; empty if no method chose demonstrations by PVI.

    Returns file name -> table.

    Raises:
        MetricError: a label space of one label, or gold labels outside the label space.
        DatasetError: annotations that cannot be read, or that annotate no query.
    """
    source, seed = options.source, options.seed
    # Read annotations first, because reading can raise an error.
    annotated = correlations.read_annotations(annotations) if annotations else None
    pvi = pvi_table(scored, source, seed=seed)
    # Lists of queries are over runs with the suite's sets only, without sets that were chosen by PVI.
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
    """Return the tables variance_components, total_error and design_study, for V-information and accuracy.

    Both are means over queries and over the suite's demonstration sets of a number of shots, which are both taken as
    random samples. Sets chosen by PVI are left out, because a rule chose them.

    Args:
        pvi: schema.PVI.
        source: source of the suite's sets.
    """
    rows, by, level = pvi.filter(demonstrations=source), ["dataset", "definition", "n_shots"], "demonstration_set"
    values = {"accuracy": ("correct", (0.0, 1.0)), "v_information": ("pvi_bits", (-math.inf, math.inf))}
    names = {"query": "query", "level": "demonstration set", "interaction": "query x demonstration set and residual"}
    shared = {"suite": "pvi", "part": prompts.INPUT, "method": "vanilla"}
    return crossed_tables(rows, by, level, values, names, shared)


def comparison(runs: Sequence[ComparedRun]) -> base.Comparison:
    """Compare the PVIs of several models; return the tables, and the section of the comparison page."""
    agreement = correlations.pvi_agreement(runs)
    tables = {"pvi_models": agreement.models, "pvi_consistency": agreement.consistency}
    return base.Comparison(tables, list(pvi_comparison_sections(agreement, runs)))


def v_information_lines(run: MeasuredRun) -> Iterator[str]:
    """Yield a line for each dataset, number of shots and source of demonstrations: V-information and accuracy, as means
    over demonstration sets, under the definition paper.

    Args:
        run: has the table pvi_means.
    """
    columns = ("dataset", "n_shots", "demonstrations", "v_information", "accuracy", "n_runs")
    means = run.table("pvi_means").filter(over="sets", definition="paper").select(columns)
    for dataset, n_shots, source, bits, accuracy, sets in means.iter_rows():
        yield (
            f"{dataset}, {n_shots}-shot, {source} demonstrations: V-information {bits:.3f} bits, accuracy "
            f"{accuracy:.3f}, over {plural(sets, 'set')}"
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
        files=lambda config: [prompts.resolved_options(config).prompts],
        # Published demonstrations need no training rows.
        queries_every_row=lambda config: config.options_of(prompts.PviOptions).source == "published",
        family=base.Family(
            measure=measure,
            sections=pvi_sections,
            query_numbers=pvi_numbers,
            summary_lines=v_information_lines,
            comparison=comparison,
        ),
    )
}
