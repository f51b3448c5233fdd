"""Define the suite prompt-search: find the best of many prompts on one set of queries.

Source: Yauney & Mimno 2024, section 5.1.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets.base import MultipleChoiceDataset
from evaluator.datasets.conversions import as_multiple_choice
from evaluator.errors import ConfigError, LabelError
from evaluator.methods.base import predict
from evaluator.random_baselines.held_out import held_out_prediction
from evaluator.report.query_rows import QueryNumbers
from evaluator.report.section import MeasuredRun, Section
from evaluator.schemas import METRICS, PREDICTIONS
from evaluator.store.prompt_store import PromptStore
from evaluator.suites.base import Described, Family, Part, Plan, Requests, ScoredRun, Suite, Table, described
from evaluator.suites.prompt_search import tables
from evaluator.suites.prompt_search.halving import answers, break_ties, planned, rounds
from evaluator.suites.prompt_search.prompts import MAX_QUERIES, SearchOptions, search_requests
from evaluator.suites.prompt_search.schema import SEARCH_EXAMPLES, TRIED_PROMPTS
from evaluator.suites.prompt_search.tables import comparison
from evaluator.templates.template import LABEL_SPACE


def requests(dataset: MultipleChoiceDataset, config: RunConfig) -> Requests:
    return search_requests(dataset, config.options_of(SearchOptions), config.n_queries)


def describe(config: RunConfig) -> Described:
    options = config.options_of(SearchOptions)
    return described(
        config,
        shots=options.shots,
        every_query=f"at most {MAX_QUERIES}",
        seeds={"queries, demonstrations and ties": options.seed},
    )


def check(config: RunConfig) -> None:
    if config.options_of(SearchOptions).halving and len(config.methods) > 1:
        raise ConfigError(
            f"--halving stops prompts by the accuracy of one method, got {', '.join(config.methods)}. Name one with "
            "--methods."
        )


def files(config: RunConfig) -> Iterable[Path]:
    candidates = config.options_of(SearchOptions).candidates
    return [candidates] if candidates else []


def explain(error: LabelError, store: PromptStore) -> LabelError:
    """Return the error with the file and row of the first query that has its labels as choices, if any."""
    choices = [label.removeprefix(LABEL_SPACE) for label in error.labels]
    sources = (
        store.requests()
        .filter(pl.col("label_names") == pl.lit(choices, pl.List(pl.String)))
        .join(store.table("search_examples", SEARCH_EXAMPLES), on=["dataset", "query_id"])
        .select("source")
        .head(1)
        .collect()
    )
    if not error.labels or sources.is_empty():
        return error
    return LabelError(f"{sources.item()}: {error} Or change or remove the example.", error.labels)


def measure(run: ScoredRun) -> Iterator[Table]:
    """Yield the tables of a search; with halving, of the requests that were scored in its rounds.

    Choices differ from query to query, so no label has a frequency, and `metrics` has no rows. search_held_out has one
    row a trial, search_held_out_prediction four predictors over all trials of the run, for each number of tries.
    """
    seed = run.config.options_of(SearchOptions).seed
    examples = run.store.table("search_examples", SEARCH_EXAMPLES)
    predictions = break_ties(predict(run.scored, run.methods, ("paper",)).collect(), seed)
    search_answers = answers(predictions, planned(run.store.requests(), examples), examples)
    prompts = tables.prompts_table(search_answers, run.store.table("tried_prompts", TRIED_PROMPTS), examples)
    queries = examples.collect()
    total = tables.search_total_error(search_answers, prompts)
    trials = tables.search_held_out(search_answers, prompts, queries, seed)
    yield "metrics", METRICS.to_frame()
    yield "predictions", predictions.select(PREDICTIONS.names())
    yield "search_prompts", prompts
    yield "search_results", tables.with_mean_intervals(tables.results_table(prompts, queries), total["total_error"])
    yield "search_curves", tables.curves_table(prompts, queries)
    yield "search_held_out", trials
    yield "search_held_out_prediction", held_out_prediction(trials, ["tries"])
    yield from total.items()


def sections(run: MeasuredRun) -> Iterator[Section]:
    from evaluator.suites.prompt_search.report import search_sections  # here, because only a report needs figures

    yield from search_sections(run)


def query_numbers(run: MeasuredRun) -> QueryNumbers:
    from evaluator.suites.prompt_search.report import right_answers

    return right_answers(run)


def summary_lines(run: MeasuredRun) -> Iterator[str]:
    """Yield a line for each dataset, number of shots and method: the best prompt's accuracy and the random baselines,
    and whether it is better than uniform guessing.

    Args:
        run: with the table search_results.
    """
    for row in run.table("search_results").iter_rows(named=True):
        p_value = f"{row['p_holm']:.3f}" if row["p_holm"] >= 0.001 else "< 0.001"
        yield (
            f"{row['part']}, {row['method']}, {row['dataset']}, {row['n_shots']}-shot: best of {row['n_prompts']:,} "
            f"prompts {row['best_accuracy']:.3f}, chance {row['chance']:.3f}, max random {row['max_random']:.3f}: "
            f"{'' if row['better_than_uniform'] else 'not '}better than uniform guessing, p {p_value} after "
            f"Holm's correction for {row['n_tests']:,} test{'s' * (row['n_tests'] != 1)}"
        )


PROMPT_SEARCH = Suite(
    summary="The best of 200 demonstration sets, instructions or templates: is it better than guessing?",
    parts={name: Part(kind="choice") for name in ("demonstrations", "instructions", "templates")},
    methods=("per_token", "vanilla", "per_byte", "unconditional"),
    definitions=("paper",),
    label_boundary="merged",
    options=SearchOptions,
    take=lambda dataset, _config: as_multiple_choice(dataset),
    requests=requests,
    describe=describe,
    plan=Plan(check=check, files=files, explain=explain),
    family=Family(
        measure=measure,
        sections=sections,
        rounds=rounds,
        query_numbers=query_numbers,
        summary_lines=summary_lines,
        comparison=comparison,
    ),
)
