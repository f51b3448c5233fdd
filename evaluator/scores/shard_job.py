"""Compute one shard with an engine, in the process that has the engine."""

import time
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
import polars as pl

from evaluator.engine.base import ContinuationRequest, Engine, adapted
from evaluator.engine.replicas import Job
from evaluator.models.adapters import Adapter
from evaluator.run_log import seconds_since
from evaluator.schemas import TOKEN_SCORES, TOKEN_STATES
from evaluator.scores.checks import require_finite, require_finite_states
from evaluator.scores.plan import request_starts
from evaluator.scores.table import Kind
from evaluator.tokens.rows import TokenRows

SECONDS_BETWEEN_REPORTS = 0.5  # to another process each costs a message


class ShardUpdate(NamedTuple):
    """How much of a shard is computed."""

    shard: str
    replica: int  # that computes it
    prompts: int
    prompt_tokens: int
    cached_tokens: int
    elapsed_s: float
    frame: pl.DataFrame | None = None  # schemas.TOKEN_SCORES or TOKEN_STATES of all rows, in the last update


def shard_job(name: str, kind: Kind, rows: TokenRows, size: float, adapter: Adapter | None = None) -> Job:
    """Return the job that computes a shard and yields `ShardUpdate`s.

    Args:
        name: of the shard.
        kind: what is computed.
        rows: all that belong to the shard, which are read when it is computed or sent.
        size: tokens that it computes, about.
        adapter: that it computes with; None for the base model.
    """
    return Job(name, size, _score_shard if kind == "scores" else _compute_states, (name, rows, adapter))


def _score_shard(
    loaded: Engine, replica: int, name: str, tokens: TokenRows, adapter: Adapter | None
) -> Iterator[ShardUpdate]:
    engine, rows = adapted(loaded, adapter), tokens.frame()
    meter = _Meter(engine, replica, name)
    requests = engine_requests(rows)
    answers: dict[int, list[list[float]]] = {}
    reported = 0.0
    for answer in engine.log_likelihoods(requests):
        assert answer.index not in answers, f"the engine answered request {answer.index} twice"
        answers[answer.index] = answer.token_log_probs
        if time.monotonic() - reported > SECONDS_BETWEEN_REPORTS:
            reported = time.monotonic()
            yield meter.update(len(answers))
    assert len(answers) == len(requests), f"the engine answered {len(answers)} of {len(requests)} requests"
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
    require_finite_states(frame.with_columns(rows["prompt_id"]))
    yield meter.update(len(request_starts(rows)), frame)


class _Meter:
    """Measures the tokens and seconds that a shard takes."""

    def __init__(self, engine: Engine, replica: int, name: str) -> None:
        self.engine, self.replica, self.name = engine, replica, name
        self.started = time.monotonic()
        self.sent_before, self.cached_before = engine.counts.prompt_tokens, engine.counts.cached_tokens

    def update(self, prompts: int, frame: pl.DataFrame | None = None) -> ShardUpdate:
        return ShardUpdate(
            shard=self.name,
            replica=self.replica,
            prompts=prompts,
            prompt_tokens=self.engine.counts.prompt_tokens - self.sent_before,
            cached_tokens=self.engine.counts.cached_tokens - self.cached_before,
            elapsed_s=seconds_since(self.started),
            frame=frame,
        )


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
    # Requests join the continuations of several rows; group_by deals them out to the rows again.
    sums = [sum(continuation) for request in answers for continuation in request]
    counts = [len(continuation) for request in answers for continuation in request]
    rows = tokens["continuations"].list.len().to_numpy()
    flat = pl.DataFrame(
        {"row": np.arange(len(rows)).repeat(rows), "log_likelihoods": sums, "token_counts": counts},
        schema_overrides={"log_likelihoods": pl.Float64},
    )
    lists = flat.group_by("row", maintain_order=True).agg("log_likelihoods", "token_counts")
    frame = lists.select(tokens["token_id"], "log_likelihoods", "token_counts").cast(TOKEN_SCORES)
    require_finite(frame.with_columns(tokens["prompt_id"]))
    return frame
