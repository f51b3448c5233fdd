"""Compute the scores and hidden states that a plan still lacks, shard by shard."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from evaluator.engine.loader import EngineLoader
from evaluator.models.adapters import Adapter
from evaluator.progress import Progress, Stage
from evaluator.record import EngineRecord
from evaluator.scores.plan import MIN_STEPS_PER_SHARD, STEPS_PER_SHARD, Plan, is_of_rows, plan_rows
from evaluator.scores.shard_job import ShardUpdate, shard_job
from evaluator.scores.table import Kind, ScoreTable, ShardRecord
from evaluator.store import shards
from evaluator.tokens.rows import TokenRows

SHARDS_NAMED_AT_ONCE = 500  # up to so many shards, the manifest is written after each
TIMES_BETWEEN_MANIFESTS = 20  # beyond that: the pause between two manifests, in times that the last took to write

STAGE_NAMES: dict[Kind, str] = {"scores": "Scoring", "states": "Computing hidden states"}


class Arithmetic(NamedTuple):
    """What a model computes for a token, and what devices can compute."""

    flop_per_token: int
    peak_flop_per_s: Callable[[EngineRecord, int], float | None]  # facts, replicas -> peak of all


AfterShard = Callable[[ScoreTable], Iterator[Progress]]
"""Is called with the table after each shard; yields progress to show."""


def no_progress(_table: ScoreTable) -> Iterator[Progress]:
    """Yield nothing."""
    yield from ()


def score_rows(
    tokens: TokenRows,
    table: ScoreTable,
    loader: EngineLoader,
    kind: Kind,
    adapter: Adapter | None = None,
    after_shard: AfterShard = no_progress,
    *,
    arithmetic: Arithmetic | None = None,
) -> Stage[ScoreTable]:
    """Compute the scores or states that are missing, and return the complete table.

    The engine is loaded only if something is missing.

    Args:
        tokens: in prefix order; with continuations for scores, without for states.
        table: scores of these rows.
        loader: of the engine that the table belongs to.
        kind: what is computed.
        adapter: that the engine computes with; None for the base model.
        after_shard: called with the table after each shard.
        arithmetic: operations of the model, for progress; None: not known.
    """
    if not tokens.height:
        return table
    plan = plan_rows(tokens, table, kind)
    if plan.record.reused_prompts:
        yield Progress(
            stage="Reused from earlier runs",
            done=plan.record.reused_prompts,
            total=plan.record.reused_prompts + plan.record.prompts,
            unit="prompts",
        )
    if plan.key not in table.manifest.plans:
        table, plan = yield from _write_plan(plan, table, loader)
    cut = plan.shards()
    jobs = [
        shard_job(name, kind, plan.rows.slice(shard.first, shard.n_rows), shard.computed_tokens, adapter)
        for name, shard in cut.items()
        if name not in table.manifest.shards
    ]
    if jobs:
        replicas = yield from loader.replicas()
        done_before = sum(shard.prompts for name, shard in table.manifest.shards.items() if name in cut)
        peak = arithmetic.peak_flop_per_s(replicas.facts, replicas.n) if arithmetic else None
        flop_per_token = arithmetic.flop_per_token if arithmetic else None
        clock = _Clock(STAGE_NAMES[kind], done_before, plan.record.prompts, flop_per_token, peak)
        with closing(ShardWriter(table)) as writer:
            for update in replicas.run(jobs):
                clock.add(update)
                if update.frame is not None:
                    table = writer.add(update)
                    yield from after_shard(table)
                now = clock.progress()
                yield now if replicas.facts.counts_cached_tokens else _without_computed(now)
    elif plan.record.prompts:
        yield Progress(stage=STAGE_NAMES[kind], done=plan.record.prompts, total=plan.record.prompts, unit="prompts")
    return table


def _write_plan(plan: Plan, table: ScoreTable, loader: EngineLoader) -> Stage[tuple[ScoreTable, Plan]]:
    """Complete a plan with the size of its shards, if the engine is needed, and write it in place of an older one."""
    record, manifest = plan.record, table.manifest
    if plan.rows.height:
        replicas = yield from loader.replicas()
        facts = replicas.facts
        manifest = replace(manifest, engine=manifest.engine or facts)
        record = replace(
            record,
            shard_tokens=STEPS_PER_SHARD * facts.tokens_per_step,
            min_shard_tokens=MIN_STEPS_PER_SHARD * facts.tokens_per_step,
            n_replicas=replicas.n,
            shares_prefixes=facts.prefix_block_tokens is not None,
        )
    base, _, _ = plan.key.partition(".")
    others = {key: other for key, other in manifest.plans.items() if not is_of_rows(key, base)}
    table = table.write_manifest(replace(manifest, plans=others | {plan.key: record}))
    return table, replace(plan, record=record)


class _Clock:
    """Adds up what this command's shards took, for progress."""

    def __init__(
        self, stage: str, done_before: int, total: int, flop_per_token: int | None, peak_flop_per_s: float | None
    ) -> None:
        self.stage, self.done_before, self.total = stage, done_before, total
        self.flop_per_token, self.peak_flop_per_s = flop_per_token, peak_flop_per_s
        self.started = time.monotonic()
        self.finished: dict[int, npt.NDArray[np.float64]] = {}  # replica -> _sums of its finished shards
        self.running: dict[str, ShardUpdate] = {}  # the last of each other shard

    def add(self, update: ShardUpdate) -> None:
        if update.frame is None:
            self.running[update.shard] = update
        else:
            self.running.pop(update.shard, None)
            self.finished[update.replica] = self.finished.get(update.replica, 0) + _sums(update)

    def progress(self) -> Progress:
        replicas = self.finished.copy()
        for update in self.running.values():
            replicas[update.replica] = replicas.get(update.replica, 0) + _sums(update)
        done, sent, computed, _ = sum(replicas.values(), np.zeros(4)).tolist()
        rates = [tokens / seconds for _, _, tokens, seconds in replicas.values() if seconds]
        elapsed = time.monotonic() - self.started
        # The first results wait for a whole batch and say little about the speed of the rest.
        timed = done > 0 and elapsed > 1
        flop_per_s = computed / elapsed * self.flop_per_token if timed and self.flop_per_token else None
        return Progress(
            stage=self.stage,
            done=self.done_before + int(done),
            total=self.total,
            unit="prompts",
            requests_per_s=done / elapsed if timed else None,
            computed_tokens_per_s=computed / elapsed if timed else None,
            cached_share=1 - computed / sent if sent else None,
            seconds_left=elapsed / done * (self.total - self.done_before - done) if timed else None,
            flop_per_s=flop_per_s,
            peak_share=flop_per_s / self.peak_flop_per_s if flop_per_s and self.peak_flop_per_s else None,
            slowest_replica_tokens_per_s=min(rates) if timed and len(rates) > 1 else None,
        )


