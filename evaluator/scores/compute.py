"""Computes the scores and hidden states that a plan still lacks, shard by shard."""

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import chain, pairwise

import polars as pl

from evaluator.engine.base import ContinuationRequest, Engine
from evaluator.engine.loader import EngineLoader
from evaluator.progress import Progress, Stage
from evaluator.schemas import TOKEN_SCORES, TOKEN_STATES
from evaluator.scores.checks import require_finite, require_finite_states
from evaluator.scores.plan import Plan, n_requests, plan_rows, request_starts
from evaluator.scores.table import TOKEN_COUNTS, Kind, ScoreTable, ShardRecord
from evaluator.store import shards

STAGE_NAMES: dict[Kind, str] = {"scores": "Scoring", "states": "Computing hidden states"}

# Forward passes: few, so that a kill loses little; enough, so that starting with an empty cache costs little.
STEPS_PER_SHARD = 64
SECONDS_BETWEEN_REPORTS = 0.1


def score_rows(tokens: pl.DataFrame, table: ScoreTable, loader: EngineLoader, kind: Kind) -> Stage[ScoreTable]:
    """Compute the scores or states that are missing, and return the complete table.

    The engine is loaded only if something is missing.

    Args:
        tokens: schemas.TOKENS, in prefix order; with continuations for scores, without for states.
        table: scores of these rows.
        loader: of the engine that the table belongs to.
        kind: what is computed.
    """
    if tokens.is_empty():
        return table
    plan = plan_rows(tokens, table, kind)
    if plan.record.reused_prompts:
        yield Progress(
            stage="Reused from earlier runs",
            done=plan.record.reused_prompts,
            total=plan.record.reused_prompts + plan.record.prompts,
            unit="prompts",
        )
    if plan.key not in table.manifest.plans or not table.manifest.plans[plan.key].shard_tokens:
        table, plan = yield from _write_plan(plan, table, loader)
    cut = plan.shards()
    missing = {name: rows for name, rows in cut.items() if name not in table.manifest.shards}
    if missing:
        engine = yield from loader.load()
        clock = _Clock(engine, STAGE_NAMES[kind])
        clock.start(done_before=_n_finished(table, cut), total=n_requests(plan.rows))
        for name, (first, n_rows) in missing.items():
            clock.start_shard()
            rows = plan.rows.slice(first, n_rows)
            frame = yield from (_score_shard if kind == "scores" else _compute_states)(rows, clock)
            table = _write_shard(table, name, frame, clock, n_requests(rows))
        yield clock.progress()
    elif plan.record.prompts:
        yield Progress(stage=STAGE_NAMES[kind], done=plan.record.prompts, total=plan.record.prompts, unit="prompts")
    # A reused shard that was removed or damaged since the plan was made leaves rows to be planned again.
    lost = tokens.join(table.read(kind).select("token_id").collect(), on="token_id", how="anti", maintain_order="left")
    return (yield from score_rows(lost, table, loader, kind)) if lost.height else table


def _write_plan(plan: Plan, table: ScoreTable, loader: EngineLoader) -> Stage[tuple[ScoreTable, Plan]]:
    """Complete a new plan with the engine's step size, if the engine is needed, and write it."""
    record, manifest = plan.record, table.manifest
    if plan.rows.height:
        engine = yield from loader.load()
        manifest = replace(manifest, engine=manifest.engine or engine.facts)
        record = replace(
            record,
            shard_tokens=STEPS_PER_SHARD * engine.facts.tokens_per_step,
            shares_prefixes=engine.facts.prefix_block_tokens is not None,
        )
        record = replace(record, n_shards=len(replace(plan, record=record).shards()))
    table = table.with_manifest(replace(manifest, plans=manifest.plans | {plan.key: record}))
    return table, replace(plan, record=record)


def _n_finished(table: ScoreTable, cut: dict[str, tuple[int, int]]) -> int:
    """Return the number of prompts in finished shards of a plan."""
    return sum(shard.prompts for name, shard in table.manifest.shards.items() if name in cut)


