"""Join a run's requests with the scores of a model."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import polars as pl

from evaluator.methods.base import MeasuredPart, ScoredRequests
from evaluator.run.build import Built
from evaluator.schemas import PROMPTS_KEY, REQUESTS_KEY
from evaluator.scores.checks import n_scores, require_complete, require_states
from evaluator.scores.prompts import prompt_states, scan_prompt_scores
from evaluator.scores.sorted_join import are_many, joined_requests
from evaluator.scores.table import ScoreTable
from evaluator.store.ids import buckets, id_numbers
from evaluator.store.prompt_store import PromptStore
from evaluator.store.tables import kept
from evaluator.suites import chosen_methods, families_of
from evaluator.suites.base import ScoredRun
from evaluator.tokens.table import TokenTable

PROMPTS_CHECKED = 524_288
"""Prompts of which the scores are checked at once; all tokens and scores are read once for each so many."""

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
    scores = (_with_requests(part.store, scan_prompt_scores(part.tokens.tokens(), part.scores)) for part in parts)
    states = (_with_requests(part.store, prompt_states(part.tokens.tokens(), part.scores)) for part in parts)
    scored = ScoredRequests(
        rows=pl.concat(scores),
        states=pl.concat(states),
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
        chosen = pl.concat(rounds(run)).unique()
        run = run.of_prompts(chosen)
    for part in parts:
        if not rounds and _is_complete(part):
            continue
        # The columns that the checks need: without the others, such as texts and demonstrations, rows are short.
        rows = part.store.requests_with_prompts().select(*REQUESTS_KEY, *PROMPTS_KEY, "ask", "continuations")
        if rounds:
            rows = rows.join(chosen.lazy(), on=PROMPTS_KEY, how="semi", maintain_order="left")
        is_state = pl.col("ask") == "state"
        scores = scan_prompt_scores(part.tokens.tokens(), part.scores).collect()
        require_complete(rows.filter(~is_state).collect(), scores)
        states = prompt_states(part.tokens.tokens(), part.scores).select(PROMPTS_KEY).collect()
        require_states(rows.filter(is_state).collect(), states)
    return run


@contextmanager
def on_disk(run: ScoredRun, parts: Sequence[ScoredStore], folder: Path) -> Iterator[ScoredRun]:
    """Join the requests of a run with their scores and hidden states, once, in unnamed temporary files in a folder.

    Args:
        run: a complete run.
        parts: its scored stores.
        folder: of the files.
    """
    with ExitStack() as files:
        rows = run.scored.rows
        if are_many(sum(part.store.manifest.n_requests for part in parts)):
            frames = chain.from_iterable(
                joined_requests(run.of_run(part.store.requests()), part.tokens.tokens(), part.scores, folder)
                for part in parts
            )
            rows = files.enter_context(kept(frames, folder, rows.collect_schema()))
        else:
            rows = files.enter_context(kept(rows, folder))
        states = run.scored.states
        if any(method.prompts.need_states for method in run.methods.values()):
            states = files.enter_context(kept(states, folder, rows_per_group=STATES_PER_GROUP))
        yield replace(run, scored=replace(run.scored, rows=rows, states=states))


def _is_complete(part: ScoredStore) -> bool:
    """Return whether every prompt has its score, only one and with a number for each continuation, or its state.

    That is known without the rows themselves; what is wrong is said by the checks that read them.
    """
    n_prompts = part.store.manifest.n_prompts
    return all(_is_bucket_complete(part, bucket) for bucket in buckets(n_prompts, PROMPTS_CHECKED))


def _is_bucket_complete(part: ScoredStore, bucket: pl.Expr) -> bool:
    prompts = part.store.prompts().filter(bucket).select(id_numbers("prompt_id"), "ask", n=n_scores())
    tokens, is_state = part.tokens.tokens().filter(bucket), pl.col("ask") == "state"
    sizes = pl.col("label_log_likelihoods").list.len().cast(pl.Int64)
    scores = scan_prompt_scores(tokens, part.scores).select(id_numbers("prompt_id"), n=sizes)
    states = prompt_states(tokens, part.scores).select(id_numbers("prompt_id"))
    return _each_once(prompts.filter(~is_state), scores) and _each_once(prompts.filter(is_state).drop("n"), states)


def _each_once(asked: pl.LazyFrame, found: pl.LazyFrame) -> bool:
    """Return whether each of the rows that are asked for is found, and no prompt is found twice."""
    rows = found.collect(engine="streaming")
    missing = asked.join(rows.lazy(), on=rows.columns, how="anti").select(pl.len()).collect(engine="streaming")
    return not missing.item() and rows["prompt_id"].n_unique() == rows.height