def _without_computed(progress: Progress) -> Progress:
    """Return the progress without what follows from the number of computed tokens."""
    return replace(
        progress,
        computed_tokens_per_s=None,
        cached_share=None,
        flop_per_s=None,
        peak_share=None,
        slowest_replica_tokens_per_s=None,
    )


def _sums(update: ShardUpdate) -> npt.NDArray[np.float64]:
    """Return prompts, tokens sent, tokens computed and seconds."""
    computed = update.prompt_tokens - update.cached_tokens
    return np.array([update.prompts, update.prompt_tokens, computed, update.elapsed_s])


class ShardWriter:
    """Writes finished shards, then the manifest that names them.

    The manifest is written whole, and grows: with more shards than SHARDS_NAMED_AT_ONCE not after each of them, but so
    that it takes at most a twentieth of the time. A kill loses what it does not name yet.
    """

    def __init__(self, table: ScoreTable) -> None:
        self._table, self._is_named = table, True
        self._next = 0.0  # when the manifest is written again; in seconds of a monotonic clock

    def add(self, finished: ShardUpdate) -> ScoreTable:
        """Write a shard, and return the table with it."""
        assert finished.frame is not None, "the shard is finished"
        entry = ShardRecord(
            sha256=shards.write_shard(self._table.folder / finished.shard, finished.frame),
            prompts=finished.prompts,
            prompt_tokens=finished.prompt_tokens,
            cached_tokens=finished.cached_tokens,
            elapsed_s=finished.elapsed_s,
            finished_s=round(time.time(), 3),
            replica=finished.replica,
        )
        manifest = self._table.manifest
        manifest = replace(manifest, shards=manifest.shards | {finished.shard: entry})
        self._table, self._is_named = replace(self._table, manifest=manifest), False
        if len(manifest.shards) <= SHARDS_NAMED_AT_ONCE or time.monotonic() >= self._next:
            self.close()
        return self._table

    def close(self) -> None:
        """Write the manifest, if shards were added since."""
        if self._is_named:
            return
        started = time.monotonic()
        self._table.write_manifest(self._table.manifest)
        self._is_named, ended = True, time.monotonic()
        self._next = ended + (ended - started) * TIMES_BETWEEN_MANIFESTS
