"""Join a run's requests with the scores of a model."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from evaluator.methods.base import MeasuredPart, ScoredRequests
from evaluator.run.build import Built
from evaluator.schemas import PROMPTS_KEY
from evaluator.scores.checks import require_complete, require_states
from evaluator.scores.prompts import prompt_scores, prompt_states
from evaluator.scores.table import ScoreTable
from evaluator.store.prompt_store import PromptStore
from evaluator.store.tables import kept
from evaluator.suites import chosen_methods, families_of
from evaluator.suites.base import ScoredRun
from evaluator.tokens.table import TokenTable

STATES_PER_GROUP = 1_024
"""Hidden states, kilobytes each, that are skipped together where they are of another part or dataset."""


@dataclass(frozen=True)
class ScoredStore:
    """A store with its tokens and scores."""

    store: PromptStore
    tokens: TokenTable
    scores: ScoreTable


def scored_run(
    built: Built,
    parts: Sequence[ScoredStore],
    *,
    model: str = "",
    options: Mapping[str, object] | None = None,
) -> ScoredRun:
    """Join a run's requests with their scores and hidden states; requests that have none are left out.

    Args:
        built: the run's configuration and the store of its first round.
        parts: that store, then that of the second round if there is one.
        model: name of the model, for tables.
        options: of the measure stage, by suite.
    """
    first = parts[0]
    scored = ScoredRequests(
        rows=pl.concat(
            _with_requests(part.store, prompt_scores(part.tokens.tokens(), part.scores.read("scores")))
            for part in parts
        ),
        states=pl.concat(
            _with_requests(part.store, prompt_states(part.tokens.tokens(), part.scores.read("states")))
            for part in parts
        ),
        distances=first.scores.distances(),
        tokens=first.tokens.tokens(),
        parts={
            name: MeasuredPart(part.kind, part.definitions)
            for suite in built.parts.values()
            for name, part in suite.items()
        },
    )
    return ScoredRun(
        config=built.config,
        store=built.store,
        scored=scored,
        methods=chosen_methods(built.config),
        model=model,
        options=options or {},
    )


def _with_requests(store: PromptStore, results: pl.LazyFrame) -> pl.LazyFrame:
    return store.requests().join(results, on=PROMPTS_KEY, how="inner", maintain_order="left")


def complete_run(run: ScoredRun, parts: Sequence[ScoredStore]) -> ScoredRun:
    """Check that every request is scored exactly once, and return the run. Raises ScoreError otherwise.

    If the suite chooses prompts by earlier scores (Family.rounds), requests that it did not choose are left out.
    """
    rounds = families_of(run.config.suites)[0].rounds
    if rounds:
        run = run.of_prompts(pl.concat(rounds(run)).unique())
    for part in parts:
        requests, prompts = part.store.requests(), run.of_run(part.store.prompts())
        tokens, is_state = part.tokens.tokens(), pl.col("ask") == "state"
        require_complete(requests, prompts.filter(~is_state), prompt_scores(tokens, part.scores.read("scores")))
        require_states(requests, prompts.filter(is_state), prompt_states(tokens, part.scores.read("states")))
    return run


@contextmanager
def on_disk(run: ScoredRun, folder: Path) -> Iterator[ScoredRun]:
    """Join the requests of a complete run with their scores and hidden states, once, in temporary files in a folder."""
    scored = run.scored
    with kept(scored.rows, folder) as rows, kept(scored.states, folder, rows_per_group=STATES_PER_GROUP) as states:
        yield replace(run, scored=replace(scored, rows=rows, states=states))
