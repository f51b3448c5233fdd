"""Compute the scores and hidden states that are missing from a plan, shard by shard.

A shard is a job of a replica and is computed in the process of its engine. The process of the command writes the
results.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from evaluator.arrays import Floats, arrow_lists
from evaluator.engine.base import ContinuationRequest, Engine, adapted
from evaluator.engine.replicas import EngineLoader, Job
from evaluator.errors import EvaluatorError, ScoreError, StoreError
from evaluator.files.digests import list_fingerprint
from evaluator.files.json_files import read_json, write_json
from evaluator.models.weights import Adapter
from evaluator.progress import Progress, Stage
from evaluator.record import EngineRecord
from evaluator.run_log import seconds_since
from evaluator.schemas import TOKEN_SCORES, TOKEN_STATES
from evaluator.scores.plan import MIN_STEPS_PER_SHARD, STEPS_PER_SHARD, Plan, request_starts
from evaluator.scores.table import Kind, PlanKey, ScoreTable, ShardRecord, require_finite
from evaluator.store import write_shard
from evaluator.tokens.rows import TokenRows

logger = logging.getLogger(__name__)

STAGE_NAMES: dict[Kind, str] = {"scores": "Scoring", "states": "Computing hidden states"}

SHARDS_NAMED_AT_ONCE = 500  # up to this number of shards, the manifest is written after every shard
TIMES_BETWEEN_MANIFESTS = 20  # beyond it: pause between manifests, as a multiple of the time to write the last one

SECONDS_BETWEEN_REPORTS = 0.5  # limits the number of progress messages between processes

SECONDS_BETWEEN_KEPT = 60.0
"""Interval at which answers of an unfinished shard are saved: a killed run loses at most the work of this time."""


Kept = Mapping[str, Any]
"""Saved answers of an unfinished shard, as JSON values: `answers`, pairs of request index and token log-probabilities;
`rows`, fingerprint of the requested rows; and counts of tokens and seconds."""


class ShardUpdate(NamedTuple):
    """Progress of a shard; the last update has the results."""

    shard: str  # file name of the shard
    replica: int  # number of the replica that computes the shard
    prompts: int  # number of prompts computed so far, by an interrupted command included
    prompt_tokens: int
    cached_tokens: int
    elapsed_s: float
    earlier: tuple[int, int] = (0, 0)  # prompts, and computed tokens, of an interrupted command
    frame: pl.DataFrame | None = None  # in the last update: schemas.TOKEN_SCORES or TOKEN_STATES of all rows
    kept: Kept | None = None  # answers to save, from which shard_job can resume


def shard_job(
    name: str, kind: Kind, rows: TokenRows, size: float, adapter: Adapter | None = None, kept: Kept | None = None
) -> Job:
    """Return the job that computes a shard and yields `ShardUpdate`s.

    Args:
        name: file name of the shard.
        kind: "scores" or "states".
        rows: the rows of the shard, which are read when the job runs or is sent to another process.
        size: approximate number of tokens to compute.
        adapter: LoRA adapter; None: the base model.
        kept: the last `ShardUpdate.kept` of a stopped job; ignored if its rows differ.
    """
    if kind == "states":
        return Job(name, size, _compute_states, (name, rows, adapter))
    return Job(name, size, _score_shard, (name, rows, adapter, kept or {}))


def _score_shard(
    loaded: Engine, replica: int, name: str, tokens: TokenRows, adapter: Adapter | None, kept: Kept
) -> Iterator[ShardUpdate]:
    engine, rows = adapted(loaded, adapter), tokens.frame()
    requests, identity = engine_requests(rows), list_fingerprint([rows["token_id"]])
    kept = kept if kept.get("rows") == identity else {}  # resume only from saved answers to the same rows
    meter = _Meter(engine, replica, name, kept)
    answers: dict[int, list[list[float]]] = dict(kept.get("answers", ()))
    left = [index for index in range(len(requests)) if index not in answers]
    reported, written = 0.0, time.monotonic()

    def update(*, is_saved: bool) -> ShardUpdate:
        return meter.update(len(answers), kept={"rows": identity, "answers": [*answers.items()]} if is_saved else None)

    try:
        for answer in engine.log_likelihoods([requests[index] for index in left]):
            if (index := left[answer.index]) in answers:
                raise ScoreError(f"The engine answered request {index} of {name} twice.")
            answers[index] = answer.token_log_probs
            now = time.monotonic()
            if (is_due := now - written > SECONDS_BETWEEN_KEPT) or now - reported > SECONDS_BETWEEN_REPORTS:
                reported, written = now, now if is_due else written
                yield update(is_saved=is_due)
    except (EvaluatorError, KeyboardInterrupt):  # such as a server that no longer answers, or Ctrl-C
        yield update(is_saved=True)
        raise
    if len(answers) < len(requests):
        raise ScoreError(f"The engine answered {len(answers)} of {len(requests)} requests of {name}.")
    frame = score_frame(rows, [answers[index] for index in range(len(requests))])
    yield meter.update(len(requests), frame)


def _compute_states(
    loaded: Engine, replica: int, name: str, tokens: TokenRows, adapter: Adapter | None
) -> Iterator[ShardUpdate]:
    engine, rows = adapted(loaded, adapter), tokens.frame()
    meter = _Meter(engine, replica, name)
    yield meter.update(0)
    states = engine.hidden_states(rows["context"].to_list())
    flat = pl.Series(states, dtype=pl.Array(pl.Float32, states.shape[1]))
    frame = pl.DataFrame({"token_id": rows["token_id"], "hidden_state": flat}).cast(TOKEN_STATES)
    require_finite(frame.with_columns(rows["prompt_id"]), "hidden_state", "a hidden state that is not finite")
    yield meter.update(len(request_starts(rows)), frame)


class _Meter:
    """Measures the tokens and seconds of a shard, including those of an interrupted command.

    Starting values are moved back by what the interrupted command spent, so that differences include it.
    """

    def __init__(self, engine: Engine, replica: int, name: str, kept: Kept | None = None) -> None:
        self.engine, self.replica, self.name = engine, replica, name
        spent: Kept = {"prompt_tokens": 0, "cached_tokens": 0, "elapsed_s": 0.0, "answers": []} | dict(kept or {})
        self.earlier = len(spent["answers"]), spent["prompt_tokens"] - spent["cached_tokens"]
        self.started = time.monotonic() - spent["elapsed_s"]
        self.sent_before = engine.counts.prompt_tokens - spent["prompt_tokens"]
        self.cached_before = engine.counts.cached_tokens - spent["cached_tokens"]

    def update(self, prompts: int, frame: pl.DataFrame | None = None, kept: Kept | None = None) -> ShardUpdate:
        spent: dict[str, Any] = {
            "prompt_tokens": self.engine.counts.prompt_tokens - self.sent_before,
            "cached_tokens": self.engine.counts.cached_tokens - self.cached_before,
            "elapsed_s": seconds_since(self.started),
        }
        kept = kept and {**kept, **spent}
        return ShardUpdate(self.name, self.replica, prompts, **spent, earlier=self.earlier, frame=frame, kept=kept)


def engine_requests(tokens: pl.DataFrame) -> list[ContinuationRequest]:
    """Return one engine request for each context, with the continuations of all rows of this context, in order.

    Args:
        tokens: schemas.TOKENS, in prefix order.
    """
    contexts, continuations = tokens["context"].to_list(), tokens["continuations"].to_list()
    bounds = pairwise([*request_starts(tokens).tolist(), tokens.height])
    return [
        ContinuationRequest(contexts[start], list(chain.from_iterable(continuations[start:end])))
        for start, end in bounds
    ]


def score_frame(tokens: pl.DataFrame, answers: Sequence[list[list[float]]]) -> pl.DataFrame:
    """Return schemas.TOKEN_SCORES from token log-probabilities.

    Args:
        tokens: schemas.TOKENS.
        answers: log-probabilities in nats, [request][continuation][token], in the order of engine_requests(tokens).

    Raises:
        ScoreError: a sum that is not finite.
    """
    # A request has the continuations of several rows: split the answers into one list for each row again.
    n_of_row, answered = tokens["continuations"].list.len(), list(chain.from_iterable(answers))
    assert len(answered) == n_of_row.sum(), "engines answer every continuation"
    sums, counts = [
        arrow_lists(pl.Series([*map(measure, answered)], dtype=kind).to_arrow(), n_of_row)
        for measure, kind in ((sum, pl.Float64), (len, pl.Int32))
    ]
    columns = {"token_id": tokens["token_id"], "log_likelihoods": pl.Series(sums), "token_counts": pl.Series(counts)}
    frame = pl.DataFrame(columns, schema=TOKEN_SCORES)
    what = "a label whose log-likelihood is not a finite number"
    require_finite(frame.with_columns(tokens["prompt_id"]), "log_likelihoods", what)
    return frame


class Arithmetic(NamedTuple):
    """Operations of a model for a token, and the peak rate of the devices."""

    flop_per_token: int
    peak_flop_per_s: Callable[[EngineRecord, int], float | None]  # engine, number of replicas -> peak of all devices


AfterShard = Callable[[ScoreTable], Iterator[Progress]]
"""Function that is called with the table after each shard; it yields progress to show."""


def score_rows(
    plan: Plan,
    table: ScoreTable,
    loader: EngineLoader,
    adapter: Adapter | None = None,
    after_shard: AfterShard | None = None,
    *,
    arithmetic: Arithmetic | None = None,
) -> Stage[ScoreTable]:
    """Compute the scores or states that are missing, and return the complete table.

    The engine is loaded only if scores or states are missing.

    Args:
        plan: plan of the rows; its key says whether scores or states are computed.
        table: table of the scores of these rows.
        loader: loader of the engine that the table belongs to.
        adapter: LoRA adapter; None: the base model.
        after_shard: called with the table after each shard.
        arithmetic: operations of the model, for progress; None: unknown.
    """
    record, kind = plan.record, plan.key.kind
    if record.reused_prompts:
        total = record.reused_prompts + record.prompts
        yield Progress(stage="Reused from earlier runs", done=record.reused_prompts, total=total, unit="prompts")
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
        facts = replicas.loaded()
        finished = [shard for name, shard in table.manifest.shards.items() if name in shards_by_name]
        clock = _Clock(
            STAGE_NAMES[kind],
            done_before=sum(shard.prompts for shard in finished),
            total=record.prompts,
            flop_per_token=arithmetic.flop_per_token if arithmetic else None,
            peak_flop_per_s=arithmetic.peak_flop_per_s(facts, replicas.n) if arithmetic else None,
            counts_cached_tokens=facts.counts_cached_tokens,
        )
        with closing(ShardWriter(table)) as writer:
            for update in replicas.run(jobs):
                clock.add(update)
                if update.kept is not None:
                    write_json(table.folder / kept_file(update.shard), dict(update.kept))
                if update.frame is not None:
                    table = writer.add(update)
                    yield from after_shard(table) if after_shard else ()
                yield clock.progress()
        _remove_kept(table)
    elif record.prompts:
        yield Progress(stage=STAGE_NAMES[kind], done=record.prompts, total=record.prompts, unit="prompts")
    return table


def kept_file(shard: str) -> str:
    """Return the name of the file with saved answers of an unfinished shard."""
    return f"{shard.removesuffix('.arrow')}.kept.json"


def read_kept(folder: Path, shard: str) -> dict[str, Any] | None:
    """Return the saved answers of an unfinished shard, or None if there are none or, with a warning, if damaged."""
    try:
        return read_json(folder / kept_file(shard))
    except StoreError as error:
        logger.warning("%s These prompts are scored again.", error)
        return None


def _remove_kept(table: ScoreTable) -> None:
    """Remove the saved answers of shards that are finished."""
    for path in table.folder.glob(kept_file("*")):
        if path.name in map(kept_file, table.manifest.shards):
            path.unlink(missing_ok=True)


def _write_plan(plan: Plan, table: ScoreTable, loader: EngineLoader) -> Stage[tuple[ScoreTable, Plan]]:
    """Add the shard sizes to a plan, which depend on the engine, and write the plan in place of an older one.

    The engine is loaded only if the plan has rows to compute.
    """
    record, manifest = plan.record, table.manifest
    if plan.rows.height:
        replicas = yield from loader.replicas(plan.requests.longest)
        facts = replicas.loaded()
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
    """Sums the time and tokens of this command's shards, for progress."""

    stage: str
    done_before: int  # number of prompts of shards that earlier commands finished
    total: int  # number of prompts of the plan
    flop_per_token: int | None
    peak_flop_per_s: float | None
    counts_cached_tokens: bool
    started: float = field(default_factory=lambda: time.monotonic())
    finished: dict[int, Floats] = field(default_factory=dict)  # replica -> summed _sums of finished shards
    running: dict[str, ShardUpdate] = field(default_factory=dict)  # running shard -> its last update

    def add(self, update: ShardUpdate) -> None:
        if update.frame is None:
            self.running[update.shard] = update
        else:
            self.running.pop(update.shard, None)
            self.finished[update.replica] = self.finished.get(update.replica, 0) + _sums(update)

    def progress(self) -> Progress:
        # Sums of each replica, over finished and running shards.
        replicas = self.finished.copy()
        for update in self.running.values():
            replicas[update.replica] = replicas.get(update.replica, 0) + _sums(update)
        done, sent, computed, _, *earlier = sum(replicas.values(), np.zeros(6)).tolist()
        elapsed = time.monotonic() - self.started
        now = Progress(stage=self.stage, done=self.done_before + int(done), total=self.total, unit="prompts")
        done, newly_computed = done - earlier[0], computed - earlier[1]  # without an interrupted command's part
        # No rates in the first second: the first results wait for a whole batch and would give wrong rates.
        if done <= 0 or elapsed <= 1:
            return now
        now = replace(now, requests_per_s=done / elapsed, seconds_left=elapsed / done * (self.total - now.done))
        if not self.counts_cached_tokens:
            return now
        rates = [tokens / seconds for _, _, tokens, seconds, *_ in replicas.values() if seconds]
        flop_per_s = newly_computed / elapsed * self.flop_per_token if self.flop_per_token else None
        return replace(
            now,
            computed_tokens_per_s=newly_computed / elapsed,
            cached_share=1 - computed / sent,
            flop_per_s=flop_per_s,
            peak_share=flop_per_s / self.peak_flop_per_s if flop_per_s and self.peak_flop_per_s else None,
            slowest_replica_tokens_per_s=min(rates) if len(rates) > 1 else None,
        )


