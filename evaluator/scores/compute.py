"""Compute the scores and hidden states that a plan still lacks, shard by shard."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from evaluator.engine.replicas import EngineLoader
from evaluator.errors import StoreError
from evaluator.files.json_files import read_json, write_json
from evaluator.models.adapters import Adapter
from evaluator.progress import Progress, Stage
from evaluator.record import EngineRecord
from evaluator.scores.plan import MIN_STEPS_PER_SHARD, STEPS_PER_SHARD, Plan
from evaluator.scores.shard_job import ShardUpdate, shard_job
from evaluator.scores.table import Kind, PlanKey, ScoreTable, ShardRecord
from evaluator.store import shards

logger = logging.getLogger(__name__)

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
    plan: Plan,
    table: ScoreTable,
    loader: EngineLoader,
    adapter: Adapter | None = None,
    after_shard: AfterShard = no_progress,
    *,
    arithmetic: Arithmetic | None = None,
) -> Stage[ScoreTable]:
    """Compute the scores or states that are missing, and return the complete table.

    The engine is loaded only if something is missing.

    Args:
        plan: of the rows, with continuations for scores, without for states.
        table: scores of these rows.
        loader: of the engine that the table belongs to.
        adapter: that the engine computes with; None for the base model.
        after_shard: called with the table after each shard.
        arithmetic: operations of the model, for progress; None: not known.
    """
    record, kind = plan.record, plan.key.kind
    if record.reused_prompts:
        yield Progress(
            stage="Reused from earlier runs",
            done=record.reused_prompts,
            total=record.reused_prompts + record.prompts,
            unit="prompts",
        )
    if str(plan.key) not in table.manifest.plans:
        table, plan = yield from _write_plan(plan, table, loader)
    _remove_kept(table)
    shards_by_name, kept = plan.shards(), partial(read_kept, table.folder)
    jobs = [
        shard_job(name, kind, plan.rows.slice(shard.first, shard.n_rows), shard.computed_tokens, adapter, kept(name))
        for name, shard in shards_by_name.items()
        if name not in table.manifest.shards
    ]
    if jobs:
        replicas = yield from loader.replicas(plan.requests.longest)
        finished = [shard for name, shard in table.manifest.shards.items() if name in shards_by_name]
        clock = _Clock(
            STAGE_NAMES[kind],
            done_before=sum(shard.prompts for shard in finished),
            total=record.prompts,
            flop_per_token=arithmetic.flop_per_token if arithmetic else None,
            peak_flop_per_s=arithmetic.peak_flop_per_s(replicas.facts, replicas.n) if arithmetic else None,
            counts_cached_tokens=replicas.facts.counts_cached_tokens,
        )
        with closing(ShardWriter(table)) as writer:
            for update in replicas.run(jobs):
                clock.add(update)
                if update.kept is not None:
                    write_json(table.folder / kept_file(update.shard), dict(update.kept))
                if update.frame is not None:
                    table = writer.add(update)
                    yield from after_shard(table)
                yield clock.progress()
        _remove_kept(table)
    elif record.prompts:
        yield Progress(stage=STAGE_NAMES[kind], done=record.prompts, total=record.prompts, unit="prompts")
    return table


def kept_file(shard: str) -> str:
    """Return the name of the file with the answers of a shard that is not finished."""
    return f"{shard.removesuffix('.arrow')}.kept.json"


def read_kept(folder: Path, shard: str) -> dict[str, Any] | None:
    """Return the answers that a stopped job has kept; None without any, and, with a warning, for damaged ones."""
    try:
        return read_json(folder / kept_file(shard))
    except StoreError as error:
        logger.warning("%s These prompts are scored again.", error)
        return None


def _remove_kept(table: ScoreTable) -> None:
    """Remove what was kept of shards that are finished."""
    for path in table.folder.glob(kept_file("*")):
        if path.name in map(kept_file, table.manifest.shards):
            path.unlink(missing_ok=True)


def _write_plan(plan: Plan, table: ScoreTable, loader: EngineLoader) -> Stage[tuple[ScoreTable, Plan]]:
    """Complete a plan with the size of its shards, if the engine is needed, and write it in place of an older one."""
    record, manifest = plan.record, table.manifest
    if plan.rows.height:
        replicas = yield from loader.replicas(plan.requests.longest)
        facts = replicas.facts
        manifest = replace(manifest, engine=manifest.engine or facts)
        record = replace(
            record,
            shard_tokens=STEPS_PER_SHARD * facts.tokens_per_step,
            min_shard_tokens=MIN_STEPS_PER_SHARD * facts.tokens_per_step,
            n_replicas=replicas.n,
            shares_prefixes=facts.prefix_block_tokens is not None,
        )
    others = {key: other for key, other in manifest.plans.items() if not PlanKey.parse(key).has_rows_of(plan.key)}
    table = table.write_manifest(replace(manifest, plans=others | {str(plan.key): record}))
    return table, replace(plan, record=record)


@dataclass
class _Clock:
    """Adds up what this command's shards took, for progress."""

    stage: str
    done_before: int  # prompts of shards that earlier commands finished
    total: int
    flop_per_token: int | None
    peak_flop_per_s: float | None
    counts_cached_tokens: bool
    started: float = field(default_factory=lambda: time.monotonic())
    finished: dict[int, npt.NDArray[np.float64]] = field(default_factory=dict)  # replica -> _sums of finished shards
    running: dict[str, ShardUpdate] = field(default_factory=dict)  # the last update of each other shard

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
        elapsed = time.monotonic() - self.started
        # The first results wait for a whole batch and say little about the speed of the rest.
        timed = done > 0 and elapsed > 1
        now = Progress(
            stage=self.stage,
            done=self.done_before + int(done),
            total=self.total,
            unit="prompts",
            requests_per_s=done / elapsed if timed else None,
            seconds_left=elapsed / done * (self.total - self.done_before - done) if timed else None,
        )
        if not self.counts_cached_tokens:
            return now
        rates = [tokens / seconds for _, _, tokens, seconds in replicas.values() if seconds]
        flop_per_s = computed / elapsed * self.flop_per_token if timed and self.flop_per_token else None
        return replace(
            now,
            computed_tokens_per_s=computed / elapsed if timed else None,
            cached_share=1 - computed / sent if sent else None,
            flop_per_s=flop_per_s,
            peak_share=flop_per_s / self.peak_flop_per_s if flop_per_s and self.peak_flop_per_s else None,
            slowest_replica_tokens_per_s=min(rates) if timed and len(rates) > 1 else None,
        )


def _sums(update: ShardUpdate) -> npt.NDArray[np.float64]:
    """Return prompts, tokens sent, tokens computed and seconds."""
    computed = update.prompt_tokens - update.cached_tokens
    return np.array([update.prompts, update.prompt_tokens, computed, update.elapsed_s])


class ShardWriter:
    """Writes finished shards, then the manifest that names them.

    The manifest is written whole, and grows. After SHARDS_NAMED_AT_ONCE shards it is no longer written after each
    shard, so that manifests take at most a twentieth of the time. A kill loses shards that no manifest names yet.
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