def engine_requests(tokens: pl.DataFrame) -> list[ContinuationRequest]:
    """Return one request per context, with the continuations of all its rows in order."""
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
    # Requests join the continuations of several rows; deal them out to the rows again.
    flat = chain.from_iterable(answers)
    rows = [[next(flat) for _ in range(n)] for n in tokens["continuations"].list.len()]
    frame = pl.DataFrame(
        {
            "token_id": tokens["token_id"],
            "log_likelihoods": [[sum(continuation) for continuation in row] for row in rows],
            "token_counts": [[len(continuation) for continuation in row] for row in rows],
        },
        schema=TOKEN_SCORES,
    )
    require_finite(frame.with_columns(tokens["prompt_id"]))
    return frame


class _Clock:
    """Counts prompts, tokens and seconds of this process, for progress and shard records."""

    def __init__(self, engine: Engine, stage: str) -> None:
        self.engine, self.stage = engine, stage
        self.start(done_before=0, total=0)

    def start(self, *, done_before: int, total: int) -> None:
        self.done_before, self.total = done_before, total
        self.prompts = 0  # in finished shards
        self.started = time.monotonic()
        self.started_counts = self.counts()

    def counts(self) -> dict[str, int]:
        counts = asdict(self.engine.counts)
        return {key: counts[key] for key in TOKEN_COUNTS}

    def start_shard(self) -> None:
        self.shard_started, self.shard_counts = time.monotonic(), self.counts()

    def end_shard(self, sha256: str, prompts: int) -> ShardRecord:
        self.prompts += prompts
        spent = {key: count - self.shard_counts[key] for key, count in self.counts().items()}
        elapsed_s = round(time.monotonic() - self.shard_started, 3)
        finished_s = round(time.time(), 3)
        return ShardRecord(sha256=sha256, prompts=prompts, **spent, elapsed_s=elapsed_s, finished_s=finished_s)

    def progress(self, in_shard: int = 0) -> Progress:
        counts = {key: count - self.started_counts[key] for key, count in self.counts().items()}
        sent = counts["prompt_tokens"]
        elapsed = time.monotonic() - self.started
        done = self.prompts + in_shard  # by this process
        left = self.total - self.done_before - done
        # The first results wait for a whole batch and say little about the speed of the rest.
        timed = done > 0 and elapsed > 1
        return Progress(
            stage=self.stage,
            done=self.done_before + done,
            total=self.total,
            unit="prompts",
            requests_per_s=done / elapsed if timed else None,
            computed_tokens_per_s=(sent - counts["cached_tokens"]) / elapsed if timed else None,
            cached_share=counts["cached_tokens"] / sent if sent else None,
            seconds_left=elapsed / done * left if timed else None,
        )


def _score_shard(shard: pl.DataFrame, clock: _Clock) -> Stage[pl.DataFrame]:
    """Compute schemas.TOKEN_SCORES of a shard."""
    requests = engine_requests(shard)
    answers: dict[int, list[list[float]]] = {}
    reported = 0.0
    for answer in clock.engine.log_likelihoods(requests):
        assert answer.index not in answers, f"the engine answered request {answer.index} twice"
        answers[answer.index] = answer.token_log_probs
        if time.monotonic() - reported > SECONDS_BETWEEN_REPORTS:
            reported = time.monotonic()
            yield clock.progress(in_shard=len(answers))
    assert len(answers) == len(requests), f"the engine answered {len(answers)} of {len(requests)} requests"
    return score_frame(shard, [answers[index] for index in range(len(requests))])


def _compute_states(shard: pl.DataFrame, clock: _Clock) -> Stage[pl.DataFrame]:
    """Compute schemas.TOKEN_STATES of a shard."""
    yield clock.progress()
    states = clock.engine.hidden_states(shard["context"].to_list())
    flat = pl.Series(states, dtype=pl.Array(pl.Float32, states.shape[1]))
    frame = pl.DataFrame({"token_id": shard["token_id"], "hidden_state": flat}).cast(TOKEN_STATES)
    require_finite_states(frame.with_columns(shard["prompt_id"]))
    return frame


def _write_shard(table: ScoreTable, name: str, frame: pl.DataFrame, clock: _Clock, n_prompts: int) -> ScoreTable:
    """Write a shard, then the manifest that names it."""
    sha256 = shards.write_shard(table.folder / name, frame)
    entry = clock.end_shard(sha256, n_prompts)
    return table.with_manifest(replace(table.manifest, shards=table.manifest.shards | {name: entry}))
