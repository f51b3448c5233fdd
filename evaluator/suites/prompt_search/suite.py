"""Define the suite prompt-search: find the best of many prompts on one set of queries.

Source: Yauney & Mimno 2024, section 5.1.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from evaluator.config import RunConfig
from evaluator.datasets.conversions import as_multiple_choice
from evaluator.datasets.multiple_choice import MultipleChoiceDataset
from evaluator.errors import ConfigError, LabelError
from evaluator.report.query_rows import QueryNumbers
from evaluator.report.section import MeasuredRun, Section
from evaluator.store.prompt_store import PromptStore
from evaluator.suites.base import Described, Family, Part, Plan, Requests, ScoredRun, Suite, Table, described
from evaluator.suites.prompt_search.halving import next_round
from evaluator.suites.prompt_search.measures import search_measures
from evaluator.suites.prompt_search.options import SearchOptions
from evaluator.suites.prompt_search.prompts import MAX_QUERIES, search_requests
from evaluator.suites.prompt_search.schema import SEARCH_EXAMPLES
from evaluator.suites.prompt_search.terminal import best_prompt_lines
from evaluator.templates.choice_template import LABEL_SPACE


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
    yield from search_measures(run).items()


def sections(run: MeasuredRun) -> Iterator[Section]:
    from evaluator.suites.prompt_search.report import search_sections  # here, because only a report needs figures

    yield from search_sections(run)


def query_numbers(run: MeasuredRun) -> QueryNumbers:
    from evaluator.suites.prompt_search.report_queries import right_answers

    return right_answers(run)


PROMPT_SEARCH = Suite(
    summary="The best of 200 demonstration sets, instructions or templates: is it better than guessing?",
    parts={name: Part(kind="choice") for name in ("demonstrations", "instructions", "templates")},
    methods=("per_token", "vanilla", "per_byte", "unconditional"),
    definitions=("paper",),
    label_boundary="merged",
    options=SearchOptions,
    take=as_multiple_choice,
    requests=requests,
    describe=describe,
    plan=Plan(check=check, files=files, explain=explain),
    family=Family(
        measure=measure,
        sections=sections,
        next_round=next_round,
        query_numbers=query_numbers,
        summary_lines=best_prompt_lines,
    ),
)