def _sums(update: ShardUpdate) -> Floats:
    """Return [prompts, tokens sent, tokens computed, seconds, earlier prompts, earlier tokens computed] of a shard."""
    computed = update.prompt_tokens - update.cached_tokens
    return np.array([update.prompts, update.prompt_tokens, computed, update.elapsed_s, *update.earlier])


class ShardWriter:
    """Writes finished shards, then the manifest that names them.

    The whole manifest is written each time, and it grows. After SHARDS_NAMED_AT_ONCE shards it is no longer written
    after every shard, so that writing manifests takes at most a twentieth of the time. If the process is killed, shards
    that the manifest does not name yet are lost.
    """

    def __init__(self, table: ScoreTable) -> None:
        self._table, self._is_named = table, True
        self._zero_s = time.time() - time.monotonic()  # read once, so that later changes of the clock change no rate
        self._next = 0.0  # time of time.monotonic() from which the manifest is written again

    def add(self, finished: ShardUpdate) -> ScoreTable:
        """Write a finished shard and, if it is due, the manifest; return the table with the shard."""
        assert finished.frame is not None, "the shard is finished"
        entry = ShardRecord(
            sha256=write_shard(self._table.folder / finished.shard, finished.frame),
            prompts=finished.prompts,
            prompt_tokens=finished.prompt_tokens,
            cached_tokens=finished.cached_tokens,
            elapsed_s=finished.elapsed_s,
            finished_s=round(self._zero_s + time.monotonic(), 3),
            replica=finished.replica,
        )
        manifest = replace(self._table.manifest, shards=self._table.manifest.shards | {finished.shard: entry})
        self._table, self._is_named = replace(self._table, manifest=manifest), False
        if len(manifest.shards) <= SHARDS_NAMED_AT_ONCE or time.monotonic() >= self._next:
            self.close()
        return self._table

    def close(self) -> None:
        """Write the manifest, if shards were added since the last manifest."""
        if self._is_named:
            return
        started = time.monotonic()
        self._table.write_manifest(self._table.manifest)
        self._is_named, ended = True, time.monotonic()
        self._next = ended + (ended - started) * TIMES_BETWEEN_MANIFESTS
