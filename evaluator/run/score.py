"""The model's part of a run: tokens, scores, hidden states, and what methods request once these are known."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from evaluator.config import LabelBoundary, ModelConfig, RunConfig
from evaluator.engine import ENGINES, engine_identity, engine_name
from evaluator.engine.base import EngineFacts
from evaluator.engine.device import device_kind
from evaluator.engine.loader import EngineLoader
from evaluator.errors import ConfigError, LabelError
from evaluator.files import MANIFEST, fingerprint, read_record, source_fingerprint
from evaluator.methods.base import Method
from evaluator.methods.predictions import check_labels
from evaluator.models.source import ModelSource
from evaluator.progress import Stage
from evaluator.run.build import Built
from evaluator.run.locks import held
from evaluator.run.scored_run import ScoredStore, scored_run
from evaluator.run.second_round import build_second_round
from evaluator.scores.checks import check_prompt_lengths
from evaluator.scores.compute import score_rows
from evaluator.scores.table import ScoreManifest, distances_file, open_scores
from evaluator.store import shards
from evaluator.store.prompt_store import PromptStore
from evaluator.suites import SUITES, methods_of
from evaluator.tokens.table import TokenTable, tokenise_store

if TYPE_CHECKING:
    import torch

SCORES_FORMAT = 1  # counts changes to what a row of scores means


class Scored(NamedTuple):
    """A run whose prompts are answered: its own store, then that of the second round where there is one."""

    parts: Sequence[ScoredStore]
    engine: EngineFacts
    elapsed_s: Mapping[str, float]


def check_capabilities(config: RunConfig, model: ModelConfig) -> None:
    """Raise ConfigError for methods that need what the engine cannot do, before anything is loaded or built."""
    engine = engine_name(model)
    needy = [
        name for name, method in methods_of(config.suites).items() if name in config.methods and method.needs_states
    ]
    if needy and not ENGINES[engine].has_hidden_states:
        raise ConfigError(
            f"{', '.join(needy)}: methods that need hidden states, and the engine {engine} has none. Take another "
            "--engine, or leave these methods out (--methods)."
        )


def score_run(
    built: Built, source: ModelSource, model: ModelConfig, boundary: LabelBoundary, data: Path
) -> Stage[Scored]:
    """Have a model answer a store and what follows from its answers; what any run of the data folder has is kept.

    Args:
        built: the prompts.
        source, model: the model, and how it is loaded.
        boundary: where a label begins.
        data: folder of prompts and scores.
    """
    methods = {name: methods_of(built.config.suites)[name] for name in built.config.methods}
    with_head = {name: method for name, method in methods.items() if method.distances}
    head = _load_head(source) if with_head else None  # fail before scoring if the model has no LM head
    folder = scores_folder(source, model, data)
    loader = EngineLoader(source, model)
    parts: list[ScoredStore] = []
    store: PromptStore | None = built.store
    tokenise_s = 0.0
    try:
        while store:  # the run's own, then that of the second round
            clock = time.monotonic()
            tokens = yield from _tokenise(built, store, source, boundary, methods)
            tokenise_s += time.monotonic() - clock
            rows = tokens.tokens().collect()
            lock = yield from held(folder / tokens.fingerprint)
            with lock:
                part = ScoredStore(store, tokens, open_scores(folder / tokens.fingerprint))
                number = 0
                while (chosen := _rows_of_round(built, part, rows, number)) is not None:
                    table = yield from score_rows(chosen, part.scores, loader, "scores")
                    part, number = replace(part, scores=table), number + 1
                states = rows.filter(pl.col("ask") == "state")
                table = yield from score_rows(states, part.scores, loader, "states")
            parts.append(replace(part, scores=table))
            store = (yield from build_second_round(built, parts[0], methods, data)) if len(parts) == 1 else None
    finally:
        loader.close()
    if head is not None:
        # Only now, because on a GPU the engine left no memory for it.
        parts[0] = _with_distances(built, parts[0], with_head, head.to(device_kind()))
    score_s = sum(part.scores.totals()["elapsed_s"] for part in parts)
    elapsed_s = {"tokenise": round(tokenise_s, 3), "load": loader.elapsed_s, "score": score_s}
    return Scored(parts, _engine_facts(folder, parts), elapsed_s)


def scores_folder(source: ModelSource, model: ModelConfig, data: Path) -> Path:
    """Where the scores of a model, engine and dtype are, whichever run asked for them."""
    identity = engine_identity(source, model)
    return data / "scores" / fingerprint(SCORES_FORMAT, source.fingerprint, identity, source_fingerprint("engine"))


def _tokenise(
    built: Built, store: PromptStore, source: ModelSource, boundary: LabelBoundary, methods: Mapping[str, Method]
) -> Stage[TokenTable]:
    """Tokenise a store and check that nothing in it is too long for the model or cannot be told apart by it."""
    definitions = [each for parts in built.parts.values() for part in parts.values() for each in part.definitions]
    lock = yield from held(store.folder / "tokens")
    with lock:
        try:
            table = yield from tokenise_store(
                store, source.tokenizer, source.tokenizer_fingerprint, boundary, definitions
            )
        except LabelError as error:
            raise SUITES[built.config.suites[0]].explain(error, store) from error
    tokens = table.tokens().collect()
    check_prompt_lengths(tokens, store.prompts(), source.context_length)
    check_labels(methods, built.config.definitions, tokens, store.prompts())
    return table


def _rows_of_round(built: Built, part: ScoredStore, rows: pl.DataFrame, number: int) -> pl.DataFrame | None:
    """The tokens to score in a round, None after the last.

    There is one round, which has all rows, unless the suite decides by the scores of earlier rounds.
    """
    rows = rows.filter(pl.col("ask") != "state")
    next_round = SUITES[built.config.suites[0]].next_round
    if next_round is None or part.store is not built.store:
        return rows if number == 0 else None
    wanted = next_round(scored_run(built, [part]), number)
    return None if wanted is None else rows.filter(pl.col("prompt_id").is_in(wanted["prompt_id"].implode()))


def _with_distances(
    built: Built, part: ScoredStore, methods: Mapping[str, Method], head: "torch.Tensor"
) -> ScoredStore:
    """Keep schemas.LABEL_DISTANCES next to the hidden states they were made of, one file a method."""
    scored = scored_run(built, [part]).scored
    digests = {}
    for name, method in methods.items():
        assert method.distances is not None
        parts = [
            part for part, about in scored.parts.items() if about.kind in method.part_kinds and about.kind != "null"
        ]
        frame = pl.concat(method.distances(scored.answering(part), head) for part in parts).unique(maintain_order=True)
        digests[name] = shards.write_shard(part.scores.folder / distances_file(name), frame)
    manifest = part.scores.manifest
    table = part.scores.with_manifest(replace(manifest, distances=manifest.distances | digests))
    return replace(part, scores=table)


def _engine_facts(folder: Path, parts: Sequence[ScoredStore]) -> EngineFacts:
    """What the engine said of itself when these scores were made, by this run or an earlier one."""
    known = [part.scores.manifest.engine for part in parts] + [_facts_of_earlier(folder)]
    return next(facts for facts in known if facts is not None)


def _facts_of_earlier(folder: Path) -> EngineFacts | None:
    manifests = (read_record(path, ScoreManifest) for path in sorted(folder.glob(f"*/{MANIFEST}")))
    return next((manifest.engine for manifest in manifests if manifest and manifest.engine), None)


def _load_head(source: ModelSource) -> "torch.Tensor":
    from evaluator.models.lm_head import load_lm_head  # here, because torch takes its time

    return load_lm_head(source)
