"""The model's part of a run: tokens, scores, hidden states, and what methods ask once these are known."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from evaluator.config import LabelBoundary, ModelConfig
from evaluator.engine import load_engine
from evaluator.engine.base import Engine
from evaluator.engine.device import device_kind
from evaluator.errors import ConfigError, LabelError
from evaluator.files import fingerprint, source_fingerprint
from evaluator.methods.predictions import check_labels
from evaluator.models.source import ModelSource
from evaluator.progress import Progress, Stage
from evaluator.run.build import PromptStore
from evaluator.run.second_round import build_follow_up
from evaluator.scores.answers import answers_of, write_distances
from evaluator.scores.checks import check_prompt_lengths
from evaluator.scores.table import ScoreTable, compute_hidden_states, score_prompts
from evaluator.suites import ALL_METHODS as METHODS
from evaluator.suites.prompt_search.halving import score_in_rounds
from evaluator.suites.prompt_search.sources import with_source
from evaluator.tokens.table import TokenTable, tokenise_store

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ScoredStore:
    """One store, tokenised and answered."""

    store: PromptStore
    tokens: TokenTable
    scores: ScoreTable


@dataclass
class ScoredRun:
    """All that was asked of a model: the run's own store, then what followed from its answers."""

    engine: dict[str, Any]  # EngineFacts
    elapsed_s: dict[str, float]
    parts: list[ScoredStore] = field(default_factory=list)

    def totals(self) -> dict[str, float]:
        """Prompts, tokens and seconds of all parts."""
        counts = [part.scores.totals() for part in self.parts]
        names = ("prompts", "prompt_tokens", "cached_tokens", "computed_tokens", "elapsed_s")
        total = {name: sum(count[name] for count in counts) for name in names}
        return total | {"tokens_per_s": total["prompt_tokens"] / total["elapsed_s"] if total["elapsed_s"] else 0.0}

    def token_counts(self) -> dict[str, Any]:
        """What a report says of the tokens of all parts."""
        block = self.engine["prefix_block_tokens"]
        counts = [part.tokens.counts(block) for part in self.parts]
        added = {name: [count[name] for count in counts] for name in counts[0] if name != "block_tokens"}
        return {"block_tokens": block} | {
            name: None if None in values else sum(values) for name, values in added.items()
        }


def score_store(
    store: PromptStore, source: ModelSource, model: ModelConfig, boundary: LabelBoundary, out: Path
) -> Stage[ScoredRun]:
    """Have a model answer a store and what follows from its answers; what is there already is kept."""
    clock = time.monotonic()
    measures = [measure for name in store.manifest["methods"] if (measure := METHODS[name].distances)]
    head = _load_head(source) if measures else None  # a model without one should not be asked first
    tokens = yield from _tokenise(store, source, boundary)
    tokenise_s = _since(clock)
    yield Progress(stage="Loading the model", done=0, total=1, unit="models")
    clock = time.monotonic()
    engine = load_engine(source, model)
    yield Progress(stage="Loading the model", done=1, total=1, unit="models")
    run = ScoredRun(asdict(engine.facts), {"tokenise": tokenise_s, "load": _since(clock)})
    try:
        run.parts.append((yield from _answer(store, tokens, source, engine, out)))
        answers = answers_of([(store, run.parts[0].scores)])
        following = yield from build_follow_up(store, answers, run.parts[0].scores.folder.name, out)
        if following:
            tokens = yield from _tokenise(following, source, boundary)
            run.parts.append((yield from _answer(following, tokens, source, engine, out)))
    finally:
        engine.close()
    if head is not None:
        # Only now, because on a GPU the engine left no memory for it.
        first, head = run.parts[0], head.to(device_kind())
        answers = replace(answers_of([(store, first.scores)]), tokens=first.tokens.tokens())
        write_distances(first.scores, [measure(answers, head) for measure in measures])
    run.elapsed_s["score"] = run.totals()["elapsed_s"]
    return run


def _tokenise(store: PromptStore, source: ModelSource, boundary: LabelBoundary) -> Stage[TokenTable]:
    """The tokens of a store, once nothing in it is too long for the model or cannot be told apart by it."""
    try:
        table = yield from tokenise_store(store, source, boundary)
    except LabelError as error:
        raise with_source(error, store) from error
    tokens = table.tokens().collect()
    check_prompt_lengths(tokens, store.prompts(), source.context_length)
    check_labels(
        {name: METHODS[name] for name in store.manifest["methods"]},
        store.manifest["definitions"],
        tokens,
        store.prompts(),
    )
    return table


def _answer(
    store: PromptStore, tokens: TokenTable, source: ModelSource, engine: Engine, out: Path
) -> Stage[ScoredStore]:
    identity = {
        "model": source.fingerprint,
        "engine": asdict(engine.facts),
        "store": store.fingerprint,
        "tokens": tokens.fingerprint,
        "code": source_fingerprint("engine", "scores"),
    }
    score_all: Callable[..., Stage[ScoreTable]] = score_prompts
    if (store.manifest["search"] or {}).get("halving"):
        score_all = partial(score_in_rounds, store)
        identity |= {
            "rounds": source_fingerprint("methods", "suites/prompt_search")
        }  # which decide what later rounds ask
    folder = out / "scores" / fingerprint(identity)
    rows = tokens.tokens().collect()
    asks_state = pl.col("ask") == "state"
    scores = yield from score_all(rows.filter(~asks_state), engine, folder, identity=identity)
    for_states = rows.filter(asks_state)
    if for_states.height:
        _require_states(store, engine)
        scores = yield from compute_hidden_states(for_states, engine, folder, identity=identity)
    return ScoredStore(store, tokens, scores)


def _require_states(store: PromptStore, engine: Engine) -> None:
    if not engine.facts.has_hidden_states:
        methods = ", ".join(store.manifest["methods"])
        raise ConfigError(
            f"One of the methods {methods} needs hidden states, and the engine {engine.facts.name} has none. Take "
            "another --engine, or leave out knn_*, hidden_calibration, topk, sa_icl and pvi_released (--methods)."
        )


def _load_head(source: ModelSource) -> "torch.Tensor":
    from evaluator.models.lm_head import load_lm_head  # here, because torch takes its time

    return load_lm_head(source)


def _since(started: float) -> float:
    return round(time.monotonic() - started, 3)
