"""What a model answered to a run's prompts, put together from stores, tokens and scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from evaluator.methods.base import MeasuredPart, ScoredRequests
from evaluator.run.build import Built
from evaluator.schemas import PROMPTS_KEY
from evaluator.scores.checks import require_complete, require_states
from evaluator.scores.prompts import prompt_scores, prompt_states
from evaluator.scores.table import ScoreTable
from evaluator.store.prompt_store import PromptStore
from evaluator.suites import SUITES, methods_of
from evaluator.suites.base import ScoredRun
from evaluator.tokens.table import TokenTable


@dataclass(frozen=True)
class ScoredStore:
    """One store, tokenised and answered."""

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
    """Join a run's requests with their scores and hidden states; requests without are left out.

    Args:
        built: the run's configuration and own store.
        parts: that store, then that of the second round where there is one.
        model: its name, for tables.
        options: of the measure stage, by suite.
    """
    first = parts[0]
    scored = ScoredRequests(
        rows=pl.concat(_joined(part.store, prompt_scores(part.tokens.tokens(), part.scores)) for part in parts),
        states=pl.concat(_joined(part.store, prompt_states(part.tokens.tokens(), part.scores)) for part in parts),
        distances=first.scores.distances(),
        tokens=first.tokens.tokens(),
        parts={
            name: MeasuredPart(part.kind, part.definitions)
            for suite in built.parts.values()
            for name, part in suite.items()
        },
    )
    methods = {name: methods_of(built.config.suites)[name] for name in built.config.methods}
    return ScoredRun(
        config=built.config, store=built.store, scored=scored, methods=methods, model=model, options=options or {}
    )


def _joined(store: PromptStore, answered: pl.LazyFrame) -> pl.LazyFrame:
    return store.requests().join(answered, on=PROMPTS_KEY, how="inner", maintain_order="left")


def complete_run(run: ScoredRun, parts: Sequence[ScoredStore]) -> ScoredRun:
    """Return the run with the requests that its rounds ask for alone.

    Raises ScoreError unless each of them is answered exactly once.
    """
    next_round = SUITES[run.config.suites[0]].next_round
    if next_round:
        wanted, number = [], 0
        while (asked := next_round(run, number)) is not None:
            wanted.append(asked.select("prompt_id"))
            number += 1
        prompts = pl.concat(wanted).unique()
        run = run.of_prompts(prompts)
    for part in parts:
        rows = part.store.requests_with_prompts().drop("prompt")
        if next_round:
            rows = rows.join(prompts.lazy(), on=PROMPTS_KEY, how="semi", maintain_order="left")
        is_state = pl.col("ask") == "state"
        scores = prompt_scores(part.tokens.tokens(), part.scores).collect()
        require_complete(rows.filter(~is_state).collect(), scores)
        states = prompt_states(part.tokens.tokens(), part.scores).select(PROMPTS_KEY).collect()
        require_states(rows.filter(is_state).collect(), states)
    return run
